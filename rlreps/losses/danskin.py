"""Objectives from independent weight estimates (Le Lan et al. 2023, Sec. 4).

The gradient of L(Φ) is a product of two functions of W*. Independent unbiased estimates ŵ, ŵ' of
the same column make ŵ'(φᵀŵ − ψ) an unbiased estimate of the gradient. If one estimate is used twice
(``Naive``), its variance biases the gradient. ``two_weights.two_weight_loss`` makes the gradient.
"""

import abc
import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval, positive
from rlreps.errors import require
from rlreps.losses.base import Encode, Metrics, Objective, Params
from rlreps.losses.two_weights import empirical_weights, mean_product, two_weight_loss
from rlreps.numerics import DecayedMean, matmul, take_rows
from rlreps.subspace.inverse_covariance import lissa
from rlreps.subspace.linalg import inverse_cholesky_factor

FeatureNorm = Literal["batch", "population", "running", "running_maximum"]
Inverse = Literal["pseudo", "plain"]

MOST_PERMUTATIONS = 1_000
_DECAY = 0.99
_MAXIMUM_DECAY = 0.999
_WHITENING_RIDGE = 1e-4


class Roles(NamedTuple):
    """Numbers of rows of a batch in each role.

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
        squared_norm: Running average (or decayed maximum) of each batch's largest ‖φ‖², []; 0 at
            the start. With whitening, φ is whitened, and the first batch does not count.
        covariance: Running mean of φφᵀ for the whitening; empty without whitening.
    """

    squared_norm: Array
    covariance: DecayedMean


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledWeights(Objective):
    """Objectives in which each weight estimate ŵ = Ĉ mean φψ has rows of its own.

    An update needs N rows, and M + J more for each estimate. Without N, M and J, the batch is
    shared out evenly, and the remainder goes to the gradient.

    Attributes:
        gradient_rows: N, rows at which the gradient is taken.
        weight_rows: M, rows behind each weight estimate's right-hand side.
        covariance_rows: J, rows behind each inverse covariance estimate.
        permutations: Number of random assignments of rows to roles in one update, averaged (the
            data permutation of the paper's Sec. 6). Each assignment is as unbiased as the given
            order. Above 1, any row may be a gradient row, so the backward pass covers all rows.
        whitening: Solve for the weights in features whitened by a running covariance of earlier
            batches. An extension of rlreps: L is invariant under invertible maps of the features,
            and the truncated series converges much faster for a covariance near the identity.
        num_estimates: Number of weight estimates in an update.
    """

    gradient_rows: int | None = positive(None)
    weight_rows: int | None = positive(None)
    covariance_rows: int | None = positive(None)
    permutations: int = positive(1, most=MOST_PERMUTATIONS)
    whitening: bool = False

    num_estimates: ClassVar[int] = 2

    def __post_init__(self) -> None:
        given = (self.gradient_rows, self.weight_rows, self.covariance_rows)
        require(
            len({rows is None for rows in given}) == 1,
            "gradient_rows, weight_rows and covariance_rows all given or all None",
            given,
        )

    def roles(self, rows: int) -> Roles:
        """Distribute a batch's rows over the roles.

        Raises:
            InputError: If there are fewer rows than roles, or another number than the options
                require.
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

    @abc.abstractmethod
    def solve(self, features: Array, right_hand_side: Array, squared_norm: Array) -> Array:
        """Estimate weights [d, t].

        Args:
            features: Φ̂, [J, d].
            right_hand_side: mean φψ, [d, t].
            squared_norm: The largest ‖φ‖² of the population if the objective needs it, else the
                running value from earlier batches, [].
        """

    def remember(self, squared_norm: Array, largest: Array) -> Array:
        """Update the running ‖φ‖² with another batch's largest, []."""
        return _DECAY * squared_norm + (1.0 - _DECAY) * largest

    def init(self, key: Array) -> TwoWeightState:
        square = jnp.zeros((self.num_features, self.num_features))
        return TwoWeightState(jnp.zeros(()), DecayedMean.empty(square))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: TwoWeightState, key: Array
    ) -> tuple[Array, tuple[TwoWeightState, Metrics]]:
        """Compute half the mean squared residual; its gradient is ŵ'(φᵀŵ − ψ) at N rows."""
        rows = batch.num_rows
        roles = self.roles(rows)

        def encode_roles(params: Params, inputs: Any) -> Array:
            # Only the weights use the other rows, and the weights carry no gradient: skip their
            # backward pass.
            first, others = (
                take_rows(inputs, part)
                for part in (slice(roles.gradient), slice(roles.gradient, None))
            )
            held = encode(lax.stop_gradient(params), others)
            return jnp.concatenate([encode(params, first), held])

        if self.permutations > 1:
            keys = jax.random.split(key, self.permutations)
            orders = jax.vmap(lambda each: jax.random.permutation(each, rows))(keys)
            raw = self.features(params, encode, batch.inputs)
        else:
            orders = jnp.arange(rows)[None, :]
            raw = self.features(params, encode_roles, batch.inputs)
        # The whitener comes from earlier batches. Given the past it is a constant, so whitening
        # adds no bias to the estimate.
        whiten = whitener(state.covariance).T if self.whitening else None
        features = raw if whiten is None else matmul(raw, whiten)
        squared_norm = state.squared_norm
        if self.needs_population:
            everything, _ = self.at_all_states(params, encode, batch)
            everything = everything if whiten is None else matmul(everything, whiten)
            squared_norm = _largest_squared_norm(everything)
        # Weight estimates carry no gradient, by Danskin's theorem.
        fixed = lax.stop_gradient(features)

        given = jnp.asarray(batch.targets)

        def one_assignment(order: Array) -> Array:
            targets = given[order]
            weights = self._weight_estimates(fixed[order], targets, roles, squared_norm)
            chosen = order[: roles.gradient]
            return two_weight_loss(features[chosen], given[chosen], weights[0], weights[-1])

        value = jnp.mean(jax.vmap(one_assignment)(orders))
        # The running average serves later updates and is no part of this gradient.
        new_state = self._update(state, lax.stop_gradient(raw), fixed)
        return value, (new_state, {"running_squared_norm": new_state.squared_norm})

    def _weight_estimates(
        self, features: Array, targets: Array, roles: Roles, squared_norm: Array
    ) -> Array:
        """Estimate weights [estimates, d, t], each from its own rows after the gradient's."""
        held, sides = [], []
        for index in range(self.num_estimates):
            first = roles.gradient + index * (roles.weight + roles.covariance)
            middle = first + roles.weight
            sides.append(mean_product(features[first:middle], targets[first:middle]))
            held.append(features[middle : middle + roles.covariance])
        # In one call: two batched decompositions at a time can use up the threads of a CPU and
        # then wait for each other forever (jaxlib 0.10).
        solve = jax.vmap(self.solve, in_axes=(0, 0, None))
        weights: Array = solve(jnp.stack(held), jnp.stack(sides), squared_norm)
        return weights

    def _update(self, state: TwoWeightState, raw: Array, features: Array) -> TwoWeightState:
        largest = _largest_squared_norm(features)
        remembered = self.remember(state.squared_norm, largest)
        running = jnp.where(state.squared_norm > 0.0, remembered, largest)
        if not self.whitening:
            return TwoWeightState(running, state.covariance)
        # No whitener exists for the first batch: its norms have other units than all later norms.
        running = jnp.where(state.covariance.weight > 0.0, running, jnp.zeros_like(running))
        return TwoWeightState(running, state.covariance.add(mean_product(raw, raw), 1.0 - _DECAY))


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class DanskinLissa(SampledWeights):
    """Danskin-LISSA: two independent ŵ = Ĉ mean φψ with Ĉ the LISSA estimate.

    Le Lan et al. 2023, Algorithm 1. If the step size κ does not depend on the rows behind Ĉ, E[Ĉ]
    is the truncated Neumann series κ Σ_{j≤J} (I − κC)ʲ, biased by its truncation alone (Lemma 4).
    If κ = κ0 / max‖φ‖² over those same rows, E[Ĉ] is not the series for any κ.

    Attributes:
        kappa0: κ0 in (0, 2).
        feature_norm: The divisor of κ0, never below max‖φ‖² of the estimate's own rows; below it,
            the series would diverge.

            - ``batch``: the maximum over the estimate's own rows (Definition 1). κ depends on these
              rows, and varies much if they are few.
            - ``population``: the maximum over all states, as in the authors' code for synthetic
              matrices. κ depends on no rows. Batches must bring their population.
            - ``running_maximum``: an approximation of ``population`` for sources without a
              population: the largest of all batches so far, decaying by 0.1 % an update. κ depends
              on the rows only if one of them exceeds the remembered maximum.
            - ``running``: a running average of the batches' maxima (the paper's remark in Sec. 5).
              It lies below the population's maximum, so κ often depends on the rows.
    """

    kappa0: float = interval("(0, 2)", 1.9)
    feature_norm: FeatureNorm = "batch"

    title: ClassVar[str] = "Danskin-LISSA"

    @property
    def needs_population(self) -> bool:
        return self.feature_norm == "population"

    def remember(self, squared_norm: Array, largest: Array) -> Array:
        if self.feature_norm == "running_maximum":
            return jnp.maximum(_MAXIMUM_DECAY * squared_norm, largest)
        return super().remember(squared_norm, largest)

    def solve(self, features: Array, right_hand_side: Array, squared_norm: Array) -> Array:
        norm = _largest_squared_norm(features)
        if self.feature_norm != "batch":
            # Never below the rows' own maximum: the series diverges beyond κ‖φ‖² = 2.
            norm = jnp.maximum(norm, squared_norm)
        # Features that are all zero give finite weights.
        kappa = self.kappa0 / jnp.where(norm > 0.0, norm, 1.0)
        weights: Array = lissa(features, right_hand_side, kappa)
        return weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmpiricalWeights(SampledWeights):
    """ŵ through the inverse of the empirical covariance Φ̂ᵀΦ̂ / J, biased for any finite J.

    Attributes:
        inverse: ``pseudo`` takes the pseudo-inverse, as in the paper's Eq. 11. ``plain`` solves
            with the matrix itself, as the authors' code does: with J < d the matrix is singular,
            and the result is rounding errors or infinity.
    """

    inverse: Inverse = "pseudo"

    @property
    def label(self) -> str:
        return self.title if self.inverse == "pseudo" else f"{self.title} (plain inverse)"

    def solve(self, features: Array, right_hand_side: Array, squared_norm: Array) -> Array:
        if self.inverse == "pseudo":
            return empirical_weights(features, right_hand_side)
        weights: Array = jnp.linalg.solve(mean_product(features, features), right_hand_side)
        return weights


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class DanskinEmpirical(EmpiricalWeights):
    """``DanskinLissa`` with the (pseudo-)inverse of Φ̂ᵀΦ̂ / J as Ĉ."""

    title: ClassVar[str] = "Danskin-empirical"


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Naive(EmpiricalWeights):
    """``DanskinEmpirical`` with one ŵ in both factors, whose variance is a second bias."""

    title: ClassVar[str] = "naive"
    num_estimates: ClassVar[int] = 1


def whitener(covariance: DecayedMean) -> Array:
    """Compute S [d, d] with S C Sᵀ ≈ I for the running covariance C; before the first update, I.

    S is the inverse Cholesky factor of C plus 1e-4 of its mean eigenvalue. The added term limits
    how much S amplifies directions that the features do not fill yet.
    """
    mean = covariance.mean()
    dimension = mean.shape[0]
    identity = jnp.eye(dimension, dtype=mean.dtype)
    scale = jnp.trace(mean) / dimension
    regular = jnp.where(scale > 0.0, mean + _WHITENING_RIDGE * scale * identity, identity)
    return inverse_cholesky_factor(regular)


def _largest_squared_norm(features: Array) -> Array:
    return jnp.max(jnp.sum(jnp.square(features), axis=-1))
