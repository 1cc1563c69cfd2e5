"""Trainers: agents in their environments, made from a configuration."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import jax
from jax import Array

from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.compiled import CompiledTrainer, TrainerState
from rlreps.agents.dqn import DQN, AgentConfig, make_agent
from rlreps.agents.environments import describe, make_host_environments
from rlreps.agents.host import HostTrainer
from rlreps.encoders import Encoder
from rlreps.envs import PuddleWorld, load_arena
from rlreps.errors import require
from rlreps.losses.base import Metrics

PUDDLE_WORLD = "puddle-world"
"""The environment that is compiled together with the agent; an arena may follow after a colon."""

DEFAULT_ARENA = "sutton"

_SEQUENCES_BETWEEN_CUTS = 4


class Trainer(Protocol):
    """Agents in their environments; see ``CompiledTrainer`` for what the functions do."""

    agent: DQN

    def init(self) -> TrainerState:
        """Make agents before their first step."""

    def advance(self, state: TrainerState, step: int, steps: int) -> tuple[TrainerState, Metrics]:
        """Let agents act and learn; the state handed in is used up."""

    def evaluate(self, state: TrainerState, step: int) -> Array:
        """Compute undiscounted returns [seeds, episodes] of greedy episodes."""

    def put(self, state: TrainerState) -> TrainerState:
        """Place a state from a checkpoint where this trainer wants it."""

    def close(self) -> None:
        """Free what the environments hold."""


def puddle_world_of(config: AgentConfig) -> PuddleWorld | None:
    """Load the PuddleWorld, with its task, that a configuration names; None for any other.

    Raises:
        ArenaError: For an unknown or invalid arena.
    """
    name, _, arena = config.environment.partition(":")
    if name != PUDDLE_WORLD:
        return None
    world = load_arena(arena or DEFAULT_ARENA).with_task()
    return dataclasses.replace(world, max_steps=config.max_episode_steps)


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
        agent = make_agent(config, (2,), world.num_actions, **own)
        return CompiledTrainer(config, world, agent, devices=devices)
    _require_whole_episodes(config)
    seen = describe(config.environment)
    agent = make_agent(
        config,
        seen.observation_shape,
        seen.num_actions,
        observation_dtype=seen.observation_dtype,
        **own,
    )
    make = partial(
        make_host_environments, config.environment, max_episode_steps=config.max_episode_steps
    )
    return HostTrainer(config, make, agent)


def _require_whole_episodes(config: AgentConfig) -> None:
    """Raise an ``InputError`` where checkpoints, which cut episodes, would leave no sequence."""
    least = _SEQUENCES_BETWEEN_CUTS * config.sequence_length * config.num_envs
    require(
        config.checkpoint_every >= least,
        f"checkpoint_every >= {least} for {config.environment}, whose episodes are cut at "
        f"checkpoints ({_SEQUENCES_BETWEEN_CUTS} sequences of {config.sequence_length} rows of "
        f"{config.num_envs} environments)",
        config.checkpoint_every,
    )
