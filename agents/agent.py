"""An agent put together from its configuration: network, learning, memory, and how they meet.

What both loops share. Everything is for one agent; the loops ``vmap``.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.agents.auxiliary import AuxiliaryTask, make_auxiliary_task
from rlreps.agents.config import AgentConfig
from rlreps.agents.dqn import DQN, DQNState, Metrics
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
from rlreps.errors import require


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent: how it acts, remembers and learns from what it remembers.

    Attributes:
        config: The run it is for.
        dqn: How it acts and learns.
        observation: Shape and dtype of an observation.
    """

    config: AgentConfig
    dqn: DQN
    observation: jax.ShapeDtypeStruct

    @property
    def network(self) -> QNetwork:
        """Torso and values."""
        return self.dqn.network

    def init(self, key: Array) -> Memory:
        """An agent before its first step."""
        empty = init_replay(self.config.replay, self.observation, self.config.num_envs)
        return Memory(self.dqn.init(key), empty)

    def remember(self, memory: Memory, count: Array, rows: Rows) -> Memory:
        """The memory with one more row of each environment.

        Args:
            memory: The memory.
            count: Rows that each environment added before, [] (int32).
            rows: [environments, ...].
        """
        return memory._replace(replay=add(memory.replay, count, rows, self._length))

    def learn(self, memory: Memory, count: Array, key: Array) -> tuple[Memory, Metrics]:
        """One update from replayed sequences.

        Args:
            memory: The memory.
            count: Rows that each environment has added, [] (int32).
            key: Random key.

        Returns:
            The memory, and the update's losses.
        """
        value_key, auxiliary_key, loss_key = jax.random.split(key, 3)
        drawn = self._draw(value_key, memory.replay, count)
        task, rows = self.dqn.auxiliary, None
        if task is not None:
            wanted = (task.sequences, task.length)
            rows = draw_uniform(auxiliary_key, memory.replay, count, *wanted).rows
        learner, errors, metrics = self.dqn.update(
            memory.learner, drawn.rows, drawn.weights, rows, loss_key
        )
        replay = memory.replay
        if self.config.replay.prioritised:
            exponent = self.config.replay.priority_exponent
            replay = set_priorities(replay, drawn.starts, errors, exponent)
        return Memory(learner, replay), metrics

    def epsilon(self, count: Array) -> Array:
        """Share of random actions [] after ``count`` rows of each environment."""
        steps = (count * self.config.num_envs).astype(jnp.float32)
        share = jnp.minimum(steps / self.config.dqn.epsilon_steps, 1.0)
        start, end = self.config.dqn.epsilon_start, self.config.dqn.epsilon_end
        return start + (end - start) * share

    @property
    def _length(self) -> int:
        """Rows of an n-step transition."""
        return self.config.dqn.n_step + 1

    def _draw(self, key: Array, replay: Replay, count: Array) -> Draw:
        number = self.config.dqn.batch_size
        if self.config.replay.prioritised:
            exponent = self.config.replay.importance_exponent
            return draw_prioritised(key, replay, count, number, self._length, exponent)
        return draw_uniform(key, replay, count, number, self._length)


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
        InputError: For images without a torso that takes them, or an auxiliary task that has no
            weight or does not fit observations or features.
    """
    observation = jax.ShapeDtypeStruct(tuple(observation_shape), observation_dtype)
    encoder = torso if torso is not None else make_torso(config, observation.shape)
    if auxiliary is not None:
        _require_task(config, auxiliary)
    elif config.auxiliary.weight > 0.0:
        auxiliary = make_auxiliary_task(
            config.auxiliary,
            num_features=config.num_features,
            observation_shape=observation.shape,
            observation_dtype=observation_dtype,
            encoder=encoder,
            learning_rate=config.dqn.learning_rate,
        )
    dqn = DQN(
        config=config.dqn,
        network=make_network(encoder, config.num_features, num_actions),
        auxiliary=auxiliary,
        auxiliary_weight=config.auxiliary.weight,
    )
    return Agent(config=config, dqn=dqn, observation=observation)


def _require_task(config: AgentConfig, task: AuxiliaryTask) -> None:
    """Raises an ``InputError`` unless a task of the user's own has a weight and enough rows."""
    require(
        config.auxiliary.weight > 0.0,
        "an auxiliary weight > 0 for the auxiliary task",
        config.auxiliary.weight,
    )
    # The memory and the warm-up were checked for sequences of this length.
    most = config.sequence_length
    require(
        task.length <= most,
        f"an auxiliary task of at most {most} rows a sequence (horizon)",
        task.length,
    )


def make_torso(config: AgentConfig, observation_shape: Sequence[int]) -> Encoder:
    """The torso that a configuration names.

    Raises:
        InputError: If observations are no vectors.
    """
    require(
        len(observation_shape) == 1,
        f"observations that are vectors, for the torso {config.encoder.name}; images need a "
        "convolutional one",
        tuple(observation_shape),
    )
    return make_encoder(
        config.encoder,
        num_inputs=observation_shape[0],
        num_states=1,
        num_features=config.num_features,
    )
