"""Make the agents of a configuration and their program, whatever their environments are."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from rlreps.agents.compiled_program import CompiledProgram
from rlreps.agents.config import (
    AgentConfig,
    load_compiled_environment,
    make_agent,
    require_memory_for_agents,
)
from rlreps.agents.dqn import DQN
from rlreps.agents.host_program import HostProgram
from rlreps.agents.hosts import HostEnvironments
from rlreps.agents.program import AgentProgram
from rlreps.envs.core import observation_struct
from rlreps.errors import require

_SEQUENCES_BETWEEN_CUTS = 4


def make_agent_for(config: AgentConfig, **own: Any) -> DQN:
    """Make the agent of a configuration for its environment, which is opened to see its shapes.

    Args:
        config: The run.
        **own: A user's own parts, as for ``make_agent``.

    Raises:
        InputError: For an environment that does not exist or does not fit the agent.
    """
    world = load_compiled_environment(config)
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
    return make_agent(config, sight.shape, actions, observation_dtype=sight.dtype, **own)


def make_program(
    config: AgentConfig,
    agent: DQN | None = None,
    *,
    devices: Sequence[jax.Device] | None = None,
    **own: Any,
) -> AgentProgram:
    """Make the program of a configuration: compiled for PuddleWorld and gymnax, else on the host.

    Args:
        config: The run.
        agent: Its agent; by default ``make_agent_for`` makes it.
        devices: Devices over which seeds are distributed, if the program is compiled.
        **own: A user's own parts, as for ``make_agent``.

    Raises:
        InputError: As for ``make_agent_for``, or if the agents do not fit into memory.
    """
    agent = make_agent_for(config, **own) if agent is None else agent
    require_memory_for_agents(agent, config, devices)
    world = load_compiled_environment(config)
    if world is None:
        limit = config.max_episode_steps
        make = partial(HostEnvironments, config.environment, max_episode_steps=limit)
        return HostProgram(config, make, agent)
    # The environment's own limit of steps counts, if it has one.
    assert world.max_steps is not None
    config = dataclasses.replace(config, max_episode_steps=world.max_steps)
    return CompiledProgram(config, world, agent, devices=devices)
