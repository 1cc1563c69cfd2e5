"""State representations for reinforcement learning: ground truth, losses and pictures, on JAX.

Submodules load on first use, so that ``import rlreps`` and ``rlreps --help`` stay quick and pull in
neither matplotlib, rlax nor gymnasium.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_SUBMODULES = (
    "agents",
    "configs",
    "cumulants",
    "encoders",
    "envs",
    "errors",
    "experiments",
    "losses",
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
