"""Trainers: agents in their environments, made from a configuration."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.compiled import CompiledTrainer, Trainer
from rlreps.agents.dqn import AgentConfig, make_agent
from rlreps.agents.environments import describe, make_host_environments
from rlreps.agents.host import HostTrainer
from rlreps.encoders import Encoder
from rlreps.envs import Position, PuddleWorld, load_arena
from rlreps.envs.core import observation_struct
from rlreps.errors import require, require_memory
from rlreps.runs.processes import process_count
from rlreps.training.devices import largest_even_share, make_placement

PUDDLE_WORLD = "puddle-world"
"""The environment that is compiled together with the agent; an arena may follow after a colon."""

DEFAULT_ARENA = "sutton"

_SEQUENCES_BETWEEN_CUTS = 4


def arena_of(config: AgentConfig) -> str | None:
    """Name the arena of PuddleWorld that agents act in; None for any other environment."""
    name, _, arena = config.environment.partition(":")
    return arena or DEFAULT_ARENA if name == PUDDLE_WORLD else None


def puddle_world_of(config: AgentConfig) -> PuddleWorld | None:
    """Load the PuddleWorld, with its task, that a configuration names; None for any other.

    Raises:
        InputError: For PuddleWorld's goal or observation in another environment.
        ArenaError: For an unknown or invalid arena.
    """
    arena, observation, goal = arena_of(config), config.observation, config.goal
    if arena is None:
        require(goal is None, f"a goal for {PUDDLE_WORLD} alone", config.environment)
        seen = observation == Position()
        require(seen, f"a kind of observation for {PUDDLE_WORLD} alone", config.environment)
        return None
    # A file may have an observation and a goal of its own.
    changes: dict[str, Any] = {} if observation == Position() else {"observation": observation}
    changes |= {} if goal is None else {"goal": goal}
    return load_arena(arena, max_steps=config.max_episode_steps, **changes).with_task()


def _require_room(config: AgentConfig, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise an ``InputError`` if the memories of all agents cannot fit, before any is made."""
    row = math.prod(shape) * np.dtype(dtype).itemsize + 9  # Action, reward and end.
    rows = (config.replay.capacity + config.num_envs) * config.num_seeds
    require_memory(f"replay of {rows:,} rows of all agents", rows * row)


def _held_here(config: AgentConfig, devices: Sequence[jax.Device] | None) -> AgentConfig:
    """Return the configuration of the agents that this process holds of a run of several."""
    if devices is None:
        return config
    share = make_placement(largest_even_share(devices, config.num_seeds), config.num_seeds).share
    return dataclasses.replace(config, num_seeds=math.ceil(share * config.num_seeds))


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
        devices: Over which seeds are shared out, where the trainer is compiled.
        torso: An encoder of the user's own in place of the configured one.
        auxiliary: An auxiliary task of the user's own in place of the configured one.

    Raises:
        InputError: For an environment that does not exist or does not fit the agent.
        ArenaError: For an unknown or invalid arena.
    """
    own: dict[str, Any] = {"torso": torso, "auxiliary": auxiliary}
    world = puddle_world_of(config)
    if world is not None:
        sight = observation_struct(world)
        _require_room(_held_here(config, devices), sight.shape, sight.dtype)
        agent = make_agent(
            config, sight.shape, world.num_actions, observation_dtype=sight.dtype, **own
        )
        return CompiledTrainer(config, world, agent, devices=devices)
    alone = process_count() == 1
    require(alone, f"{PUDDLE_WORLD} for several processes", config.environment)
    # Checkpoints, which cut episodes, must leave whole sequences.
    least = _SEQUENCES_BETWEEN_CUTS * config.sequence_length * config.num_envs
    require(
        config.checkpoint_period >= least,
        f"checkpoint_every >= {least} for {config.environment}, whose episodes are cut at "
        f"checkpoints ({_SEQUENCES_BETWEEN_CUTS} sequences of {config.sequence_length} rows of "
        f"{config.num_envs} environments)",
        config.checkpoint_period,
    )
    seen = describe(config.environment)
    _require_room(config, seen.observation_shape, seen.observation_dtype)
    agent = make_agent(
        config,
        seen.observation_shape,
        seen.num_actions,
        observation_dtype=seen.observation_dtype,
        **own,
    )
    limit = config.max_episode_steps
    make = partial(make_host_environments, config.environment, max_episode_steps=limit)
    return HostTrainer(config, make, agent)
