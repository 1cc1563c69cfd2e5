"""Errors that a user's input can cause in the environments."""


class ArenaError(ValueError):
    """An arena that cannot be used: the message says what was expected and what came."""
