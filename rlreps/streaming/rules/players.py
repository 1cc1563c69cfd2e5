"""Players of a game for principal components: unit vectors that move at once on their spheres."""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.streaming.rules.orthonormal import VectorRule, VectorState


@dataclasses.dataclass(frozen=True)
class PlayersRule(VectorRule):
    """A rule in which every player follows a gradient of its own along its unit sphere.

    The part of a gradient that is tangent to the sphere at v_i is followed by a step of size η,
    and the outcome is normalised.
    """

    imputes: ClassVar[bool] = False
    orders_components: ClassVar[bool] = True

    @abc.abstractmethod
    def gradients(self, players: Array, batch: Array) -> Array:
        """Compute all players' gradients [k, features] on a batch of observations [b, features]."""

    def init(self, key: Array) -> VectorState:
        """Return random unit vectors."""
        vectors = jax.random.normal(key, (self.num_inputs, self.num_components))
        return VectorState(jnp.zeros((), jnp.int32), _unit_rows(vectors.T))

    def step_batch(self, state: VectorState, batch: Array) -> VectorState:
        """Make one step on the mean over a batch, [b, features]."""
        ascent = self.gradients(state.rows, batch)
        radial = jnp.sum(ascent * state.rows, axis=1)
        tangent = ascent - radial[:, None] * state.rows
        rate = self.rate(state, tangent)
        return VectorState(state.step + 1, _unit_rows(state.rows + rate * tangent))


def _unit_rows(rows: Array) -> Array:
    units: Array = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    return units
