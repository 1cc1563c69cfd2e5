"""Markov chains on cells: an environment under a policy, in the form that rollouts work with."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

State = TypeVar("State")
Draws = TypeVar("Draws")

PRNG = "threefry2x32"
"""Pinned: others (``jax_default_prng_impl``) give random bits that depend on what they are batched
with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkovChain(Generic[State, Draws]):
    """A Markov chain on states that fall into cells: an environment under a policy.

    Attributes:
        num_cells: Number of cells.
        start: (key, cell) → state drawn from the start distribution of that cell.
        draw: (key, count) → the randomness of one step of ``count`` chains; the chain axis of every
            leaf comes last, so that each component is contiguous in memory. Keys are threefry2x32.
        advance: (state, draws) → next state, for one chain.
        cell: state → index [] (int32) of its cell.
    """

    num_cells: int
    start: Callable[[Array, Array], State]
    draw: Callable[[Array, int], Draws]
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

    def draw(key: Array, count: int) -> tuple[Array, Array]:
        step_key, policy_key = jax.random.split(key)
        if policy is None:
            return _key_data(step_key, count), _actions(policy_key, count, environment.num_actions)
        return _key_data(step_key, count), _key_data(policy_key, count)

    def advance(state: State, draws: tuple[Array, Array]) -> State:
        step_key, choice = draws
        action = choice if policy is None else policy(_key(choice), state)
        next_state: State = environment.step(_key(step_key), state, action).state
        return next_state

    return MarkovChain(num_cells=num_cells, start=start, draw=draw, advance=advance, cell=cell)


def _key_data(key: Array, count: int) -> Array:
    """Raw key data [2, count] of as many independent keys."""
    data: Array = jnp.moveaxis(jax.random.key_data(jax.random.split(key, count)), 0, -1)
    return data


def _key(data: Array) -> Array:
    key: Array = jax.random.wrap_key_data(data, impl=PRNG)
    return key


def _actions(key: Array, count: int, num_actions: int) -> Array:
    """Uniformly random actions [count] (int32)."""
    actions: Array
    if num_actions & (num_actions - 1) == 0 and num_actions <= 256:
        # A power of two needs only the low bits of one random byte: the kernel's inner loop.
        bits = jax.random.bits(key, (count,), jnp.uint8)
        actions = (bits & jnp.uint8(num_actions - 1)).astype(jnp.int32)
    else:
        actions = jax.random.randint(key, (count,), 0, num_actions, jnp.int32)
    return actions
