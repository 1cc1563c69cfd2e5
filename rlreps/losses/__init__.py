"""Objectives that train representations: on a states x tasks matrix, and on pairs of states.

The minimisers of ``OBJECTIVES`` span the top-d left singular subspace of a matrix. The docstring of
each class in ``PAIR_OBJECTIVES`` states its optimum.
"""

from rlreps.batch import Batch, Clip, Population
from rlreps.config import registry
from rlreps.losses.base import Encode, Metrics, Objective
from rlreps.losses.contrastive import InfoNCE, TDInfoNCE
from rlreps.losses.cumulant_differences import CumulantDifferences
from rlreps.losses.danskin import DanskinEmpirical, DanskinLissa, Naive
from rlreps.losses.danskin_chunked import DanskinChunked
from rlreps.losses.explicit import Explicit
from rlreps.losses.graph_drawing import AugmentedLagrangian, GeneralizedGraphDrawing, GraphDrawing
from rlreps.losses.joint_embedding import BarlowTwins, BYOLGamma, SelfPrediction, VICReg
from rlreps.losses.least_squares import LargeBatch, Oracle
from rlreps.losses.low_rank import NestedLora, SpectralContrastive, TDLowRank
from rlreps.losses.orbital import NeuralEigenfunctions, OrbitalMinimization
from rlreps.losses.spectral import Spin
from rlreps.losses.two_weights import two_weight_loss

OBJECTIVES: dict[str, type[Objective]] = registry(
    DanskinChunked, DanskinEmpirical, DanskinLissa, Explicit, LargeBatch, Naive, Oracle, Spin
)
"""Method name → objective of the entries of a matrix."""

PAIR_OBJECTIVES: dict[str, type[Objective]] = registry(
    AugmentedLagrangian,
    BarlowTwins,
    BYOLGamma,
    CumulantDifferences,
    GeneralizedGraphDrawing,
    GraphDrawing,
    InfoNCE,
    NestedLora,
    NeuralEigenfunctions,
    OrbitalMinimization,
    SelfPrediction,
    SpectralContrastive,
    TDInfoNCE,
    TDLowRank,
    VICReg,
)
"""Method name → objective on pairs of states, such as ``rlreps.sources.pair_source`` draws."""

__all__ = [
    "OBJECTIVES",
    "PAIR_OBJECTIVES",
    "AugmentedLagrangian",
    "BYOLGamma",
    "BarlowTwins",
    "Batch",
    "Clip",
    "CumulantDifferences",
    "DanskinChunked",
    "DanskinEmpirical",
    "DanskinLissa",
    "Encode",
    "Explicit",
    "GeneralizedGraphDrawing",
    "GraphDrawing",
    "InfoNCE",
    "LargeBatch",
    "Metrics",
    "Naive",
    "NestedLora",
    "NeuralEigenfunctions",
    "Objective",
    "Oracle",
    "OrbitalMinimization",
    "Population",
    "SelfPrediction",
    "SpectralContrastive",
    "Spin",
    "TDInfoNCE",
    "TDLowRank",
    "VICReg",
    "two_weight_loss",
]
