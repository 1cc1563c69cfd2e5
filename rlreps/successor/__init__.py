"""The successor measure: Monte-Carlo estimation, storage, and both together.

Names load on first use: reading a store needs no JAX, and the command line answers at once.
"""

import importlib
from typing import Any

_HOME = {
    "Grid": "grid",
    "MarkovChain": "monte_carlo",
    "MatrixStore": "store",
    "RolloutSettings": "monte_carlo",
    "RowSampler": "monte_carlo",
    "VerifyReport": "store",
    "create_or_resume": "store",
    "environment_chain": "monte_carlo",
    "generate": "generation",
    "open_store": "store",
    "puddle_world_chain": "generation",
    "verify": "store",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"rlreps.successor.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rlreps.successor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
