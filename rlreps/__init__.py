"""State representations for reinforcement learning on JAX: ground truth, losses, pictures.

``successor`` computes successor measures and loads released ones. ``losses``, ``encoders``,
``sources`` and ``training`` train a representation. ``subspace`` measures its error.
``streaming`` is online PCA. ``agents`` and ``envs`` put representations to use. Submodules load on
first use: ``import rlreps`` loads neither JAX nor matplotlib.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlreps import agents as agents
    from rlreps import app as app
    from rlreps import cumulants as cumulants
    from rlreps import encoders as encoders
    from rlreps import envs as envs
    from rlreps import errors as errors
    from rlreps import experiments as experiments
    from rlreps import explore as explore
    from rlreps import losses as losses
    from rlreps import operators as operators
    from rlreps import plotting as plotting
    from rlreps import report as report
    from rlreps import runs as runs
    from rlreps import sources as sources
    from rlreps import stats as stats
    from rlreps import streaming as streaming
    from rlreps import study as study
    from rlreps import subspace as subspace
    from rlreps import successor as successor
    from rlreps import training as training

__version__ = "0.2.0"

_SUBMODULES = (
    "agents",
    "app",
    "cumulants",
    "encoders",
    "envs",
    "errors",
    "experiments",
    "explore",
    "losses",
    "operators",
    "plotting",
    "report",
    "sources",
    "stats",
    "streaming",
    "study",
    "subspace",
    "successor",
    "runs",
    "training",
)

__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"rlreps.{name}")
    raise AttributeError(f"module 'rlreps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
