"""Families of cumulant functions r: S → R, the tasks behind columns ψ_r = Ψ r.

A family is a pair (init, apply): ``init`` draws functions, ``apply`` evaluates them at positions.
With functions drawn independently, the principal subspace of the columns is that of Ψ K Ψᵀ, where
K(x, y) = E r(x) r(y) is the family's covariance: a family is a choice of what to weigh in the
successor measure. Positions are points of the unit square unless said otherwise.
"""

from rlreps.cumulants.base import Cumulants, cumulant_matrix
from rlreps.cumulants.cells import Cells
from rlreps.cumulants.discs import DiscParams, Discs
from rlreps.cumulants.fourier import FourierParams, RandomFourier
from rlreps.cumulants.networks import (
    IndicatorParams,
    NetworkParams,
    RandomIndicators,
    RandomNetwork,
)

__all__ = [
    "Cells",
    "Cumulants",
    "DiscParams",
    "Discs",
    "FourierParams",
    "IndicatorParams",
    "NetworkParams",
    "RandomFourier",
    "RandomIndicators",
    "RandomNetwork",
    "cumulant_matrix",
]
