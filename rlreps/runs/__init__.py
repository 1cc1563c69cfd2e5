"""Runs on disk: their folder, checkpoints, locks, progress, provenance and intervals."""
