"""Players of a game for principal components: unit vectors that move at once on their spheres."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.streaming.base import (
    StreamingRule,
    most_updates,
    one_row_at_a_time,
    require_batch,
    require_sizes,
)
from rlreps.streaming.combining import projection_average
from rlreps.streaming.orthonormal import orthonormalize
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate


class PlayersState(NamedTuple):
    """Where the players stand.

    Attributes:
        step: Updates made, [] (int32).
        rows: The players' unit vectors, [k, features].
    """

    step: Array
    rows: Array

    @property
    def vectors(self) -> Array:
        """The players' unit vectors as columns, [features, k]."""
        return self.rows.T


def game(
    num_inputs: int,
    num_components: int,
    learning_rate: LearningRate,
    gradients: Callable[[Array, Array], Array],
) -> StreamingRule:
    """A rule in which every player follows a gradient of its own along its unit sphere.

    The part of a gradient that is tangent to the sphere at v_i is followed by a step of size η,
    and the outcome is normalised. Models are combined by the projection average of the players'
    spans.

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it.
        gradients: (players' rows [k, features], batch [b, features]) → gradients, [k, features].

    Returns:
        The rule.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and a fixed rate is positive; from an update, for a
            batch of another width or without rows.
    """
    require_sizes(num_inputs, num_components)
    require_learning_rate(learning_rate)

    def init(key: Array) -> PlayersState:
        vectors = jax.random.normal(key, (num_inputs, num_components))
        return PlayersState(jnp.zeros((), jnp.int32), _unit_rows(vectors.T))

    def update(state: PlayersState, batch: Array) -> PlayersState:
        require_batch(batch, num_inputs)
        ascent = gradients(state.rows, batch)
        radial = jnp.sum(ascent * state.rows, axis=1)
        tangent = ascent - radial[:, None] * state.rows
        rate = learning_rate_at(learning_rate, state.step, tangent.dtype)
        return PlayersState(state.step + 1, _unit_rows(state.rows + rate * tangent))

    def combine(states: PlayersState, weights: Array) -> PlayersState:
        bases = jax.vmap(orthonormalize)(states.rows)
        return PlayersState(most_updates(states.step), projection_average(bases, weights))

    each = one_row_at_a_time(update, num_inputs)
    return StreamingRule(init, update, each, lambda state: state.vectors, combine)


def _unit_rows(rows: Array) -> Array:
    units: Array = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    return units
