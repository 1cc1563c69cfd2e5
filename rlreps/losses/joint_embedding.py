"""Joint-embedding objectives: features of a state agree with or predict another state's features.

Symbols as in ``rlreps.losses.pairs``. None of these losses contrasts a pair with independent
states. Standardising (Barlow Twins), penalties (VICReg) or the dynamics alone (self-prediction)
prevent collapse. With tabular functions and a reversible chain, a stationary point of full rank
spans an invariant subspace of the walk; Barlow Twins and VICReg leave an additive constant free.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval
from rlreps.losses.base import Encode, Metrics, Params
from rlreps.losses.least_squares import least_squares_weights
from rlreps.losses.pairs import PairObjective, TowardsAverages, scales
from rlreps.losses.two_weights import two_weight_loss
from rlreps.numerics import DecayedMean, matmul

_VARIANCE = 1e-4
"""Added to variances under VICReg's square roots, as in its code."""


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class BarlowTwins(PairObjective):
    """Σ_j (1 − C_jj)² + redundancy Σ_{i≠j} C_ij², C the correlations of φ(s) with φ(s⁺).

    Zbontar et al. 2021, Eq. 1 and 2. Means and standard deviations are the batch's own, at each end
    separately, which biases the loss by O(1/b).

    **Optimum.** For a reversible chain, and up to a constant and a scale in each feature, the span
    of the slowest functions ψ₁, ψ₂, … after the constant, unless features coincide. For d = 2 and
    positive λ₁ and λ₂, let r be the redundancy's weight, Δ = λ₁ − λ₂ and S = λ₁ + λ₂. At small r,
    the features are cos θ ψ₁ ± sin θ ψ₂, where

        sin²θ = (r λ₁ S − (1 − λ₁) Δ) / (Δ² + r S²),

    or both are ψ₁ if the numerator is not positive. If it is positive, their loss is
    2r (S − 2 λ₁ λ₂)² / (Δ² + r S²). It rises with r, and the loss (1 − λ₁)² + (1 − λ₂)² of ψ₁ and
    ψ₂ themselves does not. So ψ₁ and ψ₂ are the optimum at large r if λ₁ and λ₂ differ enough.
    Where the two losses are nearly equal, a mixture by two different angles has a loss up to 4 %
    smaller. Not ordered.

    Metrics: ``correlations``, C_jj.

    Attributes:
        redundancy: Weight of the correlations of different features.
    """

    redundancy: float = interval("[0, inf)", 5e-3)

    title: ClassVar[str] = "Barlow Twins"

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        del key  # Deterministic given the batch.
        first, second = (_centred(each) for each in self.ends(params, encode, batch))
        correlations = matmul(_standardised(first).T, _standardised(second)) / len(first)
        own = jnp.diagonal(correlations)
        value = jnp.sum(jnp.square(1.0 - own)) + self.redundancy * _off_diagonal(correlations)
        return value, (state, {"correlations": own})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class VICReg(PairObjective):
    """Invariance, variance and covariance: features that agree, vary, and are not correlated.

    Bardes, Ponce & LeCun 2022, Eq. 6, in the units of their code: with means over features,
    invariance E(φ − φ⁺)² + variance E relu(1 − std) + covariance (1/d) Σ_{i≠j} Cov_ij². The
    variance term is the mean over both ends, the covariance term the sum over both ends. Moments
    are the batch's own.

    **Optimum.** For a reversible chain, and up to a constant in each feature, the span of the
    slowest functions after the constant, unless features coincide. For d = 2 and a small
    covariance weight, such as the default, both features have the same standard deviation s ≤ 1:

    * They coincide if λ₁ − λ₂ ≥ 4 covariance s² / invariance, where s is 1 or the smaller root of
      4 invariance (1 − λ₁) s − variance + 8 covariance s³ = 0.
    * Otherwise their correlation is invariance (λ₁ − λ₂) / (4 covariance s²), where s is 1 or, if
      smaller, variance / (4 invariance (1 − (λ₁ + λ₂) / 2)).

    At a large covariance weight, the features are ψ₁ and ψ₂. Each has its own standard
    deviation: 1 or, if smaller, variance / (4 invariance (1 − λ)). Not ordered.

    Metrics: ``deviations``, the standard deviation of each feature over the first states.

    Attributes:
        invariance: Weight of the squared differences.
        variance: Weight of the hinge on standard deviations.
        covariance: Weight of the covariances of different features.
    """

    invariance: float = interval("[0, inf)", 25.0)
    variance: float = interval("[0, inf)", 25.0)
    covariance: float = interval("[0, inf)", 1.0)

    title: ClassVar[str] = "VICReg"

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        del key  # Deterministic given the batch.
        first, second = self.ends(params, encode, batch)
        value = self.invariance * jnp.mean(jnp.square(first - second))
        both = _centred(first), _centred(second)
        deviations = [jnp.sqrt(_variances(each) + _VARIANCE) for each in both]
        for centred, deviation in zip(both, deviations, strict=True):
            hinge = jnp.mean(jnp.maximum(1.0 - deviation, 0.0))
            covariances = matmul(centred.T, centred) / (len(centred) - 1)
            value += 0.5 * self.variance * hinge
            value += self.covariance * _off_diagonal(covariances) / self.num_features
        return value, (state, {"deviations": deviations[0]})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfPrediction(TowardsAverages):
    """½ E‖A φ(s) − φ̄(s⁺)‖² / d, the target held, A by least squares on the batch: BYOL-Π.

    Tang et al. 2023, for pairs (s, s') of a fixed policy. A is held at its minimum: the limit of a
    predictor that learns much faster than the features.

    **Optimum.** None: the gradient is a semi-gradient, not the gradient of any scalar, and
    collapsed features also have a loss of zero. With tabular features, small plain gradient steps,
    current targets, a reversible chain and uniform p, E[φφᵀ] is constant. If it is I,
    K = E[φ(s)φ(s')ᵀ] obeys K̇ = SK + KS with S positive semi-definite. So neither tr K² nor |det K|
    ever falls, and K keeps the signs of its eigenvalues. If k eigenvalues of K are positive at the
    start, the flow leads to the invariant subspace of the k largest and the d − k smallest λ. Only
    some starts therefore lead to the d largest |λ|. Adam's steps do not keep E[φφᵀ] constant. Not
    ordered.

    Metrics: ``explained``, the share of E‖φ̄(s⁺)‖² that A φ(s) explains.

    Attributes:
        averaging_rate: Share of the current parameters in the target network's average; with 1, the
            target's features are the current features.
    """

    averaging_rate: float = interval("(0, 1]", 1.0)

    title: ClassVar[str] = "self-prediction"

    def init(self, key: Array) -> Any:
        """Return the average of parameters before the first update; none with rate 1."""
        fixed = isinstance(self.averaging_rate, int | float)
        if self.encoder is None and fixed and self.averaging_rate == 1.0:
            return ()
        return super().init(key)

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute half the mean squared error; its gradient holds target and predictor constant."""
        del key  # Deterministic given the batch.
        features, target = self.ends(params, encode, batch)
        after = state
        if isinstance(state, DecayedMean):
            # The average includes the current parameters; with rate 1, targets are the current
            # features.
            _, after = self.target(params, state)
            _, target = self.ends(after.mean(), encode, batch)
        target = lax.stop_gradient(target)
        # Danskin's theorem: at the predictor's minimum its own change contributes nothing.
        predictor = least_squares_weights(lax.stop_gradient(features), target)
        value = two_weight_loss(features, target, predictor, predictor)
        size = jnp.square(scales(jnp.mean(jnp.square(target))))
        return value, (after, {"explained": 1.0 - 2.0 * lax.stop_gradient(value) / size})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class BYOLGamma(SelfPrediction):
    """BYOL-γ without actions: ``SelfPrediction`` of a future state's features.

    Lawson et al. 2025 predict φ̄(s⁺) from φ(s) and an action, with s⁺ drawn from the policy's
    successor measure. Here rows have no actions, and only the source differs from
    ``SelfPrediction``: it must draw pairs (s, s⁺) with a discount. Least squares fit the predictor;
    Lawson et al. train a network.

    **Optimum.** As for ``SelfPrediction``, with the walk of these pairs: for a reversible chain the
    same eigenfunctions, with eigenvalues (1 − γ)λ/(1 − γλ) in the same order and with the same
    signs. Negative eigenvalues are small, but some starts still lead to them.
    """

    title: ClassVar[str] = "BYOL-γ"


def _centred(features: Array) -> Array:
    return features - jnp.mean(features, axis=0, keepdims=True)


def _variances(centred: Array) -> Array:
    """Compute unbiased variances of centred features [b, d], [d]."""
    return jnp.sum(jnp.square(centred), axis=0) / (len(centred) - 1)


def _standardised(centred: Array) -> Array:
    return centred / scales(jnp.mean(jnp.square(centred), axis=0))[None, :]


def _off_diagonal(matrix: Array) -> Array:
    """Sum the squares of the entries off the diagonal of a matrix [d, d], []."""
    return jnp.sum(jnp.square(matrix)) - jnp.sum(jnp.square(jnp.diagonal(matrix)))
