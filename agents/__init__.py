"""Agents that use the representation losses as auxiliary tasks."""
