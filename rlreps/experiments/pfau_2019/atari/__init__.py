"""Frames of an Atari game: slow features, principal components and successor features."""
