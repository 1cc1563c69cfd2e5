"""Markov chains on cells: an environment under a policy, in the form that rollouts work with."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.numerics import PRNG
from rlreps.successor.counter_random import threefry2x32

State = TypeVar("State")
Draws = TypeVar("Draws")

Words = tuple[Array, Array]
"""Two words (uint32) of a random key."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkovChain(Generic[State, Draws]):
    """A Markov chain on states that fall into cells: an environment under a policy.

    Attributes:
        num_cells: Number of cells.
        start: (key, cell) → state drawn from the start distribution of that cell.
        draw: (words, rollout, time) → the randomness of one step of one chain. ``words`` are the
            two words (uint32, []) of a key, ``rollout`` and ``time`` (uint32, []) count below it:
            no two of their pairs may give the same draws. Words and not key arrays, so that a batch
            of them is contiguous in memory.
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
    """An environment that meets the contract, under a policy, as a Markov chain on cells.

    Termination is not acted upon: the chain follows whatever ``step`` does in a terminal state.

    Args:
        environment: Anything with ``step(key, state, action) → TimeStep`` and ``num_actions``.
        num_cells: Number of cells.
        start: (key, cell) → start state.
        cell: state → cell index.
        policy: (key, state) → action; None is uniformly random.

    Returns:
        The chain.
    """

    def draw(words: Words, rollout: Array, time: Array) -> tuple[Array, Array]:
        # Two counters a step: one for the environment's key, one for the policy's.
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
    """A uniformly random action [] (int32) from 64 random bits."""
    if num_actions & (num_actions - 1) == 0:
        low_bits: Array = words[0] & jnp.uint32(num_actions - 1)
        return low_bits.astype(jnp.int32)
    return jax.random.randint(_key(jnp.stack(words)), (), 0, num_actions, jnp.int32)
