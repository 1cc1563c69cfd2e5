"""Least squares on the update's own batch (the large-batch method of Le Lan et al. 2023)."""

import jax.numpy as jnp
from jax import Array, lax

from rlreps.configs import require
from rlreps.losses.base import Batch, Encode, Metrics, Objective, Params, two_weight_loss
from rlreps.subspace.positive_definite import solve_positive_definite


def large_batch(*, ridge: float = 1e-6) -> Objective:
    """ŵ = argmin_w ‖Φw − ψ‖² over the batch, held constant; gradient ŵ(φᵀŵ − ψ) at every row.

    By Danskin's theorem this is the exact gradient of the batch's own projection loss, a biased
    estimate of the population's that the batch size makes good.

    Args:
        ridge: Tikhonov term relative to the mean eigenvalue of the batch covariance; keeps the
            solve well posed with fewer rows than features and in float32.

    Returns:
        The objective; its state is empty.

    Raises:
        InputError: If ``ridge`` is not positive.
    """
    require(ridge > 0.0, "ridge > 0", ridge)

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
    """argmin_W ‖ΦW − Ψ‖² + ridge·tr(ΦᵀΦ)/d·‖W‖².

    Args:
        features: Φ, [b, d].
        targets: Ψ, [b, t].
        ridge: Relative Tikhonov term.

    Returns:
        Weights [d, t].
    """
    dimension = features.shape[1]
    covariance = features.T @ features
    tiny = float(jnp.finfo(features.dtype).tiny)
    scale = ridge * jnp.trace(covariance) / dimension + tiny
    regular = covariance + scale * jnp.eye(dimension, dtype=features.dtype)
    return solve_positive_definite(regular, features.T @ targets)
