"""The successor measure: two methods for it, storage, and released ground truths.

Names load on first use: reading a store needs no JAX, and the command line answers at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.successor.box_grid import BoxGrid
    from rlreps.successor.estimates import RowEstimates
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
    from rlreps.workflows.filling import MatrixPlan, fill_store
    from rlreps.workflows.generate import generate, rollout_settings

_HOME = {
    "BoxGrid": "rlreps.successor.box_grid",
    "Grid": "rlreps.successor.grid",
    "GymnasiumProcess": "rlreps.successor.gymnasium_process",
    "GymnasiumRowSampler": "rlreps.successor.gymnasium_rollouts",
    "MarkovChain": "rlreps.successor.markov_chain",
    "MatrixPlan": "rlreps.workflows.filling",
    "MatrixStore": "rlreps.successor.store",
    "RolloutSettings": "rlreps.successor.monte_carlo",
    "RowEstimates": "rlreps.successor.estimates",
    "RowSampler": "rlreps.successor.monte_carlo",
    "TransitionEstimator": "rlreps.successor.transition",
    "TransitionSettings": "rlreps.successor.transition",
    "VerifyReport": "rlreps.successor.store",
    "VisitSettings": "rlreps.successor.gymnasium_visits",
    "create_or_resume": "rlreps.successor.store",
    "environment_chain": "rlreps.successor.markov_chain",
    "every_visit": "rlreps.successor.gymnasium_visits",
    "fill_store": "rlreps.workflows.filling",
    "generate": "rlreps.workflows.generate",
    "load": "rlreps.successor.released",
    "open_store": "rlreps.successor.store",
    "puddle_world_chain": "rlreps.successor.puddle_world",
    "released_names": "rlreps.successor.released",
    "rollout_settings": "rlreps.workflows.generate",
    "starts_in_cells": "rlreps.successor.gymnasium_rollouts",
    "verify": "rlreps.successor.store",
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
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rlreps.successor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
