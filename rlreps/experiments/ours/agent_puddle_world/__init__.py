"""Agents in PuddleWorld, goal and penalties on: no auxiliary task against each objective."""
