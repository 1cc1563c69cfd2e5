"""Slow features of PuddleWorld's random walk against the exact generalised eigenproblem."""
