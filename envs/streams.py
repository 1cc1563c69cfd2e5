"""Streams of random numbers for the adapters: a key that is split once per reset and per step."""

import jax
import numpy as np

from rlreps.envs.core import TimeStep
from rlreps.envs.puddle_world import PuddleWorld, PuddleWorldState


def make_streams(seed: int, count: int) -> jax.Array:
    """Return ``count`` keys, for the seeds seed, seed + 1, ... (modulo 2^32)."""
    seeds = (np.uint64(seed % 2**32) + np.arange(count, dtype=np.uint64)) % np.uint64(2**32)
    return jax.vmap(jax.random.key)(seeds.astype(np.uint32))


@jax.jit
def reset_stream(environment: PuddleWorld, stream: jax.Array) -> tuple[jax.Array, PuddleWorldState]:
    """Start an episode; return the stream's next key beside the state."""
    stream, key = jax.random.split(stream)
    return stream, environment.reset(key)


@jax.jit
def step_stream(
    environment: PuddleWorld, stream: jax.Array, state: PuddleWorldState, action: jax.Array
) -> tuple[jax.Array, TimeStep]:
    """Take a step; return the stream's next key beside what came of it."""
    stream, key = jax.random.split(stream)
    return stream, environment.step(key, state, action)
