"""Objectives from independent weight estimates (Le Lan et al. 2023, Sec. 4).

The gradient of L(Φ) is a product of two functions of W*. With independent unbiased estimates ŵ, ŵ'
of the same column, ŵ'(φᵀŵ − ψ) is an unbiased estimate of it; with one estimate used twice
(``Naive``), the estimate's own variance biases it.
"""

import dataclasses
from typing import ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.config import configurable
from rlreps.errors import require, require_choice, require_interval, require_positive
from rlreps.losses.base import (
    Batch,
    DecayedMean,
    Encode,
    Metrics,
    Objective,
    Params,
    empirical_weights,
    mean_product,
    two_weight_loss,
)
from rlreps.numerics import matmul
from rlreps.subspace.inverse_covariance import lissa, lissa_kappa
from rlreps.subspace.linalg import inverse_cholesky_factor

FeatureNorm = Literal["batch", "running"]

_DECAY = 0.99
_WHITENING_RIDGE = 1e-4


class Roles(NamedTuple):
    """Shares of a batch's rows.

    Attributes:
        gradient: N, rows at which the gradient is taken.
        weight: M, rows behind each right-hand side mean φψ.
        covariance: J, rows behind each inverse covariance estimate.
    """

    gradient: int
    weight: int
    covariance: int


class TwoWeightState(NamedTuple):
    """Running averages behind the estimates.

    Attributes:
        squared_norm: Running average of each batch's largest ‖φ‖², whitened if the objective
            whitens, []; 0 before the first (whitened) batch.
        covariance: Running mean of φφᵀ for the whitening; left empty without it.
    """

    squared_norm: Array
    covariance: DecayedMean


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledWeights(Objective):
    """The family: ŵ = Ĉ mean φψ from rows of its own, once for each weight estimate.

    An update needs N + (M + J) rows for each estimate. Given none of the three, the batch is shared
    out evenly; what does not divide goes to the gradient.

    Attributes:
        gradient_rows: N, rows at which the gradient is taken.
        weight_rows: M, rows behind each weight estimate's right-hand side.
        covariance_rows: J, rows behind each inverse covariance estimate.
        permutations: Random assignments of rows to roles in one update, averaged; each is as
            unbiased as the given order. Above 1, any row may be a gradient row, so the backward
            pass covers them all.
        whitening: Solve for the weights in features whitened by a running covariance of earlier
            batches. An extension of ours: L is invariant under invertible maps of the features,
            while the truncated series converges much faster for a covariance near the identity.
        num_estimates: Weight estimates of an update.
    """

    gradient_rows: int | None = None
    weight_rows: int | None = None
    covariance_rows: int | None = None
    permutations: int = 1
    whitening: bool = False

    num_estimates: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (self.gradient_rows, self.weight_rows, self.covariance_rows)
        require(
            len({rows is None for rows in given}) == 1,
            "gradient_rows, weight_rows and covariance_rows all given or all None",
            given,
        )
        for rows in given:
            if rows is not None:
                require_positive("gradient_rows, weight_rows and covariance_rows", rows)
        require_positive("permutations", self.permutations)

    def roles(self, rows: int) -> Roles:
        """Share a batch's rows out.

        Raises:
            InputError: If there are fewer rows than roles, or others than the given ones.
        """
        num_roles = 1 + 2 * self.num_estimates
        if self.gradient_rows is None or self.weight_rows is None or self.covariance_rows is None:
            share = rows // num_roles
            require(share >= 1, f"rows >= {num_roles}, one for each role of {self.name}", rows)
            return Roles(rows - (num_roles - 1) * share, share, share)
        roles = Roles(self.gradient_rows, self.weight_rows, self.covariance_rows)
        needed = roles.gradient + self.num_estimates * (roles.weight + roles.covariance)
        require(rows == needed, f"rows = {needed}, the sum over {self.name}'s roles", rows)
        return roles

    def require_rows(self, rows: int) -> None:
        self.roles(rows)

    def solve(self, features: Array, right_hand_side: Array, squared_norm: Array) -> Array:
        """Estimate weights [d, t], here by (Φ̂ᵀΦ̂ / J)†, which is biased for any finite J.

        Args:
            features: Φ̂, [J, d].
            right_hand_side: mean φψ, [d, t].
            squared_norm: Running average of the batches' largest ‖φ‖², [].
        """
        return empirical_weights(features, right_hand_side)

    def init(self, key: Array) -> TwoWeightState:
        return TwoWeightState(jnp.zeros(()), DecayedMean.empty(self.num_features))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: TwoWeightState, key: Array
    ) -> tuple[Array, tuple[TwoWeightState, Metrics]]:
        """Compute half the mean squared residual; its gradient is ŵ'(φᵀŵ − ψ) at N rows."""
        rows = len(batch.inputs)
        roles = self.roles(rows)

        def encode_roles(params: Params, inputs: Array) -> Array:
            # The others only estimate weights, which carry no gradient: skip their backward pass.
            others = encode(lax.stop_gradient(params), inputs[roles.gradient :])
            return jnp.concatenate([encode(params, inputs[: roles.gradient]), others])

        if self.permutations > 1:
            keys = jax.random.split(key, self.permutations)
            orders = jax.vmap(lambda each: jax.random.permutation(each, rows))(keys)
            raw = self.features(params, encode, batch.inputs)
        else:
            orders = jnp.arange(rows)[None, :]
            raw = self.features(params, encode_roles, batch.inputs)
        # The whitener comes from earlier batches, so given the past it is a constant and the
        # estimate in whitened features is as unbiased as without it.
        features = matmul(raw, whitener(state.covariance).T) if self.whitening else raw
        # Weight estimates carry no gradient, by Danskin's theorem.
        fixed = lax.stop_gradient(features)

        def one_assignment(order: Array) -> Array:
            weights = self._weight_estimates(fixed[order], batch.targets[order], roles, state)
            chosen = order[: roles.gradient]
            return two_weight_loss(features[chosen], batch.targets[chosen], weights[0], weights[-1])

        value = jnp.mean(jax.vmap(one_assignment)(orders))
        # A running average is data of later updates, not part of this one's gradient.
        new_state = self._update(state, lax.stop_gradient(raw), fixed)
        return value, (new_state, {"running_squared_norm": new_state.squared_norm})

    def _weight_estimates(
        self, features: Array, targets: Array, roles: Roles, state: TwoWeightState
    ) -> list[Array]:
        """Estimate weights [d, t], each from rows of its own after the gradient's."""
        weights = []
        for index in range(self.num_estimates):
            first = roles.gradient + index * (roles.weight + roles.covariance)
            middle = first + roles.weight
            last = middle + roles.covariance
            right_hand_side = mean_product(features[first:middle], targets[first:middle])
            weights.append(self.solve(features[middle:last], right_hand_side, state.squared_norm))
        return weights

    def _update(self, state: TwoWeightState, raw: Array, features: Array) -> TwoWeightState:
        largest = _largest_squared_norm(features)
        averaged = _DECAY * state.squared_norm + (1.0 - _DECAY) * largest
        running = jnp.where(state.squared_norm > 0.0, averaged, largest)
        if not self.whitening:
            return TwoWeightState(running, state.covariance)
        # The first batch met no whitener yet: its norms are in other units than all that follow.
        running = jnp.where(state.covariance.weight > 0.0, running, jnp.zeros_like(running))
        return TwoWeightState(running, state.covariance.add(mean_product(raw, raw), _DECAY))


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class DanskinLissa(SampledWeights):
    """Danskin-LISSA: two independent ŵ = Ĉ mean φψ with Ĉ the LISSA estimate.

    Le Lan et al. 2023, Algorithm 1. For a step size κ that does not depend on the rows behind Ĉ,
    E[Ĉ] is the truncated Neumann series κ Σ_{j≤J} (I − κC)ʲ; with κ = κ0 / max‖φ‖² over those
    same rows (``batch``) it is no such series.

    Attributes:
        kappa0: κ0 in (0, 2).
        feature_norm: ``batch`` takes max‖φ‖² over each estimate's own rows (the paper's text);
            ``running`` a running average of the batch maximum, or the rows' own where larger.
    """

    kappa0: float = 1.9
    feature_norm: FeatureNorm = "batch"

    title: ClassVar[str] = "Danskin-LISSA"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval("kappa0", self.kappa0, "(0, 2)")
        require_choice("feature_norm", self.feature_norm, get_args(FeatureNorm))

    def solve(self, features: Array, right_hand_side: Array, squared_norm: Array) -> Array:
        norm = _largest_squared_norm(features)
        if self.feature_norm == "running":
            # Never below the rows' own maximum: beyond κ‖φ‖² = 2 the series diverges.
            norm = jnp.maximum(norm, squared_norm)
        kappa = lissa_kappa(features, self.kappa0, norm)
        weights: Array = lissa(features, right_hand_side, kappa)
        return weights


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class DanskinEmpirical(SampledWeights):
    """As ``DanskinLissa`` with Ĉ = (Φ̂ᵀΦ̂ / J)†, which is biased for any finite J.

    The paper inverts Φ̂ᵀΦ̂ / J; Eq. 13 and the inverse fail where it is singular, and the
    pseudo-inverse does not.
    """

    title: ClassVar[str] = "Danskin-empirical"


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Naive(SampledWeights):
    """One Ĉ = (Φ̂ᵀΦ̂ / J)† and one ŵ for both factors: biased by the variance of ŵ."""

    title: ClassVar[str] = "naive"
    num_estimates: ClassVar[int] = 1


def whitener(covariance: DecayedMean) -> Array:
    """Compute S [d, d] with S C Sᵀ ≈ I for the running covariance C; before the first update, I.

    S is the inverse Cholesky factor of C plus 1e-4 of its mean eigenvalue, which keeps a direction
    the features have not filled yet from being blown up; directions weaker than that stay so.
    """
    mean = covariance.mean()
    dimension = mean.shape[0]
    identity = jnp.eye(dimension, dtype=mean.dtype)
    scale = jnp.trace(mean) / dimension
    regular = jnp.where(scale > 0.0, mean + _WHITENING_RIDGE * scale * identity, identity)
    return inverse_cholesky_factor(regular)


def _largest_squared_norm(features: Array) -> Array:
    return jnp.max(jnp.sum(jnp.square(features), axis=-1))
