"""Errors that a user's input can cause, and the checks that raise them.

The command line prints an error's message on one line.
"""

from collections.abc import Sequence


class InputError(ValueError):
    """Input that cannot be used: the message says what was expected and what came."""


class TrainingDivergedError(RuntimeError):
    """A loss or a parameter became NaN or infinite; the last good checkpoint is untouched."""


class ProcessDiedError(RuntimeError):
    """A process that the others of its run wait for has died; says which and how to go on."""


def require(condition: bool, expected: str, got: object) -> None:
    """Raises an ``InputError`` with what was expected and what came, unless ``condition`` holds."""
    if not condition:
        raise InputError(f"expected {expected}, got {got!r}")


def require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raises an ``InputError`` that lists the valid names, unless ``value`` is one of them."""
    require(value in choices, f"{name} to be one of {', '.join(sorted(choices))}", value)


def require_positive(name: str, value: int) -> None:
    """Raises an ``InputError`` unless ``value`` is at least 1."""
    require(value >= 1, f"{name} >= 1", value)
