"""Agents that use the representation losses as auxiliary tasks.

Names load on first use: importing this package leaves JAX and rlax alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.agents.agent import Agent, make_agent
    from rlreps.agents.auxiliary import AuxiliaryTask, make_auxiliary_task
    from rlreps.agents.compiled_loop import CompiledLoop, LoopState
    from rlreps.agents.config import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
    from rlreps.agents.dqn import DQN
    from rlreps.agents.host_environments import make_host_environments
    from rlreps.agents.host_loop import HostLoop
    from rlreps.agents.loops import make_loop
    from rlreps.agents.networks import QNetwork, make_network
    from rlreps.agents.rows import Rows, episode_window, transitions
    from rlreps.agents.targets import observed_rows

_HOMES = {
    "Agent": "agent",
    "AgentConfig": "config",
    "AuxiliaryConfig": "config",
    "AuxiliaryTask": "auxiliary",
    "CompiledLoop": "compiled_loop",
    "DQN": "dqn",
    "DQNConfig": "config",
    "HostLoop": "host_loop",
    "LoopState": "compiled_loop",
    "QNetwork": "networks",
    "ReplayConfig": "config",
    "Rows": "rows",
    "episode_window": "rows",
    "make_agent": "agent",
    "make_auxiliary_task": "auxiliary",
    "make_host_environments": "host_environments",
    "make_loop": "loops",
    "make_network": "networks",
    "observed_rows": "targets",
    "transitions": "rows",
}

__all__ = [
    "DQN",
    "Agent",
    "AgentConfig",
    "AuxiliaryConfig",
    "AuxiliaryTask",
    "CompiledLoop",
    "DQNConfig",
    "HostLoop",
    "LoopState",
    "QNetwork",
    "ReplayConfig",
    "Rows",
    "episode_window",
    "make_agent",
    "make_auxiliary_task",
    "make_host_environments",
    "make_loop",
    "make_network",
    "observed_rows",
    "transitions",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"rlreps.agents.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rlreps.agents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
