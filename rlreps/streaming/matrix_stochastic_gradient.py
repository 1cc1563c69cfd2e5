"""Matrix stochastic gradient: principal component analysis as a convex problem (Arora et al. 2013).

What is learned is a matrix P from the convex hull of all projectors on k dimensions,
{P : 0 ≤ P ≤ I, tr P = k}, over which E xᵀPx is maximised by projected gradient ascent.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.errors import require
from rlreps.streaming.anchoring import anchored_update, anchored_updates
from rlreps.streaming.base import StreamingRule, most_updates, require_batch, require_sizes
from rlreps.streaming.low_rank import LowRank, add_row, add_rows, weighted_mean
from rlreps.streaming.orthonormal import orthonormalize
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate


class MatrixState(NamedTuple):
    """Where the algorithm stands.

    Attributes:
        step: Updates made, [] (int32).
        rows: Orthonormal eigenvectors of P, [max_rank, features].
        eigenvalues: Theirs, in [0, 1] with sum k, in descending order, [max_rank].
    """

    step: Array
    rows: Array
    eigenvalues: Array


def incremental_msg(
    num_inputs: int, num_components: int, *, learning_rate: LearningRate
) -> StreamingRule:
    """Matrix stochastic gradient, P' = Π(P + η x xᵀ), or of the batch's mean x xᵀ.

    Arora, Cotter & Srebro 2013, "Stochastic Optimization of PCA with Capped MSG":
    Π is the nearest matrix with eigenvalues in [0, 1] that sum to k (``project_eigenvalues``). The
    problem is convex: with η ~ 1/√t the rule converges from any start. P has as many eigenvectors
    as there are features, so an update takes O(features³), whatever its rows; where that is too
    much, take ``capped_msg``.

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it, in units of one over a variance.

    Returns:
        The rule. Components are the k leading eigenvectors of P; the paper draws k at random such
        that their projector is P on average. Eigenvalues of one are not told apart. Models are
        combined as their weighted mean P.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and a fixed rate is positive; from an update, for a
            batch of another width or without rows.
    """
    return _msg(num_inputs, num_components, num_inputs, learning_rate)


def capped_msg(
    num_inputs: int,
    num_components: int,
    *,
    learning_rate: LearningRate,
    max_rank: int | None = None,
) -> StreamingRule:
    """Matrix stochastic gradient with P of bounded rank (Arora et al. 2013).

    As ``incremental_msg``, but Π keeps the K leading eigenvectors of P + η x xᵀ and projects their
    eigenvalues. That set is not convex; one more dimension than components lets a new direction in
    while an old one is still there. One row takes O(K² (features + K)), b rows take
    O((b + K)² (features + b + K)).

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it, in units of one over a variance.
        max_rank: K; None is k + 1, or the number of features where that is less.

    Returns:
        The rule, otherwise as ``incremental_msg``.

    Raises:
        InputError: As ``incremental_msg``, and unless k ≤ K ≤ features.
    """
    default = min(num_components + 1, num_inputs)
    rank = default if max_rank is None else max_rank
    return _msg(num_inputs, num_components, rank, learning_rate)


def project_eigenvalues(values: Array, total: int) -> Array:
    """The nearest numbers in [0, 1] with a given sum: clip(σ_i + S, 0, 1) for the S that meets it.

    Σ_i clip(σ_i + S, 0, 1) is piecewise linear in S and rises with it. Its breakpoints −σ_i and
    1 − σ_i give the piece that S lies on, where it is the solution of a linear equation: exact but
    for rounding, in O(r²).

    Args:
        values: σ, [r].
        total: Their sum thereafter, an integer in [1, r].

    Returns:
        [r]; in the order of ``values``.
    """
    values = _with_gaps_of_one_at_most(values)
    breakpoints = jnp.sort(jnp.concatenate([-values, 1.0 - values]))
    sums = jnp.sum(jnp.clip(values[None, :] + breakpoints[:, None], 0.0, 1.0), axis=1)
    # Rounding may leave the last sum, which is r, below a total of r.
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
    """The numbers [r], largest 0, in the same order with gaps between neighbours cut to one.

    Across a larger gap the upper of two neighbours has reached one before the lower one leaves
    zero, however large the gap: the projection is the same, and sums keep their precision.
    """
    order = jnp.argsort(-values)
    gaps = jnp.minimum(-jnp.diff(values[order]), 1.0)
    below = jnp.concatenate([jnp.zeros((1,), values.dtype), -jnp.cumsum(gaps)])
    return jnp.zeros_like(values).at[order].set(below)


def _msg(
    num_inputs: int, num_components: int, max_rank: int, learning_rate: LearningRate
) -> StreamingRule:
    require_sizes(num_inputs, num_components)
    require(
        num_components <= max_rank <= num_inputs,
        f"max_rank in [{num_components}, {num_inputs}], from components to features",
        max_rank,
    )
    require_learning_rate(learning_rate)

    def projected(step: Array, sum_of_both: LowRank) -> MatrixState:
        eigenvalues = project_eigenvalues(sum_of_both.values, num_components)
        return MatrixState(step, sum_of_both.rows, eigenvalues)

    def one(state: MatrixState, row: Array) -> MatrixState:
        scale = jnp.sqrt(learning_rate_at(learning_rate, state.step, row.dtype))
        matrix = LowRank(state.rows, state.eigenvalues)
        return projected(state.step + 1, add_row(matrix, scale * row))

    def many(state: MatrixState, batch: Array) -> MatrixState:
        rate = learning_rate_at(learning_rate, state.step, batch.dtype) / batch.shape[0]
        matrix = LowRank(state.rows, state.eigenvalues)
        return projected(state.step + 1, add_rows(matrix, jnp.sqrt(rate) * batch))

    anchored, anchored_each = anchored_update(one, _anchor), anchored_updates(one, _anchor)

    def init(key: Array) -> MatrixState:
        rows = orthonormalize(jax.random.normal(key, (max_rank, num_inputs)))
        eigenvalues = (jnp.arange(max_rank) < num_components).astype(rows.dtype)
        return MatrixState(jnp.zeros((), jnp.int32), rows, eigenvalues)

    def update(state: MatrixState, batch: Array) -> MatrixState:
        require_batch(batch, num_inputs)
        updated: MatrixState = (
            anchored(state, batch[0]) if batch.shape[0] == 1 else many(state, batch)
        )
        return updated

    def update_each(state: MatrixState, rows: Array) -> MatrixState:
        require_batch(rows, num_inputs)
        updated: MatrixState = anchored_each(state, rows)
        return updated

    def combine(states: MatrixState, weights: Array) -> MatrixState:
        mean = weighted_mean(states.rows, states.eigenvalues, weights)
        return projected(most_updates(states.step), mean)

    def components(state: MatrixState) -> Array:
        return state.rows[:num_components].T

    return StreamingRule(init, update, update_each, components, combine)


def _anchor(state: MatrixState) -> MatrixState:
    return state._replace(rows=orthonormalize(state.rows))
