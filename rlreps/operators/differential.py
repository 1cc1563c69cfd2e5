"""Operators that act point by point: the Laplacian ∇² in the coordinates, and a potential."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.config import configurable, interval
from rlreps.errors import require
from rlreps.operators.base import Operator, SampledFunctions


@configurable
@dataclasses.dataclass(frozen=True)
class Laplacian(Operator):
    """∇²u by forward-mode differentiation, twice for each coordinate; exact to rounding.

    Inputs are floating coordinates [b, c]. For the operator to be symmetric on a box or a plane,
    the functions must vanish at the boundary and be twice differentiable. A ReLU network is not
    twice differentiable: the operator misses its kinks, and energies come out below the lowest
    energy. Use a smooth ``activation``.
    """

    def apply(self, sample: SampledFunctions) -> Array:
        def second_derivative(inputs: Array, direction: Array) -> Array:
            tangent = jnp.broadcast_to(direction[None, :], inputs.shape)

            def slope(points: Array) -> Array:
                derivative: Array = jax.jvp(sample.function, (points,), (tangent,))[1]
                return derivative

            curvature: Array = jax.jvp(slope, (inputs,), (tangent,))[1]
            return curvature

        return _sum_over_coordinates(sample, second_derivative)


@configurable
@dataclasses.dataclass(frozen=True)
class FiniteDifferenceLaplacian(Operator):
    """∇²u ≈ Σ_i (u(x + he_i) − 2u(x) + u(x − he_i)) / h², with error O(h²) and rounding ε/h².

    Inputs are floating coordinates [b, c].

    Attributes:
        step: h > 0, in the units of the inputs; ε is the rounding error of u.
    """

    step: float = interval("(0, inf)")

    def apply(self, sample: SampledFunctions) -> Array:
        def second_difference(inputs: Array, direction: Array) -> Array:
            move = self.step * direction[None, :]
            around = sample.function(inputs + move) + sample.function(inputs - move)
            return (around - 2.0 * sample.features) / self.step**2

        return _sum_over_coordinates(sample, second_difference)


@configurable
@dataclasses.dataclass(frozen=True)
class Diagonal(Operator):
    """Multiplication by a potential, (Ku)(x) = V(x) u(x).

    Attributes:
        potential: Inputs [b, ...] → V, [b].
    """

    potential: Callable[[Array], Array]

    def apply(self, sample: SampledFunctions) -> Array:
        values = self.potential(sample.inputs)
        expected = sample.features.shape[:1]
        require(values.shape == expected, f"a potential of shape {expected}", values.shape)
        return values[:, None] * sample.features


def _sum_over_coordinates(
    sample: SampledFunctions, derivative: Callable[[Array, Array], Array]
) -> Array:
    """Sum (points [b, c], direction [c]) → derivatives [b, d] over the axes of coordinates."""
    inputs = sample.inputs
    fits = inputs.ndim == 2 and jnp.issubdtype(inputs.dtype, jnp.floating)
    require(fits, "floating coordinates of shape [b, c]", (inputs.dtype.name, inputs.shape))
    directions = jnp.eye(inputs.shape[1], dtype=inputs.dtype)
    # Take one coordinate after another: there are few, and the network's activations fill the
    # memory.
    total: Array = lax.map(lambda direction: derivative(inputs, direction), directions).sum(axis=0)
    return total
