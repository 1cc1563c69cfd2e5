"""Incremental principal component analysis: rank-k updates of a singular value decomposition."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.streaming.anchoring import anchored_update, anchored_updates
from rlreps.streaming.base import StreamingRule, most_updates, require_batch, require_sizes
from rlreps.streaming.combining import shares
from rlreps.streaming.low_rank import LowRank, add_row, add_rows, weighted_mean
from rlreps.streaming.orthonormal import orthonormalize


class IncrementalState(NamedTuple):
    """Where the decomposition stands.

    Attributes:
        step: Updates made, [] (int32).
        rows_seen: Rows of all updates, [] (int32); of combined models the weighted mean.
        rows: Orthonormal right singular vectors, [k, features].
        energies: Squared singular values of the rows seen, [k], in descending order; zero for a
            vector that no row has reached. Divided by ``rows_seen`` they are variances.
    """

    step: Array
    rows_seen: Array
    rows: Array
    energies: Array


def incremental_pca(num_inputs: int, num_components: int) -> StreamingRule:
    """The best rank-k matrix XᵀX of all rows so far, batch after batch, without a learning rate.

        diag(λ')_k, V'_k = the leading eigenpairs of Vᵀ diag(λ) V + XᵀX

    Brand 2002, "Incremental singular value decomposition of uncertain data with missing values";
    the incremental algorithm of Arora et al. 2012, "Stochastic optimization for PCA and PLS"; Ross
    et al. 2008 without their mean, because observations are centred. Nothing is lost while the rows
    have rank k at most: then any batches lead to the exact decomposition. What a batch leaves
    beyond rank k is dropped for good, which is why larger batches can lead closer to the exact
    components, and why a direction that single rows never raise above the k-th is never found.

    One row takes O(k² (features + k)), the rotation of all components; b rows take
    O((b + k)² (features + b + k)), so that batches of about k rows cost least, O(k · features) a
    row. In float32 rows weigh the same until some 10⁷ have been seen; then a further single row is
    lost to rounding.

    Args:
        num_inputs: Features of an observation.
        num_components: k.

    Returns:
        The rule. Components come in descending order of variance; before k independent rows those
        without variance are arbitrary. Models are combined as the decomposition of their weighted
        mean XᵀX, in which rows of all workers weigh the same if weights and counts are equal.

    Raises:
        InputError: Unless 1 ≤ k ≤ features; from an update, for a batch of another width or
            without rows.
    """
    require_sizes(num_inputs, num_components)
    anchored, anchored_each = anchored_update(_one, _anchor), anchored_updates(_one, _anchor)

    def init(key: Array) -> IncrementalState:
        rows = orthonormalize(jax.random.normal(key, (num_components, num_inputs)))
        zero = jnp.zeros((), jnp.int32)
        return IncrementalState(zero, zero, rows, jnp.zeros((num_components,), rows.dtype))

    def update(state: IncrementalState, batch: Array) -> IncrementalState:
        require_batch(batch, num_inputs)
        updated: IncrementalState = (
            anchored(state, batch[0]) if batch.shape[0] == 1 else _many(state, batch)
        )
        return updated

    def update_each(state: IncrementalState, rows: Array) -> IncrementalState:
        require_batch(rows, num_inputs)
        updated: IncrementalState = anchored_each(state, rows)
        return updated

    def combine(states: IncrementalState, weights: Array) -> IncrementalState:
        merged = weighted_mean(states.rows, states.energies, weights)
        seen = jnp.sum(shares(weights) * states.rows_seen.astype(weights.dtype))
        rows_seen = jnp.round(seen).astype(jnp.int32)
        return IncrementalState(most_updates(states.step), rows_seen, *merged)

    return StreamingRule(init, update, update_each, lambda state: state.rows.T, combine)


def _one(state: IncrementalState, row: Array) -> IncrementalState:
    moved = add_row(LowRank(state.rows, state.energies), row)
    return IncrementalState(state.step + 1, state.rows_seen + 1, *moved)


def _many(state: IncrementalState, batch: Array) -> IncrementalState:
    moved = add_rows(LowRank(state.rows, state.energies), batch)
    return IncrementalState(state.step + 1, state.rows_seen + batch.shape[0], *moved)


def _anchor(state: IncrementalState) -> IncrementalState:
    return state._replace(rows=orthonormalize(state.rows))
