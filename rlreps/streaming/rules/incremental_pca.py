"""Incremental principal component analysis: rank-k updates of a singular value decomposition."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.streaming.rules.base import AnchoredRule
from rlreps.streaming.rules.combining import shares
from rlreps.streaming.rules.low_rank import LowRank, add_row, add_rows, weighted_mean
from rlreps.streaming.rules.orthonormal import orthonormalize


class IncrementalState(NamedTuple):
    """The decomposition so far.

    Attributes:
        step: Number of updates, [] (int32).
        rows_seen: Rows of all updates, [] (int32); for combined models the weighted mean.
        rows: Orthonormal right singular vectors, [k, features].
        energies: Squared singular values of the rows seen, [k], in descending order; zero for a
            vector that no row has reached. Divided by ``rows_seen`` they are variances.
    """

    step: Array
    rows_seen: Array
    rows: Array
    energies: Array


@configurable
@dataclasses.dataclass(frozen=True)
class IncrementalPCA(AnchoredRule):
    """The best rank-k matrix XᵀX of all rows so far, batch after batch, without a learning rate.

        diag(λ')_k, V'_k = the leading eigenpairs of Vᵀ diag(λ) V + XᵀX

    Brand 2002, "Incremental singular value decomposition of uncertain data with missing values";
    the incremental algorithm of Arora et al. 2012, "Stochastic optimization for PCA and PLS"; Ross
    et al. 2008 without their mean, because observations are centred. While the rows have rank k at
    most, nothing is lost, and any batches lead to the exact decomposition. The part of a batch
    beyond rank k is dropped for good. This is why larger batches can lead closer to the exact
    components, and why a direction that single rows never raise above the k-th is never found.

    One row takes O(k² (features + k)), the rotation of all components; b rows take O((b + k)²
    (features + b + k)). Batches of about k rows cost least, O(k · features) a row. In float32, rows
    have equal weights until some 10⁷ have been seen; then rounding loses a further single row.

    Components come in descending order of variance; before k independent rows, those without
    variance are arbitrary. Combining models decomposes their weighted mean XᵀX, in which rows of
    all workers have equal weight if weights and counts are equal.
    """

    title: ClassVar[str] = "incremental PCA"
    orders_components: ClassVar[bool] = True

    @classmethod
    def usual_rows_per_update(cls, num_components: int) -> int:
        return max(5 * num_components, 50)

    def init(self, key: Array) -> IncrementalState:
        rows = orthonormalize(jax.random.normal(key, (self.num_components, self.num_inputs)))
        zero = jnp.zeros((), jnp.int32)
        return IncrementalState(zero, zero, rows, jnp.zeros((self.num_components,), rows.dtype))

    def step_row(self, state: IncrementalState, row: Array) -> IncrementalState:
        moved = add_row(LowRank(state.rows, state.energies), row)
        return IncrementalState(state.step + 1, state.rows_seen + 1, *moved)

    def step_batch(self, state: IncrementalState, batch: Array) -> IncrementalState:
        moved = add_rows(LowRank(state.rows, state.energies), batch)
        return IncrementalState(state.step + 1, state.rows_seen + batch.shape[0], *moved)

    def anchor(self, state: IncrementalState) -> IncrementalState:
        return state._replace(rows=orthonormalize(state.rows))

    def components(self, state: IncrementalState) -> Array:
        return state.rows.T

    def combine(self, states: IncrementalState, weights: Array) -> IncrementalState:
        merged = weighted_mean(states.rows, states.energies, weights)
        seen = jnp.sum(shares(weights) * states.rows_seen.astype(weights.dtype))
        rows_seen = jnp.round(seen).astype(jnp.int32)
        return IncrementalState(jnp.max(states.step), rows_seen, *merged)
