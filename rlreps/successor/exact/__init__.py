"""Solve tabular problems exactly, and compute fixed points of objectives."""
