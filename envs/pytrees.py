"""Frozen dataclasses of numbers as JAX pytrees, checked when built by hand and never inside JAX."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
from jax.tree_util import GetAttrKey

from rlreps.envs.errors import ArenaError

T = TypeVar("T")


def pytree_dataclass(*, static: tuple[str, ...] = ()) -> Callable[[type[T]], type[T]]:
    """Register a dataclass as a pytree whose children are its fields in order.

    JAX rebuilds nodes around tracers and placeholders. ``jax.tree_util.register_dataclass`` does so
    through the constructor, which would run ``__post_init__`` on them; here the fields are set
    directly, so ``__post_init__`` may check and normalise what a user wrote.

    Args:
        static: fields that belong to the structure and not to the leaves; they must be hashable.

    Returns:
        A class decorator, to be placed above ``@dataclass(frozen=True)``.
    """

    def register(cls: type[T]) -> type[T]:
        names = [f.name for f in dataclasses.fields(cls) if f.name not in static]  # type: ignore[arg-type]

        def flatten(node: T) -> tuple[list[tuple[GetAttrKey, Any]], tuple[Any, ...]]:
            children = [(GetAttrKey(name), getattr(node, name)) for name in names]
            return children, tuple(getattr(node, name) for name in static)

        def unflatten(fixed: tuple[Any, ...], children: Iterable[Any]) -> T:
            node = object.__new__(cls)
            values = [*zip(names, children, strict=True), *zip(static, fixed, strict=True)]
            for name, value in values:
                object.__setattr__(node, name, value)
            return node

        jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
        return cls

    return register


def as_number(value: Any, name: str) -> Any:
    """Return ``value`` as a finite Python float; arrays (and tracers) pass through unchecked.

    Python floats are weakly typed, so the same parameters serve float32 and float64 positions.

    Raises:
        ArenaError: ``value`` is not a finite real number.
    """
    if isinstance(value, jax.Array):
        return value
    # bool is an int to Python, but `radius = true` in a file is a mistake.
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not math.isfinite(value):
        raise ArenaError(f"expected {name} to be a finite number, got {value!r}")
    return float(value)


def check_range(value: Any, name: str, valid: Callable[[float], bool], expected: str) -> None:
    """Raise ``ArenaError`` unless ``valid(value)``; arrays (and tracers) pass through unchecked."""
    if not isinstance(value, jax.Array) and not valid(value):
        raise ArenaError(f"expected {name} {expected}, got {value!r}")


def as_point(value: Any, name: str) -> tuple[Any, Any]:
    """Return ``value`` as a pair of finite Python floats.

    Raises:
        ArenaError: ``value`` is not a sequence of two finite real numbers.
    """
    try:
        coordinates = tuple(value)
    except TypeError:
        coordinates = ()
    if len(coordinates) != 2:
        raise ArenaError(f"expected {name} to be two numbers [x, y], got {value!r}")
    return as_number(coordinates[0], name), as_number(coordinates[1], name)
