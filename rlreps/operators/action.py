"""An operator's action on features at the points of a batch, and its two matrices."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from rlreps.errors import require
from rlreps.operators.base import Operator, Sample

Weights = Callable[[Array], Array]
"""Inputs [b, ...] → density of the measure over that of the sampling, up to a factor, [b]."""


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
        return _product(self.values, self.values * self.shares)

    @property
    def operator_matrix(self) -> Array:
        """Π_jk = E[u_j Ku_k], [d, d], symmetric in expectation only."""
        return _product(self.values, self.images * self.shares)


def act(
    operator: Operator,
    function: Callable[[Array], Array],
    inputs: Array,
    *,
    features: Array | None = None,
    targets: Array | None = None,
    weights: Weights | None = None,
) -> Action:
    """Applies an operator to the functions u at points.

    Args:
        operator: K.
        function: Inputs [m, ...] → u [m, d].
        inputs: The points, [b, ...].
        features: u at the points, if known, [b, d].
        targets: Entries of a matrix that came with them, [b, t], if the operator reads them.
        weights: Importance weights of inputs; None weighs all alike.

    Returns:
        The action.

    Raises:
        InputError: If weights or images come in a shape that they should not have.
    """
    values = function(inputs) if features is None else features
    entries = jnp.zeros((len(values), 0), values.dtype) if targets is None else targets
    point_weights = jnp.ones(len(values), values.dtype) if weights is None else weights(inputs)
    expected = values.shape[:1]
    require(point_weights.shape == expected, f"weights {expected}", point_weights.shape)
    images = operator.apply(Sample(function, inputs, entries, values, point_weights))
    require(images.shape == values.shape, f"images of shape {values.shape}", images.shape)
    return Action(values, images, point_weights[:, None] / len(values))


def _product(left: Array, right: Array) -> Array:
    """Product leftᵀ right, [d, d]."""
    return jnp.matmul(left.T, right, precision=lax.Precision.HIGHEST)
