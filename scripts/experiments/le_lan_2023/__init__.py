"""Experiments of Le Lan et al. 2023."""
