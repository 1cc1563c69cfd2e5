"""Families of cumulant functions r: S → R, the tasks behind columns ψ_r = Ψ r.

A family is a frozen dataclass: ``init`` draws functions, ``apply`` evaluates them at positions.
If functions are drawn independently, the principal subspace of the columns is that of Ψ K Ψᵀ with
the family's covariance K(x, y) = E r(x) r(y): choosing a family means choosing how to weigh the
successor measure. Positions are points of the unit square unless stated otherwise.
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
