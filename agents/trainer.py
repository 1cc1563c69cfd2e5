"""Trainers: agents in their environments, made from a configuration."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.compiled import CompiledTrainer, Trainer, place_agents
from rlreps.agents.config import AgentConfig, make_agent, puddle_world_of
from rlreps.agents.dqn import DQN
from rlreps.agents.environments import HostEnvironments
from rlreps.agents.host import HostTrainer
from rlreps.encoders import Encoder
from rlreps.envs.core import observation_struct
from rlreps.errors import require, require_memory

_SEQUENCES_BETWEEN_CUTS = 4


def make_trainer(
    config: AgentConfig,
    *,
    devices: Sequence[jax.Device] | None = None,
    torso: Encoder | None = None,
    auxiliary: AuxiliaryTask | None = None,
) -> Trainer:
    """Make the trainer of a configuration: compiled for PuddleWorld, on the host for others.

    Args:
        config: The run.
        devices: Devices over which seeds are distributed, if the trainer is compiled.
        torso: A user's own encoder instead of the configured one.
        auxiliary: A user's own auxiliary task instead of the configured one.

    Raises:
        InputError: For an environment that does not exist or does not fit the agent.
        ArenaError: For an unknown or invalid arena.
    """
    world = puddle_world_of(config)
    if world is not None:
        sight, actions = observation_struct(world), world.num_actions
    else:
        # Checkpoints, which cut episodes, must leave whole sequences.
        least = _SEQUENCES_BETWEEN_CUTS * config.sequence_length * config.num_envs
        require(
            config.checkpoint_period >= least,
            f"checkpoint_every >= {least} for {config.environment}, whose episodes are cut at "
            f"checkpoints ({_SEQUENCES_BETWEEN_CUTS} sequences of {config.sequence_length} rows of "
            f"{config.num_envs} environments)",
            config.checkpoint_period,
        )
        seen = HostEnvironments(config.environment, 1)
        seen.close()
        sight = jax.ShapeDtypeStruct(seen.observation_shape, seen.observation_dtype)
        actions = seen.num_actions
    parts: dict[str, Any] = {"torso": torso, "auxiliary": auxiliary}
    agent = make_agent(config, sight.shape, actions, observation_dtype=sight.dtype, **parts)
    if world is not None:
        share = place_agents(devices, config.num_seeds).share
        _require_room(agent, math.ceil(share * config.num_seeds))
        return CompiledTrainer(config, world, agent, devices=devices)
    _require_room(agent, config.num_seeds)
    limit = config.max_episode_steps
    make = partial(HostEnvironments, config.environment, max_episode_steps=limit)
    return HostTrainer(config, make, agent)


def _require_room(agent: DQN, seeds: int) -> None:
    """Raise an ``InputError`` if the states of this many agents cannot fit into memory."""
    state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
    # Python's integers do not overflow.
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    require_memory(f"the state of {seeds:,} agents, replay included", size * seeds)
