"""Matrix stochastic gradient: principal component analysis as a convex problem (Arora et al. 2013).

The rule learns a matrix P from the convex hull of all projectors on k dimensions,
{P : 0 ≤ P ≤ I, tr P = k}, in which projected gradient ascent maximises E xᵀPx.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.errors import require
from rlreps.streaming.rules.base import AnchoredRule, LearningRateRule
from rlreps.streaming.rules.low_rank import LowRank, add_row, add_rows, weighted_mean
from rlreps.streaming.rules.orthonormal import orthonormalize


class MatrixState(NamedTuple):
    """The matrix P.

    Attributes:
        step: Updates made, [] (int32).
        rows: Orthonormal eigenvectors of P, [rank, features].
        eigenvalues: Eigenvalues of P, in [0, 1] with sum k, in descending order, [rank].
    """

    step: Array
    rows: Array
    eigenvalues: Array


@dataclasses.dataclass(frozen=True)
class _MatrixRule(AnchoredRule, LearningRateRule):
    """P' = Π(P + η x xᵀ) on the leading ``rank`` eigenvectors of P."""

    @property
    def rank(self) -> int:
        """The eigenvectors of P that are kept."""
        return self.num_inputs

    def init(self, key: Array) -> MatrixState:
        rows = orthonormalize(jax.random.normal(key, (self.rank, self.num_inputs)))
        eigenvalues = (jnp.arange(self.rank) < self.num_components).astype(rows.dtype)
        return MatrixState(jnp.zeros((), jnp.int32), rows, eigenvalues)

    def step_row(self, state: MatrixState, row: Array) -> MatrixState:
        scale = jnp.sqrt(self.rate(state, row))
        matrix = LowRank(state.rows, state.eigenvalues)
        return self._projected(state.step + 1, add_row(matrix, scale * row))

    def step_batch(self, state: MatrixState, batch: Array) -> MatrixState:
        rate = self.rate(state, batch) / batch.shape[0]
        matrix = LowRank(state.rows, state.eigenvalues)
        return self._projected(state.step + 1, add_rows(matrix, jnp.sqrt(rate) * batch))

    def anchor(self, state: MatrixState) -> MatrixState:
        return state._replace(rows=orthonormalize(state.rows))

    def components(self, state: MatrixState) -> Array:
        return state.rows[: self.num_components].T

    def combine(self, states: MatrixState, weights: Array) -> MatrixState:
        mean = weighted_mean(states.rows, states.eigenvalues, weights)
        return self._projected(jnp.max(states.step), mean)

    def _projected(self, step: Array, matrix: LowRank) -> MatrixState:
        eigenvalues = project_eigenvalues(matrix.values, self.num_components)
        return MatrixState(step, matrix.rows, eigenvalues)


@configurable
@dataclasses.dataclass(frozen=True)
class IncrementalMSG(_MatrixRule):
    """Matrix stochastic gradient, P' = Π(P + η x xᵀ), or of the batch's mean x xᵀ.

    Arora, Cotter & Srebro 2013, "Stochastic Optimization of PCA with Capped MSG":
    Π is the nearest matrix with eigenvalues in [0, 1] that sum to k (``project_eigenvalues``). The
    problem is convex: with η ~ 1/√t the rule converges from any start. P has as many eigenvectors
    as features, so an update takes O(features³), for any number of rows; if this is too much, use
    ``CappedMSG``. η is in units of one over a variance.

    Components are the k leading eigenvectors of P; the paper draws k at random such that their
    projector is P on average. Eigenvectors with eigenvalue one are not distinguished. Combining
    models takes their weighted mean P.
    """

    title: ClassVar[str] = "incremental MSG"


@configurable
@dataclasses.dataclass(frozen=True)
class CappedMSG(_MatrixRule):
    """Matrix stochastic gradient with P of bounded rank (Arora et al. 2013).

    As ``IncrementalMSG``, but Π keeps the K leading eigenvectors of P + η x xᵀ and projects their
    eigenvalues. This set is not convex. One more dimension than components lets a new direction in
    while an old one is still there. One row takes O(K² (features + K)), b rows take
    O((b + K)² (features + b + K)).

    Attributes:
        max_rank: K in [k, features]; None is k + 1, or the number of features if smaller.
    """

    title: ClassVar[str] = "capped MSG"

    _: dataclasses.KW_ONLY
    max_rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_components <= self.rank <= self.num_inputs,
            f"max_rank in [{self.num_components}, {self.num_inputs}], from components to features",
            self.max_rank,
        )

    @property
    def rank(self) -> int:
        if self.max_rank is None:
            return min(self.num_components + 1, self.num_inputs)
        return self.max_rank


def project_eigenvalues(values: Array, total: int) -> Array:
    """Project numbers onto [0, 1] with a given sum: clip(σ_i + S, 0, 1) for the S that meets it.

    Σ_i clip(σ_i + S, 0, 1) is piecewise linear in S and rises with it. Its breakpoints −σ_i and
    1 − σ_i give the piece on which S lies, and there S solves a linear equation: exact up to
    rounding, in O(r²).

    Args:
        values: σ, [r], in any order.
        total: The sum of the projected numbers, an integer in [1, r].
    """
    values = _with_gaps_of_one_at_most(values)
    breakpoints = jnp.sort(jnp.concatenate([-values, 1.0 - values]))
    sums = jnp.sum(jnp.clip(values[None, :] + breakpoints[:, None], 0.0, 1.0), axis=1)
    # Rounding may leave the last sum, which should be r, below a total of r.
    reached = (sums >= total) | (jnp.arange(len(sums)) == len(sums) - 1)
    last = jnp.argmax(reached)
    low, high = breakpoints[jnp.maximum(last - 1, 0)], breakpoints[last]
    moved = values + 0.5 * (low + high)
    full, inside = moved >= 1.0, (moved > 0.0) & (moved < 1.0)
    slope = jnp.sum(inside).astype(values.dtype)
    missing = total - jnp.sum(full).astype(values.dtype) - jnp.sum(jnp.where(inside, values, 0.0))
    solution = jnp.where(slope > 0.0, missing / jnp.maximum(slope, 1.0), high)
    projected: Array = jnp.clip(values + solution, 0.0, 1.0)
    return projected


def _with_gaps_of_one_at_most(values: Array) -> Array:
    """Cut gaps between neighbouring numbers [r] to one, keep their order and make the largest 0.

    Across a larger gap the upper of two neighbours reaches one before the lower one leaves zero,
    however large the gap: the projection is the same, and sums keep their precision.
    """
    order = jnp.argsort(-values)
    gaps = jnp.minimum(-jnp.diff(values[order]), 1.0)
    below = jnp.concatenate([jnp.zeros((1,), values.dtype), -jnp.cumsum(gaps)])
    return jnp.zeros_like(values).at[order].set(below)
