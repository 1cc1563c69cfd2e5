"""The successor measure: two methods for it, storage, and released ground truths.

Names load on first use: reading a store needs no JAX, and the command line answers at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.successor.box_grid import BoxGrid
    from rlreps.successor.estimates import RowEstimates
    from rlreps.successor.filling import MatrixPlan, fill_store
    from rlreps.successor.generation import generate, rollout_settings
    from rlreps.successor.grid import Grid
    from rlreps.successor.gymnasium_process import GymnasiumProcess
    from rlreps.successor.gymnasium_rollouts import GymnasiumRowSampler, starts_in_cells
    from rlreps.successor.gymnasium_visits import VisitSettings, every_visit
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
    from rlreps.successor.transition import TransitionEstimator, TransitionSettings

_HOME = {
    "BoxGrid": "box_grid",
    "Grid": "grid",
    "GymnasiumProcess": "gymnasium_process",
    "GymnasiumRowSampler": "gymnasium_rollouts",
    "MarkovChain": "markov_chain",
    "MatrixPlan": "filling",
    "MatrixStore": "store",
    "RolloutSettings": "monte_carlo",
    "RowEstimates": "estimates",
    "RowSampler": "monte_carlo",
    "TransitionEstimator": "transition",
    "TransitionSettings": "transition",
    "VerifyReport": "store",
    "VisitSettings": "gymnasium_visits",
    "create_or_resume": "store",
    "environment_chain": "markov_chain",
    "every_visit": "gymnasium_visits",
    "fill_store": "filling",
    "generate": "generation",
    "load": "released",
    "open_store": "store",
    "puddle_world_chain": "puddle_world",
    "released_names": "released",
    "rollout_settings": "generation",
    "starts_in_cells": "gymnasium_rollouts",
    "verify": "store",
}

__all__ = [
    "BoxGrid",
    "Grid",
    "GymnasiumProcess",
    "GymnasiumRowSampler",
    "MarkovChain",
    "MatrixPlan",
    "MatrixStore",
    "RolloutSettings",
    "RowEstimates",
    "RowSampler",
    "TransitionEstimator",
    "TransitionSettings",
    "VerifyReport",
    "VisitSettings",
    "create_or_resume",
    "environment_chain",
    "every_visit",
    "fill_store",
    "generate",
    "load",
    "open_store",
    "puddle_world_chain",
    "released_names",
    "rollout_settings",
    "starts_in_cells",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"rlreps.successor.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rlreps.successor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
