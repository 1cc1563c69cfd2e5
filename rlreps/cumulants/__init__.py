"""Families of cumulant functions r: S → R, the tasks behind columns ψ_r = Ψ r.

A family is a frozen dataclass: ``init`` draws functions, ``apply`` evaluates them at positions. If
functions are drawn independently, the columns have the principal subspace of Ψ K Ψᵀ, where
K(x, y) = E r(x) r(y) is the family's covariance. The choice of a family therefore decides how the
successor measure is weighed. Positions are points of the unit square unless stated otherwise.
"""

from rlreps.config import registry
from rlreps.cumulants.base import Cumulants, cumulant_matrix
from rlreps.cumulants.fourier import FourierParams, RandomFourier
from rlreps.cumulants.networks import (
    IndicatorParams,
    NetworkParams,
    RandomIndicators,
    RandomNetwork,
)
from rlreps.cumulants.regions import Cells, DiscParams, Discs

CUMULANTS: dict[str, type[Cumulants]] = registry(
    Discs, RandomFourier, RandomIndicators, RandomNetwork
)
"""Name → family, without ``Cells``, which is not random."""

__all__ = [
    "CUMULANTS",
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
