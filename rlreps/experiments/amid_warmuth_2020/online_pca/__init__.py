"""Streaming rules against exact components: excess loss over rows and over time."""
