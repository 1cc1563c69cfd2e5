"""Principal subspaces: centring, singular value decomposition, metrics, inverse covariances."""
