"""Random keys of agents and seeds of their environments, by purpose and time.

A key does not depend on chunks of training, evaluations or resumptions; no agents share a key.
"""

import enum
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl

from rlreps.errors import require_positive
from rlreps.numerics import PRNG, threefry2x32


class Use(enum.IntEnum):
    """Purposes of random keys."""

    NETWORK = 0
    RESET = 1
    ACT = 2
    STEP = 3
    LEARN = 4
    EVALUATE = 5


def key_for(key: Array, use: Use, count: int | Array) -> Array:
    """Derive an agent's key for one use at one time.

    Args:
        key: The agent's own key.
        use: The purpose.
        count: Rows that each environment had added, or steps; [].
    """
    return jax.random.fold_in(jax.random.fold_in(key, use), count)


def unrolled(key: Array) -> Array:
    """Return a key [...] whose draws have the same bits, but are compiled without loops.

    On a CPU, JAX compiles every draw of its generator, Threefry, to a loop over rounds. With these
    loops, one agent without an auxiliary task took 1.6 times as long (1.25 to 1.9 in nine pairs).
    """
    made: Array = jax.random.wrap_key_data(jax.random.key_data(key), impl=_UNROLLED)
    return made


def _of_counters(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    low = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return _encrypted(key, low)


def _encrypted(key: Array, low: Array) -> tuple[Array, Array]:
    return threefry2x32((key[0], key[1]), (jnp.zeros_like(low), low), rounds=20)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_of_counters(key, shape), axis=-1)


def _random_bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    high, low = _of_counters(key, shape)
    if width == 64:
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    return (high ^ low).astype(f"uint{width}")


def _fold_in(key: Array, data: Array | int) -> Array:
    return jnp.stack(_encrypted(key, jnp.asarray(data, jnp.uint32)))


def _seed(seed: Array) -> Array:
    return jax.random.key_data(jax.random.key(seed, impl=PRNG))


_UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="unrolled threefry2x32",
    tag="ufr",
)


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


def evaluation_seeds(agent_seed: int, step: int, episodes: int) -> list[int]:
    """Derive the seeds with which an agent's evaluation begins its episodes on the host.

    An environment that is reset with them starts as the agent's own, for comparisons with agents.

    Args:
        agent_seed: The agent's own seed.
        step: The step given to ``AgentProgram.play`` or ``evaluate``.
        episodes: Number of episodes.

    Returns:
        Seeds in [0, 2^31), one for each episode.
    """
    for name, value in (("agent_seed", agent_seed), ("step", step), ("episodes", episodes)):
        require_positive(name, value, least=0, most=2**63)
    return [environment_seed(agent_seed, Use.EVALUATE, step, copy) for copy in range(episodes)]
