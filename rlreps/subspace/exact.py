"""The principal subspace of a centred matrix by a dense singular value decomposition."""

import jax
import numpy as np
import scipy.linalg

from rlreps.errors import InputError
from rlreps.subspace.error_bound import backward_stable_bounds
from rlreps.subspace.principal import (
    PrincipalSubspace,
    components_kept,
    fix_signs,
    require_matrix_and_rank,
)
from rlreps.subspace.products import products_of
from rlreps.subspace.row_blocks import RowBlocks


def exact_svd(
    matrix: np.ndarray | jax.Array, rank: int, *, at_most: bool = False
) -> PrincipalSubspace:
    """Top left singular vectors by LAPACK's dense decomposition.

    Time O(n t min(n, t)) and memory of several matrices: for matrices up to a few thousand on the
    shorter side; see `randomized_svd` beyond that.

    Args:
      matrix: [n, t] float32 or float64 matrix, already centred.
      rank: number of components kept.
      at_most: keep fewer where the matrix's numerical rank is lower, instead of refusing.

    Returns:
      The subspace, in the matrix's dtype, as host arrays, with the bound that rounding leaves.

    Raises:
      InputError: if the rank is not between 1 and min(n, t) or exceeds the matrix's numerical
        rank (see `relative_tolerance`), or the matrix is not finite or not of a floating dtype, or
        is not in memory.
    """
    if isinstance(matrix, RowBlocks):
        raise InputError("expected a matrix in memory for the exact decomposition, got row blocks")
    require_matrix_and_rank(matrix, rank)
    total_energy = products_of(matrix).total_energy
    left, values, _ = scipy.linalg.svd(np.asarray(matrix), full_matrices=False, check_finite=False)
    kept = components_kept(values, matrix.shape, rank, at_most=at_most)
    return PrincipalSubspace(
        basis=fix_signs(left[:, :kept]),
        singular_values=values[:kept].copy(),
        total_energy=total_energy,
        method="exact",
        settings={"rank": rank},
        distance_bound=backward_stable_bounds(values, matrix.shape, kept),
    )
