"""The successor measure: Monte-Carlo estimation, storage, and both together.

Names load on first use: reading a store needs no JAX, and the command line answers at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.successor.generation import generate, rollout_settings
    from rlreps.successor.grid import Grid
    from rlreps.successor.markov_chain import MarkovChain, environment_chain
    from rlreps.successor.monte_carlo import RolloutSettings, RowSampler
    from rlreps.successor.puddle_world import puddle_world_chain
    from rlreps.successor.released import load, released_names
    from rlreps.successor.store import (
        MatrixStore,
        VerifyReport,
        create_or_resume,
        open_store,
        verify,
    )

_HOME = {
    "Grid": "grid",
    "MarkovChain": "markov_chain",
    "MatrixStore": "store",
    "RolloutSettings": "monte_carlo",
    "RowSampler": "monte_carlo",
    "VerifyReport": "store",
    "create_or_resume": "store",
    "environment_chain": "markov_chain",
    "generate": "generation",
    "load": "released",
    "open_store": "store",
    "puddle_world_chain": "puddle_world",
    "released_names": "released",
    "rollout_settings": "generation",
    "verify": "store",
}

__all__ = [
    "Grid",
    "MarkovChain",
    "MatrixStore",
    "RolloutSettings",
    "RowSampler",
    "VerifyReport",
    "create_or_resume",
    "environment_chain",
    "generate",
    "load",
    "open_store",
    "puddle_world_chain",
    "released_names",
    "rollout_settings",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"rlreps.successor.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rlreps.successor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
