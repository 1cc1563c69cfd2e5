"""Experiments of Pfau et al. 2019."""
