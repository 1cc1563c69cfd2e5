"""Agents that use the representation losses as auxiliary tasks.

Names load on first use: importing this package leaves JAX and rlax alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.agents.auxiliary import AuxiliaryConfig, AuxiliaryTask, make_auxiliary_task
    from rlreps.agents.compiled import CompiledTrainer, Trainer
    from rlreps.agents.config import AgentConfig, make_agent
    from rlreps.agents.dqn import DQN, AgentState, DQNConfig
    from rlreps.agents.environments import make_host_environments
    from rlreps.agents.host import HostTrainer
    from rlreps.agents.network import QNetwork
    from rlreps.agents.replay import ReplayConfig, Rows, episode_window, observed_rows, transitions
    from rlreps.agents.trainer import make_trainer

_MODULES = {
    "auxiliary": ("AuxiliaryConfig", "AuxiliaryTask", "make_auxiliary_task"),
    "compiled": ("CompiledTrainer", "Trainer"),
    "config": ("AgentConfig", "make_agent"),
    "dqn": ("DQN", "AgentState", "DQNConfig"),
    "environments": ("make_host_environments",),
    "host": ("HostTrainer",),
    "network": ("QNetwork",),
    "replay": ("ReplayConfig", "Rows", "episode_window", "observed_rows", "transitions"),
    "trainer": ("make_trainer",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "DQN",
    "AgentConfig",
    "AgentState",
    "AuxiliaryConfig",
    "AuxiliaryTask",
    "CompiledTrainer",
    "DQNConfig",
    "HostTrainer",
    "QNetwork",
    "ReplayConfig",
    "Rows",
    "Trainer",
    "episode_window",
    "make_agent",
    "make_auxiliary_task",
    "make_host_environments",
    "make_trainer",
    "observed_rows",
    "transitions",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"rlreps.agents.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rlreps.agents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
