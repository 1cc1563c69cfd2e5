"""Estimate rows of a successor measure: chains, rollouts, kernels of one step, grids of cells."""
