"""Objectives whose minimisers span the top-d left singular subspace of a states x tasks matrix."""

from rlreps.config import registry
from rlreps.losses.base import Batch, Encode, Metrics, Objective, Population, two_weight_loss
from rlreps.losses.danskin import DanskinEmpirical, DanskinLissa, Naive
from rlreps.losses.danskin_chunked import DanskinChunked
from rlreps.losses.explicit import Explicit
from rlreps.losses.least_squares import LargeBatch, Oracle
from rlreps.losses.spectral import Spin
from rlreps.operators import Clip

OBJECTIVES: dict[str, type[Objective]] = registry(
    DanskinChunked, DanskinEmpirical, DanskinLissa, Explicit, LargeBatch, Naive, Oracle, Spin
)
"""Method name → objective."""

__all__ = [
    "OBJECTIVES",
    "Batch",
    "Clip",
    "DanskinChunked",
    "DanskinEmpirical",
    "DanskinLissa",
    "Encode",
    "Explicit",
    "LargeBatch",
    "Metrics",
    "Naive",
    "Objective",
    "Oracle",
    "Population",
    "Spin",
    "title_of",
    "two_weight_loss",
]


def title_of(method: str) -> str:
    """Return a method's name as the papers write it, such as ``Danskin-LISSA``."""
    return OBJECTIVES[method].title
