"""The two-dimensional hydrogen atom: nine eigenfunctions with known energies."""
