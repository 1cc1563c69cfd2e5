"""Fit a successor representation to transitions: data, basis, solution, quality, policies."""
