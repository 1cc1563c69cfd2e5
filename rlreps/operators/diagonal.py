"""Multiplication by a function of the point: a potential."""

from collections.abc import Callable

from jax import Array

from rlreps.errors import require
from rlreps.operators.base import Operator, Sample


def diagonal(potential: Callable[[Array], Array]) -> Operator:
    """(Ku)(x) = V(x) u(x).

    Args:
        potential: Inputs [b, ...] → V, [b].

    Returns:
        The operator. It raises an ``InputError`` if V has another shape.
    """

    def apply(sample: Sample) -> Array:
        values = potential(sample.inputs)
        expected = sample.features.shape[:1]
        require(values.shape == expected, f"a potential of shape {expected}", values.shape)
        return values[:, None] * sample.features

    return Operator(apply)
