"""Whitening by a running covariance: an extension of ours, not part of any of the papers.

The representation loss depends on the features only through their span, so any invertible map of
them leaves it unchanged; estimators built on truncated series do not share that invariance and work
best when the covariance is near the identity.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from rlreps.subspace.linalg import inverse_cholesky_factor

_DECAY = 0.99
_RIDGE = 1e-4


class Whitening(NamedTuple):
    """A running average of the features' second moment.

    Attributes:
        covariance: Decayed average of φφᵀ, [d, d], not corrected for its zero start.
        weight: Total weight behind it, []; 0 before the first update.
    """

    covariance: Array
    weight: Array


def init_whitening(num_features: int) -> Whitening:
    """An empty running covariance for d features."""
    return Whitening(jnp.zeros((num_features, num_features)), jnp.zeros(()))


def update_whitening(state: Whitening, features: Array) -> Whitening:
    """Adds a batch of features [b, d]."""
    covariance = jnp.matmul(features.T, features, precision=lax.Precision.HIGHEST)
    covariance = covariance / features.shape[0]
    return Whitening(
        _DECAY * state.covariance + (1.0 - _DECAY) * covariance,
        _DECAY * state.weight + (1.0 - _DECAY),
    )


def whitener(state: Whitening) -> Array:
    """S [d, d] with S C Sᵀ ≈ I for the running covariance C; the identity before the first update.

    S is the inverse Cholesky factor of C plus 1e-4 of its mean eigenvalue, which keeps a direction
    the features have not filled yet from being blown up; directions weaker than that stay so.
    """
    dimension = state.covariance.shape[0]
    identity = jnp.eye(dimension, dtype=state.covariance.dtype)
    covariance = state.covariance / jnp.maximum(state.weight, 1e-12)
    scale = jnp.trace(covariance) / dimension
    started = scale > 0.0
    regular = jnp.where(started, covariance + _RIDGE * scale * identity, identity)
    return inverse_cholesky_factor(regular)
