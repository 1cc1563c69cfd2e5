"""The successor measure: two methods for it, storage, released ground truths, and features of it.

``fit`` learns features of the measure from transitions of one's own.

Names load on first use: reading a store needs no JAX, and the command line answers at once.
"""

import importlib
from typing import Any

_NAMES = {
    "chains": "MarkovChain environment_chain puddle_world_chain",
    "grids": "BoxGrid Grid",
    "ground_truth": "GroundTruth load_ground_truth principal_subspace sampling_error",
    "gymnasium": "GymnasiumProcess GymnasiumRowSampler VisitSettings every_visit starts_in_cells",
    "measure": "METHODS MonteCarlo RolloutSettings RowEstimates SuccessorMeasure Transition "
    "TransitionSettings",
    "monte_carlo": "RowSampler",
    "released": "load released_names",
    "store": "MatrixStore VerifyReport create_or_resume open_estimates open_store verify",
    "transition.estimator": "TransitionEstimator aggregation_error",
    "transitions": "Transitions",
    "wrapper": "PotentialShaping RepresentationObservation",
}
_ABOVE = "EpisodeSums FitConfig SuccessorRepresentation TemporalDifferences fit"
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
# What is trained and stored lives above the mathematics, and is no import of it.
_HOME |= dict.fromkeys(_ABOVE.split(), "rlreps.training.successor")

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlreps.successor' has no attribute {name!r}")
    home = _HOME[name]
    place = home if home.startswith("rlreps.") else f"rlreps.successor.{home}"
    return getattr(importlib.import_module(place), name)


def __dir__() -> list[str]:
    return __all__
