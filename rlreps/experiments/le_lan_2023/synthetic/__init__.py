"""Known spectra: the methods on matrices whose singular values are set."""
