"""Online principal component analysis."""
