"""Principal components of MNIST from a few pixels of one image at a time (Le Lan et al. 2023)."""
