"""Graph drawing: features that change little along pairs, kept apart by their second moment.

Symbols as in ``rlreps.losses.pairs``: pairs (s, s⁺), their walk A with eigenvalues λ in the measure
μ of both ends. C = E_μ[φφᵀ], and E‖φ(s) − φ(s⁺)‖² = 2 tr(C − E_μ[φ (Aφ)ᵀ]).
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval
from rlreps.losses.base import Encode, Metrics, Params
from rlreps.losses.pairs import (
    Ends,
    PairObjective,
    eigenvalues,
    independent_products,
    nesting,
    second_moment,
)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphDrawing(PairObjective):
    """E‖φ(s) − φ(s⁺)‖² + β ‖C − I‖²: the smoothest functions of the walk, as a span.

    Wu et al. 2019, in the units of Wang et al. 2021. Wu et al. ask for C = I/d: their loss with
    weight β is this loss with weight β/d, divided by d. The penalty is estimated without bias from
    pairs of different rows.

    **Optimum.** Any rotation of the d eigenfunctions of largest λ, the constant among them, each
    scaled to second moment 1 − (1 − λ)/β. A finite β thus shrinks the scale but keeps the span; an
    eigenfunction with 1 − λ ≥ β vanishes. Not ordered.

    Metrics: ``eigenvalues``, the Rayleigh quotient of each feature.

    Attributes:
        penalty: β; above 2, no eigenfunction vanishes.
    """

    penalty: float = interval("(0, inf)", 5.0)

    title: ClassVar[str] = "graph drawing"

    def weights(self) -> tuple[Array, Array]:
        """Return weights of the features [d] and of the entries of C − I [d, d]."""
        return jnp.ones(self.num_features), jnp.ones((self.num_features, self.num_features))

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        del key  # Deterministic given the batch.
        first, second = ends = self.ends(params, encode, batch)
        of_features, of_entries = self.weights()
        changes = jnp.mean(jnp.square(first - second), axis=0)
        value = jnp.sum(of_features * changes)
        value += self.penalty * jnp.sum(of_entries * squared_errors(ends, ends))
        return value, (state, {"eigenvalues": eigenvalues(ends)})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneralizedGraphDrawing(GraphDrawing):
    """The mean over k = 1 … d of graph drawing by the first k features: ordered eigenfunctions.

    Wang et al. 2021, whose sum over k is d times as large.

    **Optimum.** Up to sign, feature k is the eigenfunction of the k-th largest λ, the constant
    first, with second moment 1 − (1 − λ_k)/β: these features solve all d problems at once. Ordered.
    """

    title: ClassVar[str] = "generalized graph drawing"

    def weights(self) -> tuple[Array, Array]:
        return nesting(self.num_features)


class AugmentedState(NamedTuple):
    """Multipliers of an augmented Lagrangian.

    Attributes:
        duals: β_ij of the constraints C_ij = δ_ij with j ≤ i, [d, d], zero elsewhere.
        barrier: b, [].
    """

    duals: Array
    barrier: Array


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentedLagrangian(PairObjective):
    """ALLO: graph drawing whose constraints have multipliers, so that scale and order are exact.

    Gomez et al. 2024: E‖φ(s) − φ(s⁺)‖² + Σ_{j≤i} β_ij E_ij + b Σ_{j≤i} E_ij², where
    E_ij = E_μ[φ_i sg(φ_j)] − δ_ij moves only the later feature. In each update, the duals rise by
    ``dual_rate`` E_ij. b rises by ``barrier_rate`` times the mean over i, j of the estimates of
    E_ij², where a negative estimate counts as zero. The published code multiplies E_ij of two
    batches. rlreps multiplies over pairs of different rows, which is also unbiased and has less
    variance.

    **Optimum.** Up to sign, feature k is the eigenfunction of the k-th largest λ, the constant
    first, with second moment 1. Ordered. At the optimum, β_kk = −4 (1 − λ_k), and β_ij = 0 for
    j < i. The updates are attracted to it only while b > 2 (λ_1 − λ_d): a smaller b cannot stop
    feature d from drifting towards feature 1. If b grows it passes this bound by itself. If
    ``barrier_rate`` is 0, the initial b must exceed it: 2 is enough if λ_d > 0, and 4 always is.

    The scalar is the Lagrangian; the gradient is not its gradient. Metrics: ``eigenvalues``
    λ = 1 + β_kk/4 from the duals, and ``barrier``.

    Attributes:
        dual_rate: Step size of the duals. Gomez et al. use 1e-4 over 50,000 updates. With fewer
            updates, only larger steps bring the duals to −4 (1 − λ).
        barrier_rate: Step size of b; with 0, b stays at its initial value.
        barrier_start: Initial b.
    """

    dual_rate: float = interval("[0, inf)", 1e-2)
    barrier_rate: float = interval("[0, inf)", 1e-2)
    barrier_start: float = interval("(0, inf)", 2.0)

    title: ClassVar[str] = "ALLO"

    def init(self, key: Array) -> AugmentedState:
        square = jnp.zeros((self.num_features, self.num_features))
        return AugmentedState(square, jnp.zeros(()) + self.barrier_start)

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: AugmentedState, key: Array
    ) -> tuple[Array, tuple[AugmentedState, Metrics]]:
        """Compute the Lagrangian; its gradient moves the later feature of each constraint."""
        del key  # Deterministic given the batch.
        first, second = ends = self.ends(params, encode, batch)
        # Hold the earlier feature, so that it does not adapt to the later feature.
        held = lax.stop_gradient(ends)
        moment = second_moment(ends, held)
        errors = jnp.tril(moment - jnp.eye(len(moment), dtype=moment.dtype))
        squares = jnp.tril(squared_errors(ends, held))
        changes = jnp.sum(jnp.mean(jnp.square(first - second), axis=0))
        value = changes + jnp.sum(state.duals * errors) + state.barrier * jnp.sum(squares)
        # Multipliers ascend by their own rule, not by a gradient.
        errors, squares = lax.stop_gradient((errors, squares))
        after = AugmentedState(
            state.duals + self.dual_rate * errors,
            state.barrier + self.barrier_rate * jnp.mean(jnp.maximum(squares, 0.0)),
        )
        values = 1.0 + jnp.diagonal(after.duals) / 4.0
        return value, (after, {"eigenvalues": values, "barrier": after.barrier})


def squared_errors(ends: Ends, others: Ends) -> Array:
    """Estimate (C_lm − δ_lm)² without bias, C = ½ E[φ(s)φ(s)ᵀ + φ(s⁺)φ(s⁺)ᵀ], [d, d].

    Args:
        ends: φ_l at both ends.
        others: φ_m at both ends: the same values, held constant if desired.
    """
    (first, second), (other, other_second) = ends, others
    same = independent_products(first, other, first, other)
    same += independent_products(second, other_second, second, other_second)
    squares = (same + 2.0 * independent_products(first, other, second, other_second)) / 4.0
    identity = jnp.eye(len(squares), dtype=squares.dtype)
    return squares - identity * (2.0 * second_moment(ends, others) - identity)
