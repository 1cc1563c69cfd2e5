"""Solve tabular problems exactly, and compute fixed points of objectives."""

from rlreps.successor.exact.tabular import TabularModel, TabularProblem, estimate_model, greedy
from rlreps.successor.exact.truths import ChainTruths, Truth

__all__ = ["ChainTruths", "TabularModel", "TabularProblem", "Truth", "estimate_model", "greedy"]
