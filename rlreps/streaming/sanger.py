"""Sanger's generalised Hebbian algorithm (1989): components one after another, no projection."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming.base import (
    StreamingRule,
    most_updates,
    one_row_at_a_time,
    require_batch,
    require_sizes,
)
from rlreps.streaming.combining import projection_average
from rlreps.streaming.orthonormal import orthonormalize, sums_of_earlier
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate

_HIGHEST = lax.Precision.HIGHEST


class SangerState(NamedTuple):
    """Where the algorithm stands.

    Attributes:
        step: Updates made, [] (int32).
        rows: The components' vectors, near to orthonormal once learned, [k, features].
    """

    step: Array
    rows: Array


def sanger(num_inputs: int, num_components: int, *, learning_rate: LearningRate) -> StreamingRule:
    """The generalised Hebbian algorithm, c_i' = c_i + η y_i (x − Σ_{j≤i} y_j c_j), y = Cᵀx.

    Sanger 1989, "Optimal unsupervised learning in a single-layer linear feedforward neural
    network", equation 3; the mean over a batch of several rows. Component i learns from what those
    before it leave of x, so the columns go to single eigenvectors in order. Nothing keeps them
    orthonormal: where η ‖x‖² is far above one they diverge.

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it, in units of one over a variance.

    Returns:
        The rule. Components have unit length, the state's rows have not. Models are combined by
        the projection average of the rows' spans.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and a fixed rate is positive; from an update, for a
            batch of another width or without rows.
    """
    require_sizes(num_inputs, num_components)
    require_learning_rate(learning_rate)

    def init(key: Array) -> SangerState:
        rows = jax.random.normal(key, (num_components, num_inputs))
        return SangerState(jnp.zeros((), jnp.int32), orthonormalize(rows))

    def update(state: SangerState, batch: Array) -> SangerState:
        require_batch(batch, num_inputs)
        rate = learning_rate_at(learning_rate, state.step, batch.dtype) / batch.shape[0]
        outputs = jnp.matmul(state.rows, batch.T, precision=_HIGHEST)
        hebbian = jnp.matmul(outputs, batch, precision=_HIGHEST)
        if batch.shape[0] == 1:
            # Σ_{j≤i} y_j c_j of one row is a running sum, O(k · features).
            weighted = outputs * state.rows
            explained = outputs * (sums_of_earlier(weighted) + weighted)
        else:
            overlaps = jnp.tril(jnp.matmul(outputs, outputs.T, precision=_HIGHEST))
            explained = jnp.matmul(overlaps, state.rows, precision=_HIGHEST)
        return SangerState(state.step + 1, state.rows + rate * (hebbian - explained))

    def combine(states: SangerState, weights: Array) -> SangerState:
        bases = jax.vmap(orthonormalize)(states.rows)
        return SangerState(most_updates(states.step), projection_average(bases, weights))

    def components(state: SangerState) -> Array:
        lengths = jnp.linalg.norm(state.rows, axis=1)
        return (state.rows / jnp.where(lengths > 0.0, lengths, 1.0)[:, None]).T

    return StreamingRule(init, update, one_row_at_a_time(update, num_inputs), components, combine)
