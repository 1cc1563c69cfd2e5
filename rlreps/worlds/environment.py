"""A table as a compiled environment."""

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.config import checked, positive
from rlreps.envs.core import TimeStep, pytree_dataclass
from rlreps.sources.pairs import padded_chances

if TYPE_CHECKING:
    from rlreps.worlds.world import World


class TableState(NamedTuple):
    """A state's number and the steps taken in the episode, both []."""

    number: jax.Array
    steps: jax.Array


@pytree_dataclass(static=("max_steps", "num_actions"))
@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TableEnvironment:
    """An ``Environment`` that looks next states, rewards and observations up.

    Chances are cumulative in single precision: an outcome of a probability below 6e-8 may never
    occur.

    Attributes:
        outcomes: Possible next states of each action, [n, A, m].
        chances: Cumulative probabilities of the outcomes, [n, A, m]; the last is 1.
        rewards: [n, A], or of each outcome, [n, A, m].
        terminal: [n].
        start: Cumulative distribution of the first state, [n].
        observations: [n, ...].
        num_actions: A.
        max_steps: Steps after which an episode is truncated; None has no limit.
    """

    outcomes: jax.Array
    chances: jax.Array
    rewards: jax.Array
    terminal: jax.Array
    start: jax.Array
    observations: jax.Array
    num_actions: int
    max_steps: int | None = positive(None)

    @classmethod
    def of(cls, world: "World", max_steps: int | None) -> "TableEnvironment":
        """Put a world's table, and rewards of its entries if any, on the default device."""
        table, paid = world.transitions, world.rewards
        entries, chances = padded_chances(table)
        shape = (*paid.shape, -1)
        if world.transition_rewards is not None:
            paid = world.transition_rewards[entries].reshape(shape)
        return cls(
            outcomes=jnp.asarray(table.indices[entries].reshape(shape), jnp.int32),
            chances=jnp.asarray(chances.reshape(shape), jnp.float32),
            rewards=jnp.asarray(paid, jnp.float32),
            terminal=jnp.asarray(world.terminal),
            start=jnp.asarray(np.cumsum(world.start) / world.start.sum(), jnp.float32),
            observations=jnp.asarray(world.observations),
            num_actions=world.num_actions,
            max_steps=max_steps,
        )

    def reset(self, key: jax.Array) -> TableState:
        """Draw a first state."""
        return TableState(_draw(key, self.start), jnp.int32(0))

    def step(self, key: jax.Array, state: TableState, action: jax.Array) -> TimeStep:
        """Take an action; a terminal state leads to itself."""
        number, steps = state.number, state.steps + 1
        outcome = jnp.int32(0)
        if self.outcomes.shape[2] > 1:
            outcome = _draw(key, self.chances[number, action])
        after = TableState(self.outcomes[number, action, outcome], steps)
        paid = self.rewards[number, action]
        late = jnp.asarray(False) if self.max_steps is None else steps >= self.max_steps
        return TimeStep(
            state=after,
            observation=self.observe(after),
            reward=paid if paid.ndim == 0 else paid[outcome],
            terminated=self.terminal[after.number],
            truncated=late,
        )

    def observe(self, state: TableState) -> jax.Array:
        """Return what an agent sees, [...]."""
        seen: jax.Array = self.observations[state.number]
        return seen


def _draw(key: jax.Array, cumulative: jax.Array) -> jax.Array:
    """Draw an index [] from a cumulative distribution [m]."""
    below = jax.random.uniform(key, (), jnp.float32) >= cumulative
    count: jax.Array = jnp.minimum(jnp.sum(below), len(cumulative) - 1).astype(jnp.int32)
    return count
