"""Least squares on the update's own batch (the large-batch method of Le Lan et al. 2023)."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.losses.base import Batch, Encode, Metrics, Objective, Params, two_weight_loss
from rlreps.subspace.positive_definite import solve_positive_definite
from rlreps.validation import require


def large_batch(*, ridge: float = 1e-6) -> Objective:
    """ŵ = argmin_w ‖Φw − ψ‖² over the batch, held constant; gradient ŵ(φᵀŵ − ψ) at every row.

    By Danskin's theorem this is the exact gradient of the batch's own projection loss, a biased
    estimate of the population's that the batch size makes good.

    Args:
        ridge: Tikhonov term relative to the mean eigenvalue of the batch covariance; keeps the
            solve well posed with fewer rows than features and with dependent ones (see
            ``least_squares_weights`` for its lower bound).

    Returns:
        The objective; its state is empty.

    Raises:
        InputError: If ``ridge`` is not positive and finite.
    """
    require(0.0 < ridge < math.inf, "a finite ridge > 0", ridge)

    def init(key: Array) -> tuple[()]:
        del key  # Stateless.
        return ()

    def loss(
        params: Params, encode: Encode, batch: Batch, state: tuple[()], key: Array
    ) -> tuple[Array, tuple[tuple[()], Metrics]]:
        del key  # Deterministic given the batch.
        features = encode(params, batch.inputs)
        weights = least_squares_weights(lax.stop_gradient(features), batch.targets, ridge)
        value = two_weight_loss(features, batch.targets, weights, weights)
        return value, (state, {})

    return Objective(init, loss)


def least_squares_weights(features: Array, targets: Array, ridge: float) -> Array:
    """argmin_W ‖ΦW − Ψ‖² + α·tr(ΦᵀΦ)·‖W‖², where α = ridge / d but at least ten roundings.

    Args:
        features: Φ, [b, d].
        targets: Ψ, [b, t].
        ridge: Tikhonov term relative to the mean eigenvalue of ΦᵀΦ.

    Returns:
        Weights [d, t].
    """
    num_features = features.shape[1]
    covariance = jnp.matmul(features.T, features, precision=lax.Precision.HIGHEST)
    precision = np.finfo(features.dtype)
    # Below its rounding error a covariance need not be positive definite, and the solve would give
    # anything at all: in float32 a fresh network's 100 features are enough for that.
    relative = max(ridge / num_features, 10.0 * float(precision.eps))
    scale = relative * jnp.trace(covariance) + float(precision.tiny)
    regular = covariance + scale * jnp.eye(num_features, dtype=features.dtype)
    right_hand_side = jnp.matmul(features.T, targets, precision=lax.Precision.HIGHEST)
    return solve_positive_definite(regular, right_hand_side)
