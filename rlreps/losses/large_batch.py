"""Least squares on the update's own batch (the large-batch method of Le Lan et al. 2023)."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.errors import require
from rlreps.losses.base import Batch, Encode, Metrics, Objective, Params, two_weight_loss
from rlreps.losses.whitening import Whitening, init_whitening, update_whitening
from rlreps.subspace.linalg import solve_positive_definite

State = tuple[()] | Whitening


def large_batch(
    num_features: int | None = None,
    *,
    ridge: float = 1e-6,
    precondition: float | None = None,
    leave_one_out: bool = False,
) -> Objective:
    """ŵ = argmin_w ‖Φw − ψ‖² over the batch, held constant; gradient ŵ(φᵀŵ − ψ) at every row.

    By Danskin's theorem this is the exact gradient of the batch's own projection loss, a biased
    estimate of the population's that the batch size makes good.

    Two extensions of ours, neither part of the paper:

    * ``precondition``: the gradient becomes (S + r·tr(S)/d·I)⁻¹ ŵ(φᵀŵ − ψ), where S is the running
      mean of ŵŵᵀ. With r → 0 and S = ŵŵᵀ over every task this is φ − (ŵŵᵀ)⁻¹ŵψ, the step to the
      features that are best for these weights: alternating least squares in function space. The
      plain gradient along a singular direction scales with σ², so that small ones are learnt last.
      An invertible map in front of the gradient at the features moves none of its zeros: in
      function space, with tabular features, and for the weights of a last linear layer. In the
      layers below, rows whose pulls cancelled need not cancel once mapped: a network's own
      stationary points can be others than without it.
    * ``leave_one_out``: each row's residual becomes that of the weights fitted without the row,
      (φᵀŵ − ψ)/(1 − h) with its leverage h = φᵀ(ΦᵀΦ)⁻¹φ (Allen 1974, PRESS). A row's own
      pull shrinks its residual by 1 − h, about d / b of it on average. The ŵ in front stays.

    Args:
        num_features: d; needed by ``precondition`` alone.
        ridge: Tikhonov term relative to the mean eigenvalue of the batch covariance; keeps the
            solve well posed with fewer rows than features and with dependent ones (see
            ``least_squares_weights`` for its lower bound).
        precondition: r; 0.01 served well. None leaves the gradient as it is.
        leave_one_out: Whether residuals are those of weights fitted without the row.

    Returns:
        The objective; its state is empty, or the running ŵŵᵀ.

    Raises:
        InputError: If ``ridge`` or ``precondition`` is not positive and finite, or there is a
            ``precondition`` without ``num_features``.
    """
    require(0.0 < ridge < math.inf, "a finite ridge > 0", ridge)
    if precondition is not None:
        require(0.0 < precondition < math.inf, "a finite precondition > 0", precondition)
        require(num_features is not None, "num_features for a precondition", num_features)

    def init(key: Array) -> State:
        del key  # Nothing here is random.
        return () if num_features is None or precondition is None else init_whitening(num_features)

    def loss(
        params: Params, encode: Encode, batch: Batch, state: State, key: Array
    ) -> tuple[Array, tuple[State, Metrics]]:
        del key  # Deterministic given the batch.
        features = encode(params, batch.inputs)
        held = lax.stop_gradient(features)  # Danskin: the weights are constants.
        weights = least_squares_weights(held, batch.targets, ridge)
        front = weights
        if precondition is not None and isinstance(state, Whitening):
            state = update_whitening(state, weights.T)
            front = _preconditioned(state, weights, precondition)
        scale = 1.0 / (1.0 - leverages(held, ridge)) if leave_one_out else None
        value = two_weight_loss(features, batch.targets, weights, front, residual_scale=scale)
        return value, (state, {})

    return Objective(init, loss)


def _preconditioned(moment: Whitening, weights: Array, ridge: float) -> Array:
    """(S + ridge·tr(S)/d·I)⁻¹ŵ for the running mean S of ŵŵᵀ and weights [d, t]."""
    dimension = weights.shape[0]
    mean = moment.covariance / moment.weight
    # Zero weights, as of a matrix of zeros, must not divide by zero.
    scale = ridge * jnp.trace(mean) / dimension + float(np.finfo(mean.dtype).tiny)
    # d + d columns are fewer to eliminate than the d + t of the weights themselves.
    identity = jnp.eye(dimension, dtype=mean.dtype)
    inverse = solve_positive_definite(mean + scale * identity, identity)
    return jnp.matmul(inverse, weights, precision=lax.Precision.HIGHEST)


def leverages(features: Array, ridge: float) -> Array:
    """Leverages h = φᵀ(ΦᵀΦ + …)⁻¹φ of each row, [b], with the regularisation of the weights.

    At most 1 − 1e-3: a row that alone decides a feature has no residual without itself.

    Args:
        features: Φ, [b, d].
        ridge: As of ``least_squares_weights``.
    """
    regular = _regular_covariance(features, ridge)
    inverse = solve_positive_definite(regular, jnp.eye(features.shape[1], dtype=features.dtype))
    dual = jnp.matmul(features, inverse, precision=lax.Precision.HIGHEST)
    return jnp.minimum(jnp.sum(features * dual, axis=1), 1.0 - 1e-3)


def _regular_covariance(features: Array, ridge: float) -> Array:
    """ΦᵀΦ + α·tr(ΦᵀΦ)·I, [d, d], with the α of ``least_squares_weights``."""
    num_features = features.shape[1]
    covariance = jnp.matmul(features.T, features, precision=lax.Precision.HIGHEST)
    precision = np.finfo(features.dtype)
    # Below its rounding error a covariance need not be positive definite, and the solve would give
    # anything at all: in float32 a fresh network's 100 features are enough for that.
    relative = max(ridge / num_features, 10.0 * float(precision.eps))
    scale = relative * jnp.trace(covariance) + float(precision.tiny)
    regular: Array = covariance + scale * jnp.eye(num_features, dtype=features.dtype)
    return regular


def least_squares_weights(features: Array, targets: Array, ridge: float) -> Array:
    """argmin_W ‖ΦW − Ψ‖² + α·tr(ΦᵀΦ)·‖W‖², where α = ridge / d but at least ten roundings.

    Args:
        features: Φ, [b, d].
        targets: Ψ, [b, t].
        ridge: Tikhonov term relative to the mean eigenvalue of ΦᵀΦ.

    Returns:
        Weights [d, t].
    """
    regular = _regular_covariance(features, ridge)
    right_hand_side = jnp.matmul(features.T, targets, precision=lax.Precision.HIGHEST)
    return solve_positive_definite(regular, right_hand_side)
