"""Stores of a successor measure: create, resume, open and check them.

``format`` defines the matrix on disk. ``estimates`` adds the difference of the halves of a sampled
matrix, and checks both. ``blocks`` reads a store as row blocks or by single entries.
"""

from rlreps.successor.truth.store.estimates import BlockProblem as BlockProblem
from rlreps.successor.truth.store.estimates import EstimateStore as EstimateStore
from rlreps.successor.truth.store.estimates import create_estimates as create_estimates
from rlreps.successor.truth.store.estimates import open_estimates as open_estimates
from rlreps.successor.truth.store.estimates import verify as verify
from rlreps.successor.truth.store.format import STORE as STORE
from rlreps.successor.truth.store.format import MatrixStore as MatrixStore
from rlreps.successor.truth.store.format import create_or_resume as create_or_resume
from rlreps.successor.truth.store.format import find_store as find_store
from rlreps.successor.truth.store.format import open_store as open_store
from rlreps.successor.truth.store.format import require_place as require_place
