"""Sweeps: training runs at every point of a grid over the fields of a training configuration."""
