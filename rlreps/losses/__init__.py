"""Objectives whose minimisers span the top-d left singular subspace of a states x tasks matrix."""

from rlreps.losses.base import Batch, Encode, Metrics, Objective, Population, two_weight_loss
from rlreps.losses.danskin import Roles, danskin_empirical, danskin_lissa, even_roles, naive
from rlreps.losses.danskin_chunked import danskin_chunked
from rlreps.losses.explicit import explicit
from rlreps.losses.large_batch import large_batch
from rlreps.losses.oracle import oracle
from rlreps.losses.registry import OBJECTIVES, make_objective
from rlreps.losses.spectral import spectral

__all__ = [
    "OBJECTIVES",
    "Batch",
    "Encode",
    "Metrics",
    "Objective",
    "Population",
    "Roles",
    "danskin_chunked",
    "danskin_empirical",
    "danskin_lissa",
    "even_roles",
    "explicit",
    "large_batch",
    "make_objective",
    "naive",
    "oracle",
    "spectral",
    "two_weight_loss",
]
