"""Objectives that solve for their weights: over all states, or on the update's own batch."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.config import configurable
from rlreps.errors import InputError, require_interval
from rlreps.losses.base import (
    Batch,
    DecayedMean,
    Encode,
    Metrics,
    Objective,
    Params,
    empirical_weights,
    mean_product,
    regularised,
    two_weight_loss,
)
from rlreps.numerics import matmul
from rlreps.subspace.linalg import solve_positive_definite

_DECAY = 0.99


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Oracle(Objective):
    """W*_Φ = (ΦᵀΦ)†Φᵀψ over every state (Le Lan et al. 2023, Lemma 1).

    The gradient is W*(φᵀW* − ψ) at the batch's rows: the floor of every method that estimates W*.
    Its cost per update grows with the number of states, and a batch must bring its ``population``.
    """

    title: ClassVar[str] = "oracle (exact weights)"
    live: ClassVar[bool] = False
    needs_population: ClassVar[bool] = True

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute half the mean squared residual; an ``InputError`` without a population."""
        if batch.population is None:
            raise InputError("expected a batch with its population, got population=None")
        # W* is a minimiser: by Danskin's theorem it is differentiated as a constant.
        features = encode(lax.stop_gradient(params), batch.population.inputs)
        right_hand_side = mean_product(features, batch.population.targets)
        weights = empirical_weights(features, right_hand_side)
        value = two_weight_loss(encode(params, batch.inputs), batch.targets, weights, weights)
        return value, (state, {})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class LargeBatch(Objective):
    """ŵ = argmin_w ‖Φw − ψ‖² over the batch, held constant; gradient ŵ(φᵀŵ − ψ) at every row.

    By Danskin's theorem this is the exact gradient of the batch's own projection loss, a biased
    estimate of the population's that the batch size makes good. In the large-batch method of Le Lan
    et al. 2023, ŵ is fitted on all states and the gradient taken at 250 of them.

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
        return () if self.precondition is None else DecayedMean.empty(self.num_features)

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute half the mean squared residual, without the row itself if ``leave_one_out``."""
        features = self.features(params, encode, batch.inputs)
        held = lax.stop_gradient(features)  # Danskin: the weights are constants.
        weights = least_squares_weights(held, batch.targets, self.ridge)
        front = weights
        if self.precondition is not None:
            state = state.add(mean_product(weights.T, weights.T), _DECAY)
            regular = regularised(state.mean(), self.precondition)
            # d + d columns are fewer to eliminate than the d + t of the weights themselves.
            inverse = solve_positive_definite(regular, jnp.eye(len(weights), dtype=weights.dtype))
            front = matmul(inverse, weights)
        scale = 1.0 / (1.0 - leverages(held, self.ridge)) if self.leave_one_out else None
        value = two_weight_loss(features, batch.targets, weights, front, residual_scale=scale)
        return value, (state, {})


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
    num_features, precision = features.shape[1], np.finfo(features.dtype)
    covariance = matmul(features.T, features)
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
