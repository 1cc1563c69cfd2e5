"""Deep Q-networks with features fitted to replay, priors and auxiliary tasks.

Names load on first use: importing this package loads neither JAX nor rlax.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.agents.auxiliary import AuxiliaryConfig as AuxiliaryConfig
    from rlreps.agents.auxiliary import AuxiliaryTask as AuxiliaryTask
    from rlreps.agents.auxiliary import make_auxiliary_task as make_auxiliary_task
    from rlreps.agents.config import AgentConfig as AgentConfig
    from rlreps.agents.config import make_agent as make_agent
    from rlreps.agents.dqn import DQN as DQN
    from rlreps.agents.dqn import AgentState as AgentState
    from rlreps.agents.dqn import DQNConfig as DQNConfig
    from rlreps.agents.features import FeatureConfig as FeatureConfig
    from rlreps.agents.features import Prior as Prior
    from rlreps.agents.features import prior_of as prior_of
    from rlreps.agents.gymnax_adapter import GymnaxEnvironment as GymnaxEnvironment
    from rlreps.agents.gymnax_adapter import gymnax_environment as gymnax_environment
    from rlreps.agents.hosts import HostEnvironments as HostEnvironments
    from rlreps.agents.loop import CompiledProgram as CompiledProgram
    from rlreps.agents.loop import HostProgram as HostProgram
    from rlreps.agents.loop import make_program as make_program
    from rlreps.agents.network import QNetwork as QNetwork
    from rlreps.agents.program import AgentProgram as AgentProgram
    from rlreps.agents.replay import ReplayConfig as ReplayConfig
    from rlreps.agents.replay import Rows as Rows
    from rlreps.agents.replay import episode_window as episode_window
    from rlreps.agents.replay import observed_rows as observed_rows
    from rlreps.agents.replay import transitions as transitions

_NAMES = {
    "auxiliary": "AuxiliaryConfig AuxiliaryTask make_auxiliary_task",
    "config": "AgentConfig make_agent",
    "dqn": "DQN AgentState DQNConfig",
    "hosts": "HostEnvironments",
    "features": "FeatureConfig Prior prior_of",
    "gymnax_adapter": "GymnaxEnvironment gymnax_environment",
    "network": "QNetwork",
    "program": "AgentProgram",
    "replay": "ReplayConfig Rows episode_window observed_rows transitions",
    "loop": "CompiledProgram HostProgram make_program",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlreps.agents' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlreps.agents.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
