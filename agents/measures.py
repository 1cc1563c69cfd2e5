"""What a torso's features and hidden units are like while an agent learns, beside its return.

Pure functions of one agent's arrays that can be jitted; callers ``vmap`` over agents.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import xlogy

from rlreps.subspace import centre_columns, subspace_distance

DORMANT_THRESHOLD = 0.025
"""τ of Sokar et al. (2023), for agents that learn from replay."""


def effective_rank(features: Array) -> Array:
    """How many directions the features spread over (Roy & Vetterli 2007, Definition 1).

    exp of the entropy of the singular values, divided by their sum. They are those of the features
    with each column's mean over the states removed, which the paper does not do: a constant is no
    direction that tells states apart.

    Args:
        features: Φ, [n, d], floating point.

    Returns:
        Scalar between 1 and min(n - 1, d), of the features' dtype; 0 if all states have the same
        features, NaN if one of them is not finite.
    """
    values = jnp.linalg.svd(_centred(features), compute_uv=False)
    total = jnp.sum(values)
    shares = values / jnp.where(total == 0.0, 1.0, total)
    rank = jnp.exp(-jnp.sum(xlogy(shares, shares)))
    return jnp.where(total == 0.0, 0.0, rank)


def dormant_share(hidden: Sequence[Array], threshold: float = DORMANT_THRESHOLD) -> Array:
    """Share of the hidden units that are τ-dormant (Sokar et al. 2023, Definitions 3.1 and 3.2).

    A unit's score is its mean |activation| over the inputs, divided by the mean of that over the
    units of its layer; at a score of τ or less it is dormant. So are all units of a layer of zeros.
    A channel of a convolution is one unit, averaged over its places too.

    Args:
        hidden: Activations of each hidden layer, [b, ..., units].
        threshold: τ.

    Returns:
        Scalar (float32) in [0, 1] over the units of all layers together; 0 if there is no layer,
        NaN if an activation is not finite.
    """
    dormant, units = jnp.zeros((), jnp.float32), 0
    for layer in hidden:
        activity = jnp.mean(jnp.abs(layer), axis=tuple(range(layer.ndim - 1)))
        level = jnp.mean(activity)
        # Not divided by the level, which may be zero.
        asleep = jnp.sum(activity <= threshold * level, dtype=jnp.float32)
        dormant = dormant + jnp.where(jnp.isfinite(level), asleep, jnp.nan)
        units += activity.size
    return dormant / max(units, 1)


def coverage_distance(features: Array, basis: Array) -> Array:
    """Share of a ground truth's leading components that the features cannot express.

    The subspace distance of the features, each column's mean removed as from the ground truth's.
    The numbers of features and components need not agree: with d < k it is at least 1 - d/k, with
    d > k features beyond the components cost nothing.

    Args:
        features: Φ of all states, [n, d], float32 or float64.
        basis: F_k, [n, k], orthonormal columns.

    Returns:
        Scalar in [0, 1]; 1 if all states have the same features.

    Raises:
        InputError: If the arrays do not fit together.
    """
    distance: Array = subspace_distance(_centred(features), basis)
    return distance


def _centred(features: Array) -> Array:
    """Features [n, d] less each column's mean; zero where only rounding would be left."""
    centred = centre_columns(features)
    sizes, rests = (jnp.linalg.norm(part, axis=0) for part in (features, centred))
    # Stated as "not below", so that NaN stays NaN.
    constant = rests <= 4.0 * float(np.finfo(features.dtype).eps) * sizes
    return jnp.where(constant[None, :], 0.0, centred)
