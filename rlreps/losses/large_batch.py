"""Least squares on the update's own batch (after the large-batch method of Le Lan et al. 2023)."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.config import configurable
from rlreps.errors import require_interval
from rlreps.losses.base import (
    Batch,
    DecayedMean,
    Encode,
    Metrics,
    Objective,
    Params,
    mean_product,
    require_features,
    two_weight_loss,
)
from rlreps.numerics import matmul
from rlreps.subspace.linalg import solve_positive_definite

_DECAY = 0.99


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class LargeBatch(Objective):
    """ŵ = argmin_w ‖Φw − ψ‖² over the batch, held constant; gradient ŵ(φᵀŵ − ψ) at every row.

    By Danskin's theorem this is the exact gradient of the batch's own projection loss, a biased
    estimate of the population's that the batch size makes good. The paper fits ŵ on all states and
    takes the gradient at 250 of them.

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

    Attributes:
        ridge: Tikhonov term relative to the mean eigenvalue of the batch covariance; keeps the
            solve well posed with fewer rows than features and with dependent ones (see
            ``least_squares_weights`` for its lower bound).
        precondition: r; 0.01 served well. None leaves the gradient as it is.
        leave_one_out: Whether residuals are those of weights fitted without the row.
    """

    ridge: float = 1e-6
    precondition: float | None = None
    leave_one_out: bool = False

    title: ClassVar[str] = "large batch"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval("ridge", self.ridge, "(0, inf)")
        require_interval("precondition", self.precondition, "(0, inf)")

    def init(self, key: Array) -> Any:
        """Return the running mean of ŵŵᵀ, or () without ``precondition``."""
        del key  # Nothing here is random.
        return () if self.precondition is None else DecayedMean.empty(self.num_features)

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute half the mean squared residual, without the row itself if ``leave_one_out``."""
        del key  # Deterministic given the batch.
        features = encode(params, batch.inputs)
        require_features(features, len(batch.inputs), self.num_features)
        held = lax.stop_gradient(features)  # Danskin: the weights are constants.
        weights = least_squares_weights(held, batch.targets, self.ridge)
        front = weights
        if self.precondition is not None:
            state = state.add(mean_product(weights.T, weights.T), _DECAY)
            front = matmul(_regular_inverse(state.mean(), self.precondition), weights)
        scale = 1.0 / (1.0 - leverages(held, self.ridge)) if self.leave_one_out else None
        value = two_weight_loss(features, batch.targets, weights, front, residual_scale=scale)
        return value, (state, {})


def _regular_inverse(moment: Array, ridge: float | Array) -> Array:
    """Compute (S + ridge·tr(S)/d·I)⁻¹ of the mean S of ŵŵᵀ, [d, d]."""
    dimension = len(moment)
    # Zero weights, as of a matrix of zeros, must not divide by zero.
    scale = ridge * jnp.trace(moment) / dimension + float(np.finfo(moment.dtype).tiny)
    # d + d columns are fewer to eliminate than the d + t of the weights themselves.
    identity = jnp.eye(dimension, dtype=moment.dtype)
    return solve_positive_definite(moment + scale * identity, identity)


def leverages(features: Array, ridge: float | Array) -> Array:
    """Compute the leverages h = φᵀ(ΦᵀΦ + …)⁻¹φ of each row, [b], regularised as the weights are.

    At most 1 − 1e-3: a row that alone decides a feature has no residual without itself.

    Args:
        features: Φ, [b, d].
        ridge: As of ``least_squares_weights``.
    """
    regular = _regular_covariance(features, ridge)
    inverse = solve_positive_definite(regular, jnp.eye(features.shape[1], dtype=features.dtype))
    return jnp.minimum(jnp.sum(features * matmul(features, inverse), axis=1), 1.0 - 1e-3)


def _regular_covariance(features: Array, ridge: float | Array) -> Array:
    """Compute ΦᵀΦ + α·tr(ΦᵀΦ)·I, [d, d], with the α of ``least_squares_weights``."""
    num_features = features.shape[1]
    covariance = matmul(features.T, features)
    precision = np.finfo(features.dtype)
    # Below its rounding error a covariance need not be positive definite, and the solve would give
    # anything at all: in float32 a fresh network's 100 features are enough for that.
    relative = jnp.maximum(ridge / num_features, 10.0 * float(precision.eps))
    scale = relative * jnp.trace(covariance) + float(precision.tiny)
    regular: Array = covariance + scale * jnp.eye(num_features, dtype=features.dtype)
    return regular


def least_squares_weights(features: Array, targets: Array, ridge: float | Array) -> Array:
    """Compute argmin_W ‖ΦW − Ψ‖² + α·tr(ΦᵀΦ)·‖W‖², α = ridge / d but at least ten roundings.

    Args:
        features: Φ, [b, d].
        targets: Ψ, [b, t].
        ridge: Tikhonov term relative to the mean eigenvalue of ΦᵀΦ.

    Returns:
        Weights [d, t].
    """
    regular = _regular_covariance(features, ridge)
    return solve_positive_definite(regular, matmul(features.T, targets))
