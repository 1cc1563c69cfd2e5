"""The Laplacian ∇² of functions of coordinates: exact, or by finite differences."""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.errors import require
from rlreps.operators.base import Operator, Sample


def laplacian() -> Operator:
    """∇²u by forward-mode differentiation, exact to rounding: two tangents deep per coordinate.

    Returns:
        The operator, for inputs [b, c] of floating coordinates. In the box or plane on which it is
        to be symmetric, the functions have to vanish at the boundary and to be differentiable
        twice. A ReLU network is not: what happens at its kinks is missed, and energies come out
        below the lowest there is. Use a smooth ``activation``.
    """

    def apply(sample: Sample) -> Array:
        inputs = _coordinates(sample)

        def second_derivative(direction: Array) -> Array:
            tangent = jnp.broadcast_to(direction[None, :], inputs.shape)

            def slope(points: Array) -> Array:
                derivative: Array = jax.jvp(sample.function, (points,), (tangent,))[1]
                return derivative

            curvature: Array = jax.jvp(slope, (inputs,), (tangent,))[1]
            return curvature

        directions = jnp.eye(inputs.shape[1], dtype=inputs.dtype)
        # One after the other: a network has few coordinates, and activations are what fills memory.
        total: Array = lax.map(second_derivative, directions).sum(axis=0)
        return total

    return Operator(apply)


def finite_difference_laplacian(step: float) -> Operator:
    """∇²u ≈ Σ_i (u(x + hε_i) − 2u(x) + u(x − hε_i)) / h², with error O(h²) and rounding ε/h².

    Args:
        step: h, in the units of the inputs.

    Returns:
        The operator, for inputs [b, c] of floating coordinates.

    Raises:
        InputError: If ``step`` is not positive and finite.
    """
    require(0.0 < step < math.inf, "a finite step > 0", step)

    def apply(sample: Sample) -> Array:
        inputs = _coordinates(sample)

        def second_difference(direction: Array) -> Array:
            move = step * direction[None, :]
            around = sample.function(inputs + move) + sample.function(inputs - move)
            return (around - 2.0 * sample.features) / step**2

        directions = jnp.eye(inputs.shape[1], dtype=inputs.dtype)
        total: Array = lax.map(second_difference, directions).sum(axis=0)
        return total

    return Operator(apply)


def _coordinates(sample: Sample) -> Array:
    """The inputs, if they are coordinates that a function can be differentiated by."""
    inputs = sample.inputs
    fits = inputs.ndim == 2 and jnp.issubdtype(inputs.dtype, jnp.floating)
    require(fits, "floating coordinates of shape [b, c]", (inputs.dtype.name, inputs.shape))
    return inputs
