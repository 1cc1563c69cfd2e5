"""The successor measure: methods that compute it, stores, released ground truths, learned features.

``fit`` learns features of the measure from a user's own transitions.

Names load on first use, so that reading a store needs no JAX and the command line starts quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlreps.successor.fitting.data import Transitions as Transitions
    from rlreps.successor.fitting.fit import fit as fit
    from rlreps.successor.fitting.methods import FitConfig as FitConfig
    from rlreps.successor.fitting.methods import LeastSquaresFit as LeastSquaresFit
    from rlreps.successor.fitting.methods import TemporalDifferences as TemporalDifferences
    from rlreps.successor.fitting.quality import Quality as Quality
    from rlreps.successor.fitting.representation import (
        SuccessorRepresentation as SuccessorRepresentation,
    )
    from rlreps.successor.fitting.tasks import Task as Task
    from rlreps.successor.fitting.wrapper import PotentialShaping as PotentialShaping
    from rlreps.successor.fitting.wrapper import (
        RepresentationObservation as RepresentationObservation,
    )
    from rlreps.successor.measure.chains import MarkovChain as MarkovChain
    from rlreps.successor.measure.chains import environment_chain as environment_chain
    from rlreps.successor.measure.chains import puddle_world_chain as puddle_world_chain
    from rlreps.successor.measure.grids import BoxGrid as BoxGrid
    from rlreps.successor.measure.grids import Grid as Grid
    from rlreps.successor.measure.gymnasium import GymnasiumRowSampler as GymnasiumRowSampler
    from rlreps.successor.measure.gymnasium import state_attribute as state_attribute
    from rlreps.successor.measure.kernels.estimator import (
        TransitionEstimator as TransitionEstimator,
    )
    from rlreps.successor.measure.kernels.estimator import aggregation_error as aggregation_error
    from rlreps.successor.measure.methods import METHODS as METHODS
    from rlreps.successor.measure.methods import MonteCarlo as MonteCarlo
    from rlreps.successor.measure.methods import SuccessorMeasure as SuccessorMeasure
    from rlreps.successor.measure.methods import Transition as Transition
    from rlreps.successor.measure.monte_carlo import RowSampler as RowSampler
    from rlreps.successor.measure.rows import RowEstimates as RowEstimates
    from rlreps.successor.measure.settings import RolloutSettings as RolloutSettings
    from rlreps.successor.measure.settings import TransitionSettings as TransitionSettings
    from rlreps.successor.truth.ground_truth import GroundTruth as GroundTruth
    from rlreps.successor.truth.ground_truth import load_ground_truth as load_ground_truth
    from rlreps.successor.truth.ground_truth import save_matrix as save_matrix
    from rlreps.successor.truth.released import load as load
    from rlreps.successor.truth.released import released_names as released_names
    from rlreps.successor.truth.store import MatrixStore as MatrixStore
    from rlreps.successor.truth.store import create_or_resume as create_or_resume
    from rlreps.successor.truth.store import open_estimates as open_estimates
    from rlreps.successor.truth.store import open_store as open_store
    from rlreps.successor.truth.store import verify as verify
    from rlreps.successor.truth.stored_subspace import principal_subspace as principal_subspace
    from rlreps.successor.truth.stored_subspace import sampling_error as sampling_error

_NAMES = {
    "fitting.data": "Transitions",
    "fitting.fit": "fit",
    "fitting.methods": "FitConfig LeastSquaresFit TemporalDifferences",
    "fitting.quality": "Quality",
    "fitting.representation": "SuccessorRepresentation",
    "fitting.tasks": "Task",
    "fitting.wrapper": "PotentialShaping RepresentationObservation",
    "measure.chains": "MarkovChain environment_chain puddle_world_chain",
    "measure.grids": "BoxGrid Grid",
    "measure.gymnasium": "GymnasiumRowSampler state_attribute",
    "measure.kernels.estimator": "TransitionEstimator aggregation_error",
    "measure.methods": "METHODS MonteCarlo SuccessorMeasure Transition",
    "measure.monte_carlo": "RowSampler",
    "measure.rows": "RowEstimates",
    "measure.settings": "RolloutSettings TransitionSettings",
    "truth.ground_truth": "GroundTruth load_ground_truth save_matrix",
    "truth.released": "load released_names",
    "truth.store": "MatrixStore create_or_resume open_estimates open_store verify",
    "truth.stored_subspace": "principal_subspace sampling_error",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlreps.successor' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlreps.successor.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
