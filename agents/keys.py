"""Random keys of agents and seeds of their environments, by purpose and time.

No chunk, evaluation or resumption changes a key, and no other agent shares it.
"""

import enum
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Use(enum.IntEnum):
    """Purposes of random keys."""

    NETWORK = 0
    RESET = 1
    ACT = 2
    STEP = 3
    LEARN = 4
    EVALUATE = 5
    MEASURE = 6


def agent_keys(seeds: Iterable[int]) -> Array:
    """Make one key a seed, [seeds]."""
    keys: Array = jax.vmap(jax.random.key)(jnp.asarray([*seeds], jnp.int32))
    return keys


def key_for(key: Array, use: Use, count: int | Array) -> Array:
    """Derive an agent's key for one use at one time.

    Args:
        key: The agent's own key.
        use: The purpose.
        count: Rows that each environment had added, or steps; [].
    """
    return jax.random.fold_in(jax.random.fold_in(key, use), count)


def environment_seed(agent_seed: int, use: int, step: int, copy: int) -> int:
    """Derive a seed in [0, 2^31) for an environment on the host.

    Args:
        agent_seed: The agent's own seed.
        use: What the environment is for.
        step: Environment steps that the agent has taken.
        copy: Index of the agent's environment, or of an evaluation's episode.
    """
    entropy = (agent_seed, int(use), step, copy)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1
