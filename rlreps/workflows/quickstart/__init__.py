"""The whole pipeline in one command."""
