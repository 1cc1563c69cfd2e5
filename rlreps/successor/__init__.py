"""The successor measure: methods that compute it, stores, released ground truths, learned features.

``fit`` learns features of the measure from a user's own transitions.

Names load on first use, so that reading a store needs no JAX and the command line starts quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.successor.chains import MarkovChain as MarkovChain
    from rlreps.successor.chains import environment_chain as environment_chain
    from rlreps.successor.chains import puddle_world_chain as puddle_world_chain
    from rlreps.successor.data import Transitions as Transitions
    from rlreps.successor.fitting import fit as fit
    from rlreps.successor.grids import BoxGrid as BoxGrid
    from rlreps.successor.grids import Grid as Grid
    from rlreps.successor.ground_truth import GroundTruth as GroundTruth
    from rlreps.successor.ground_truth import load_ground_truth as load_ground_truth
    from rlreps.successor.ground_truth import save_matrix as save_matrix
    from rlreps.successor.gymnasium import GymnasiumRowSampler as GymnasiumRowSampler
    from rlreps.successor.gymnasium import state_attribute as state_attribute
    from rlreps.successor.kernels.estimator import TransitionEstimator as TransitionEstimator
    from rlreps.successor.kernels.estimator import aggregation_error as aggregation_error
    from rlreps.successor.measure import METHODS as METHODS
    from rlreps.successor.measure import MonteCarlo as MonteCarlo
    from rlreps.successor.measure import SuccessorMeasure as SuccessorMeasure
    from rlreps.successor.measure import Transition as Transition
    from rlreps.successor.methods import FitConfig as FitConfig
    from rlreps.successor.methods import LeastSquaresFit as LeastSquaresFit
    from rlreps.successor.methods import TemporalDifferences as TemporalDifferences
    from rlreps.successor.monte_carlo import RowSampler as RowSampler
    from rlreps.successor.quality import Quality as Quality
    from rlreps.successor.released import load as load
    from rlreps.successor.released import released_names as released_names
    from rlreps.successor.representation import SuccessorRepresentation as SuccessorRepresentation
    from rlreps.successor.representation import Task as Task
    from rlreps.successor.rows import RowEstimates as RowEstimates
    from rlreps.successor.settings import RolloutSettings as RolloutSettings
    from rlreps.successor.settings import TransitionSettings as TransitionSettings
    from rlreps.successor.store import MatrixStore as MatrixStore
    from rlreps.successor.store import create_or_resume as create_or_resume
    from rlreps.successor.store import open_estimates as open_estimates
    from rlreps.successor.store import open_store as open_store
    from rlreps.successor.store import verify as verify
    from rlreps.successor.stored_subspace import principal_subspace as principal_subspace
    from rlreps.successor.stored_subspace import sampling_error as sampling_error
    from rlreps.successor.wrapper import PotentialShaping as PotentialShaping
    from rlreps.successor.wrapper import RepresentationObservation as RepresentationObservation

_NAMES = {
    "chains": "MarkovChain environment_chain puddle_world_chain",
    "data": "Transitions",
    "fitting": "fit",
    "methods": "FitConfig LeastSquaresFit TemporalDifferences",
    "quality": "Quality",
    "representation": "SuccessorRepresentation Task",
    "grids": "BoxGrid Grid",
    "ground_truth": "GroundTruth load_ground_truth save_matrix",
    "gymnasium": "GymnasiumRowSampler state_attribute",
    "kernels.estimator": "TransitionEstimator aggregation_error",
    "measure": "METHODS MonteCarlo SuccessorMeasure Transition",
    "monte_carlo": "RowSampler",
    "released": "load released_names",
    "rows": "RowEstimates",
    "settings": "RolloutSettings TransitionSettings",
    "store": "MatrixStore create_or_resume open_estimates open_store verify",
    "stored_subspace": "principal_subspace sampling_error",
    "wrapper": "PotentialShaping RepresentationObservation",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlreps.successor' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlreps.successor.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
