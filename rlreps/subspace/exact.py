"""The principal subspace of a centred matrix by a dense singular value decomposition."""

import jax
import numpy as np
import scipy.linalg

from rlreps.errors import InputError
from rlreps.subspace.error_bound import bounds_at_cut, rounding_level
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
        distance_bound=_rounding_bounds(values, matrix.shape, kept),
    )


def _rounding_bounds(values: np.ndarray, shape: tuple[int, ...], count: int) -> np.ndarray:
    """Bounds on subspace distances for a decomposition that is exact for a matrix within rounding.

    The smaller of two: every sine is at most rounding / (sigma_d - sigma_{d+1} - rounding) by
    Wedin's theorem, and the sum of their squares follows from every single gap, as in
    `rlreps.subspace.error_bound` without residuals.

    Args:
      values: [min(n, t)] all singular values, falling, in the dtype of the computation.
      shape: (n, t).
      count: number of bounds.

    Returns:
      [count] float64; 1 where the gap does not exceed the rounding.
    """
    following = np.append(values, 0.0).astype(np.float64)
    rounding = rounding_level(shape, values.dtype, following[0])
    gaps = following[:count] - following[1 : count + 1] - rounding
    sines = rounding / np.maximum(gaps, rounding) + rounding / following[0]
    largest_sine = np.minimum(np.square(sines), 1.0)
    all_sines = bounds_at_cut(
        following[:-1], np.zeros(len(values)), 2.0 * rounding, rounding, count
    )
    bounds: np.ndarray = np.minimum(largest_sine, all_sines)
    return bounds
