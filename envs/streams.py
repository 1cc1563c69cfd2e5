"""Streams of random numbers for the adapters: a key that is split once per reset and per step."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from rlreps.envs.core import Environment, TimeStep


def make_streams(seed: int, count: int) -> jax.Array:
    """Return ``count`` keys, for the seeds seed, seed + 1, ... (modulo 2^32)."""
    return make_streams_of(range(seed, seed + count))


def make_streams_of(seeds: Iterable[int]) -> jax.Array:
    """Return one key for each of the seeds (modulo 2^32)."""
    return jax.vmap(jax.random.key)(np.array([int(seed) % 2**32 for seed in seeds], np.uint32))


@jax.jit
def reset_stream(environment: Environment, stream: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
    """Start an episode; return the stream's next key beside the state and its observation."""
    stream, key = jax.random.split(stream)
    state = environment.reset(key)
    return stream, state, environment.observe(state)


@jax.jit
def step_stream(
    environment: Environment, stream: jax.Array, state: Any, action: jax.Array
) -> tuple[jax.Array, TimeStep]:
    """Take a step; return the stream's next key beside what came of it."""
    stream, key = jax.random.split(stream)
    return stream, environment.step(key, state, action)


def observation_shape(environment: Environment) -> tuple[int, ...]:
    """Return the shape of an observation, without computing one."""
    shape: tuple[int, ...] = jax.eval_shape(
        lambda key: environment.observe(environment.reset(key)), jax.random.key(0)
    ).shape
    return shape


def name_actions(environment: Environment) -> str:
    """Return the valid actions as a set, for messages."""
    return "{" + ", ".join(map(str, range(environment.num_actions))) + "}"
