"""Stores of a successor measure: create or resume one, open one, check one.

``format`` is the matrix on disk, ``estimates`` a sampled matrix with the difference of its halves,
``verification`` the check, ``cache`` what is kept beside the matrix; ``blocks`` and ``reader`` read
a store as row blocks and by single entries.
"""

from rlreps.successor.store.cache import load_subspace, save_subspace
from rlreps.successor.store.estimates import EstimateStore, create_estimates, open_estimates
from rlreps.successor.store.format import (
    MatrixStore,
    create_or_resume,
    find_store,
    open_store,
    require_place,
)
from rlreps.successor.store.verification import BlockProblem, VerifyReport, verify

__all__ = [
    "BlockProblem",
    "EstimateStore",
    "MatrixStore",
    "VerifyReport",
    "create_estimates",
    "create_or_resume",
    "find_store",
    "load_subspace",
    "open_estimates",
    "open_store",
    "require_place",
    "save_subspace",
    "verify",
]
