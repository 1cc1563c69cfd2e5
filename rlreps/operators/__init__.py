"""Symmetric linear operators whose eigenfunctions spectral inference learns.

They act on functions given by samples, and compose by ``+``, ``-`` and products with numbers.
"""

from rlreps.batch import Clip
from rlreps.operators.base import Action, Operator, SampledFunctions, Weights, act, points_of
from rlreps.operators.differential import Diagonal, FiniteDifferenceLaplacian, Laplacian
from rlreps.operators.kernel import Kernel, TargetKernel, require_symmetric
from rlreps.operators.slowness import Slowness

__all__ = [
    "Action",
    "Clip",
    "Diagonal",
    "FiniteDifferenceLaplacian",
    "Kernel",
    "Laplacian",
    "Operator",
    "SampledFunctions",
    "Slowness",
    "TargetKernel",
    "Weights",
    "act",
    "points_of",
    "require_symmetric",
]
