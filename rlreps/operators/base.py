"""Symmetric linear operators, given by their action on features at sampled points.

An operator K acts on functions u of the inputs. Spectral inference needs only (Ku)(x) at the points
of a batch, exactly or as an unbiased estimate. Operators add and scale:
``-Laplacian() + Diagonal(potential)`` is a Hamiltonian.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from rlreps.batch import Clip
from rlreps.config import configurable, interval, leaf
from rlreps.errors import require
from rlreps.numerics import matmul

Weights = Callable[[Any], Array]
"""Inputs [b, ...] → density of the measure over the density of the draws, up to a factor, [b]."""


def points_of(inputs: Any) -> Any:
    """Return the states of inputs; the states of a ``Clip`` are joined."""
    return inputs.joined() if isinstance(inputs, Clip) else inputs


class SampledFunctions(NamedTuple):
    """Functions u = (u_1, …, u_d) and the points at which to apply an operator.

    Attributes:
        function: Inputs [m, ...] → u [m, d], at any inputs, row by row.
        inputs: The points, an array [b, ...] or a pytree of arrays.
        targets: Entries of a states x tasks matrix at the points, [b, t]; t may be 0.
        features: u at the points, [b, d].
        weights: Density of the measure over the density of the sampling, up to a common factor,
            [b].
        clip_length: l; points i, i + b/l, i + 2b/l, ... are a ``Clip``. 1 for single states.
    """

    function: Callable[[Any], Array]
    inputs: Any
    targets: Array
    features: Array
    weights: Array
    clip_length: int = 1


class Operator(abc.ABC):
    """A linear operator, symmetric in the measure that the points are drawn from.

    Subclasses are configurable dataclasses with a method ``apply``.
    """

    @property
    def needs_clips(self) -> bool:
        """True if the operator needs clips of consecutive states, not single states."""
        return False

    @abc.abstractmethod
    def apply(self, sample: SampledFunctions) -> Array:
        """Compute (Ku)(x) at a sample's points, [b, d]."""

    def __add__(self, other: "Operator") -> "Operator":
        return Sum(self, other)

    def __mul__(self, factor: float) -> "Operator":
        return Scaled(factor, self)

    def __rmul__(self, factor: float) -> "Operator":
        return self * factor

    def __truediv__(self, factor: float) -> "Operator":
        return self * (1.0 / factor)

    def __neg__(self) -> "Operator":
        return self * -1.0

    def __sub__(self, other: "Operator") -> "Operator":
        return self + -other


@configurable
@dataclasses.dataclass(frozen=True)
class Sum(Operator):
    """The sum of two operators."""

    left: Operator = leaf()
    right: Operator = leaf()

    @property
    def needs_clips(self) -> bool:
        return self.left.needs_clips or self.right.needs_clips

    def apply(self, sample: SampledFunctions) -> Array:
        return self.left.apply(sample) + self.right.apply(sample)


@configurable
@dataclasses.dataclass(frozen=True)
class Scaled(Operator):
    """A finite multiple of an operator."""

    factor: float = interval("(-inf, inf)")
    operator: Operator = leaf()

    @property
    def needs_clips(self) -> bool:
        return self.operator.needs_clips

    def apply(self, sample: SampledFunctions) -> Array:
        return self.factor * self.operator.apply(sample)


class Action(NamedTuple):
    """Features and their images at weighted points.

    Attributes:
        values: u, [b, d].
        images: Ku, [b, d].
        shares: Each point's weight over the number of points, [b, 1].
    """

    values: Array
    images: Array
    shares: Array

    @property
    def covariance(self) -> Array:
        """Σ = E[u uᵀ], [d, d]."""
        return matmul(self.values.T, self.values * self.shares)

    @property
    def operator_matrix(self) -> Array:
        """Π_jk = E[u_j Ku_k], [d, d], symmetric in expectation only."""
        return matmul(self.values.T, self.images * self.shares)


def act(
    operator: Operator,
    function: Callable[[Any], Array],
    inputs: Any,
    *,
    features: Array | None = None,
    targets: Array | None = None,
    weights: Weights | None = None,
) -> Action:
    """Apply an operator to the functions u at points.

    Args:
        operator: K.
        function: Inputs [m, ...] → u [m, d].
        inputs: The points, an array [b, ...] or a pytree of arrays; or a ``Clip``. The l states of
            every row of a ``Clip`` are points: b below is then l times the number of rows.
        features: u at the points, if known, [b, d].
        targets: Entries of a matrix at the points, [b, t], if the operator reads them.
        weights: Importance weights of inputs; None weighs all inputs equally.

    Raises:
        InputError: If weights or images have the wrong shape.
    """
    points = points_of(inputs)
    values = function(points) if features is None else features
    entries = jnp.zeros((len(values), 0), values.dtype) if targets is None else targets
    point_weights = jnp.ones(len(values), values.dtype) if weights is None else weights(points)
    expected = values.shape[:1]
    require(point_weights.shape == expected, f"weights {expected}", point_weights.shape)
    length = len(inputs.states) if isinstance(inputs, Clip) else 1
    images = operator.apply(
        SampledFunctions(function, points, entries, values, point_weights, length)
    )
    require(images.shape == values.shape, f"images of shape {values.shape}", images.shape)
    return Action(values, images, point_weights[:, None] / len(values))
