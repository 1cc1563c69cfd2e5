"""State representations for reinforcement learning on JAX: ground truth, losses, pictures.

``successor`` computes successor measures and loads the released one; ``losses``, ``encoders``,
``sources`` and ``training`` train a representation; ``subspace`` measures it; ``streaming`` is
online PCA; ``agents`` and ``envs`` use it. Submodules load on first use: ``import rlreps`` loads
neither JAX nor matplotlib.
"""

import importlib
from types import ModuleType

__version__ = "0.2.0"

_SUBMODULES = (
    "agents",
    "cumulants",
    "encoders",
    "envs",
    "errors",
    "experiments",
    "losses",
    "operators",
    "plotting",
    "report",
    "sources",
    "streaming",
    "subspace",
    "successor",
    "runs",
    "training",
    "workflows",
)

__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"rlreps.{name}")
    raise AttributeError(f"module 'rlreps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
