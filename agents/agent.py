"""An agent put together from its configuration: network, learning, memory, and how they meet.

What both loops share. Everything is for one agent; the loops ``vmap``.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.agents.auxiliary import AuxiliaryTask, make_auxiliary_task
from rlreps.agents.config import AgentConfig
from rlreps.agents.dqn import DQN, DQNState, Metrics, make_dqn
from rlreps.agents.networks import QNetwork, make_network
from rlreps.agents.replay import (
    Draw,
    Replay,
    add,
    draw_prioritised,
    draw_uniform,
    init_replay,
    set_priorities,
)
from rlreps.agents.rows import Rows
from rlreps.encoders import Encoder
from rlreps.encoders.registry import make_encoder
from rlreps.validation import require


class Use(enum.IntEnum):
    """What a random key is for."""

    NETWORK = 0
    RESET = 1
    ACT = 2
    STEP = 3
    LEARN = 4
    EVALUATE = 5
    MEASURE = 6


def agent_keys(config: AgentConfig) -> Array:
    """One key a seed, [seeds]."""
    keys: Array = jax.vmap(jax.random.key)(
        config.seed + jnp.arange(config.num_seeds, dtype=jnp.int32)
    )
    return keys


def keys_for(keys: Array, use: Use, count: int | Array) -> Array:
    """Keys [seeds] for one use at one time, from one key a seed: no chunk or resume changes them.

    Args:
        keys: ``agent_keys``.
        use: What for.
        count: Rows that each environment had added, or steps; [].
    """
    fold = jax.random.fold_in
    folded: Array = jax.vmap(lambda key: fold(fold(key, use), count))(keys)
    return folded


class Memory(NamedTuple):
    """What an agent has learned and what it remembers.

    Attributes:
        learner: What it has learned.
        replay: What it remembers.
    """

    learner: DQNState
    replay: Replay


class Agent(NamedTuple):
    """An agent.

    Attributes:
        network: Torso and values.
        dqn: How it acts and learns.
        init: key → memory.
        remember: (memory, rows that each environment added before [], rows [environments, ...]) →
            memory.
        learn: (memory, rows that each environment has added [], key) → (memory, metrics).
        epsilon: Rows that each environment has added [] → share of random actions [].
    """

    network: QNetwork
    dqn: DQN
    init: Callable[[Array], Memory]
    remember: Callable[[Memory, Array, Rows], Memory]
    learn: Callable[[Memory, Array, Array], tuple[Memory, Metrics]]
    epsilon: Callable[[Array], Array]


def make_agent(
    config: AgentConfig,
    observation_shape: Sequence[int],
    num_actions: int,
    *,
    observation_dtype: Any = jnp.float32,
    torso: Encoder | None = None,
    auxiliary: AuxiliaryTask | None = None,
) -> Agent:
    """The agent that a configuration describes.

    Args:
        config: The configuration.
        observation_shape: Of one observation.
        num_actions: Discrete actions, numbered from 0.
        observation_dtype: Of observations; bytes are kept as bytes.
        torso: An encoder of the user's own, with ``config.num_features`` outputs.
        auxiliary: An auxiliary task of the user's own, weighed by the configuration's weight.

    Raises:
        InputError: For images without a torso that takes them, or an auxiliary task that does not
            fit observations or features.
    """
    encoder = torso if torso is not None else make_torso(config, observation_shape)
    network = make_network(encoder, config.num_features, num_actions)
    if auxiliary is None and config.auxiliary.weight > 0.0:
        auxiliary = make_auxiliary_task(
            config.auxiliary,
            num_features=config.num_features,
            observation_shape=tuple(observation_shape),
            observation_dtype=observation_dtype,
            torso_shapes=jax.eval_shape(encoder.init, jax.random.key(0)),
            learning_rate=config.dqn.learning_rate,
        )
    if auxiliary is not None:
        # The memory and the warm-up were checked for sequences of this length.
        most = config.sequence_length
        require(
            auxiliary.length <= most,
            f"an auxiliary task of at most {most} rows a sequence (horizon)",
            auxiliary.length,
        )
    dqn = make_dqn(
        config.dqn, network, auxiliary=auxiliary, auxiliary_weight=config.auxiliary.weight
    )
    length = config.dqn.n_step + 1
    observation = jnp.zeros(tuple(observation_shape), observation_dtype)

    def init(key: Array) -> Memory:
        return Memory(dqn.init(key), init_replay(config.replay, observation, config.num_envs))

    def remember(memory: Memory, count: Array, rows: Rows) -> Memory:
        return memory._replace(replay=add(memory.replay, count, rows, length))

    def draw(key: Array, replay: Replay, count: Array) -> Draw:
        if config.replay.prioritised:
            exponent = config.replay.importance_exponent
            return draw_prioritised(key, replay, count, config.dqn.batch_size, length, exponent)
        return draw_uniform(key, replay, count, config.dqn.batch_size, length)

    def learn(memory: Memory, count: Array, key: Array) -> tuple[Memory, Metrics]:
        value_key, auxiliary_key, loss_key = jax.random.split(key, 3)
        replay = memory.replay
        drawn = draw(value_key, replay, count)
        rows = None
        if auxiliary is not None:
            wanted = (auxiliary.sequences, auxiliary.length)
            rows = draw_uniform(auxiliary_key, replay, count, *wanted).rows
        learner, errors, metrics = dqn.update(
            memory.learner, drawn.rows, drawn.weights, rows, loss_key
        )
        if config.replay.prioritised:
            exponent = config.replay.priority_exponent
            replay = set_priorities(replay, drawn.starts, errors, exponent)
        return Memory(learner, replay), metrics

    def epsilon(count: Array) -> Array:
        steps = (count * config.num_envs).astype(jnp.float32)
        share = jnp.minimum(steps / config.dqn.epsilon_steps, 1.0)
        start, end = config.dqn.epsilon_start, config.dqn.epsilon_end
        return start + (end - start) * share

    return Agent(network, dqn, init, remember, learn, epsilon)


def make_torso(config: AgentConfig, observation_shape: Sequence[int]) -> Encoder:
    """The torso that a configuration names.

    Raises:
        InputError: If observations are no vectors.
    """
    require(
        len(observation_shape) == 1,
        f"observations that are vectors, for the torso {config.encoder.name}; images need a "
        "convolutional one",
        f"shape {tuple(observation_shape)}",
    )
    return make_encoder(
        config.encoder,
        num_inputs=observation_shape[0],
        num_states=1,
        num_features=config.num_features,
    )
