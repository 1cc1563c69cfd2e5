"""Checks of values at the boundary, each with what was expected and what came."""

from collections.abc import Sequence

from rlreps.errors import InputError


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
