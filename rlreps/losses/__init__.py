"""Objectives whose minimisers span principal subspaces."""
