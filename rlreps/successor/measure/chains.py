"""Markov chains on cells, in the form that rollouts need, and their random numbers.

An environment under a policy becomes a ``MarkovChain``; ``puddle_world_chain`` is the fast special
case. Random numbers come from ``rlreps.numerics.threefry2x32`` with 13 rounds, the fewest that pass
all statistical tests of its authors.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.config import checked
from rlreps.envs import PuddleWorld
from rlreps.errors import require_positive
from rlreps.numerics import PRNG, threefry2x32
from rlreps.successor.measure.grids import Grid

NORMAL_BITS = 24
"""Number of high bits of a word that `standard_normal` uses; other draws may use the low bits."""


def standard_normal(bits: Array) -> Array:
    """Map the high 24 bits of random words (uint32) to standard normals (float32).

    The 24 bits choose one of 2²⁴ intervals of equal probability; the result is the inverse normal
    distribution function at its midpoint. Results are symmetric about zero and at most 5.42 in
    size; a normal variable exceeds 5.42 with probability 6e-8.
    """
    steps = (bits >> jnp.uint32(32 - NORMAL_BITS)).astype(jnp.int32)
    # Odd whole numbers below 2²⁴ in size, which float32 holds exactly.
    symmetric = (2 * steps + (1 - 2**NORMAL_BITS)).astype(jnp.float32)
    normal: Array = np.float32(math.sqrt(2.0)) * lax.erf_inv(symmetric * 2.0**-NORMAL_BITS)
    return normal


State = TypeVar("State")
Draws = TypeVar("Draws")

Words = tuple[Array, Array]
"""Two words (uint32) of a random key."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkovChain(Generic[State, Draws]):
    """A Markov chain whose states lie in cells: an environment under a policy.

    Attributes:
        num_cells: Number of cells.
        start: (key, cell) → state drawn from the start distribution of that cell.
        draw: (words, rollout, time) → the randomness of one step of one chain. ``words`` are the
            two words (uint32, []) of a key; ``rollout`` and ``time`` (uint32, []) count draws of
            this key, and different pairs must give different draws. Words are passed instead of a
            key array, so that a batch of draws is contiguous in memory.
        advance: (state, draws) → next state, for one chain.
        cell: state → index [] (int32) of its cell.
    """

    num_cells: int
    start: Callable[[Array, Array], State]
    draw: Callable[[Words, Array, Array], Draws]
    advance: Callable[[State, Draws], State]
    cell: Callable[[State], Array]


def environment_chain(
    environment: Any,
    *,
    num_cells: int,
    start: Callable[[Array, Array], State],
    cell: Callable[[State], Array],
    policy: Callable[[Array, State], Array] | None = None,
) -> MarkovChain[State, Any]:
    """Return the Markov chain on cells that a policy generates in an environment.

    Termination is ignored: the chain follows whatever ``step`` does in a terminal state.

    Args:
        environment: Anything with ``step(key, state, action) → TimeStep`` and ``num_actions``.
        num_cells: Number of cells.
        start: (key, cell) → start state.
        cell: state → cell index.
        policy: (key, state) → action; None is the uniformly random policy.
    """
    require_positive("num_cells", num_cells)

    def draw(words: Words, rollout: Array, time: Array) -> tuple[Array, Array]:
        # Two counters per step: one for the environment's key, one for the policy's.
        step_key = jnp.stack(threefry2x32(words, (2 * rollout, time)))
        choice = threefry2x32(words, (2 * rollout + 1, time))
        if policy is None:
            return step_key, _uniform_action(choice, environment.num_actions)
        return step_key, jnp.stack(choice)

    def advance(state: State, draws: tuple[Array, Array]) -> State:
        step_key, choice = draws
        action = choice if policy is None else policy(_key(choice), state)
        next_state: State = environment.step(_key(step_key), state, action).state
        return next_state

    return MarkovChain(num_cells=num_cells, start=start, draw=draw, advance=advance, cell=cell)


def _key(words: Array) -> Array:
    key: Array = jax.random.wrap_key_data(words, impl=PRNG)
    return key


def _uniform_action(words: Words, num_actions: int) -> Array:
    """Draw a uniformly random action [] (int32) from 64 random bits."""
    if num_actions & (num_actions - 1) == 0:
        low_bits: Array = words[0] & jnp.uint32(num_actions - 1)
        return low_bits.astype(jnp.int32)
    return jax.random.randint(_key(jnp.stack(words)), (), 0, num_actions, jnp.int32)


def puddle_world_chain(
    environment: PuddleWorld, grid: Grid
) -> MarkovChain[Array, tuple[Array, Array, Array]]:
    """Return the Markov chain of PuddleWorld under the uniformly random policy.

    Its states are positions [2], and starts are uniform inside a cell. Its cells are the states of
    the grid with the environment's walls. ``environment_chain`` gives a chain with the same
    distribution, but this chain needs only one block of random bits for each step.
    """
    grid = grid.within(environment)

    def draw(words: Words, rollout: Array, time: Array) -> tuple[Array, Array, Array]:
        first, second = threefry2x32(words, (rollout, time))
        # Normals use the high bits of each word; the action uses two of the low bits.
        action = (first & jnp.uint32(environment.num_actions - 1)).astype(jnp.int32)
        return standard_normal(first), standard_normal(second), action

    def advance(position: Array, draws: tuple[Array, Array, Array]) -> Array:
        noise_x, noise_y, action = draws
        return environment.move(position, action, jnp.stack([noise_x, noise_y]))

    return MarkovChain(
        num_cells=grid.num_states, start=grid.sample, draw=draw, advance=advance, cell=grid.state
    )
