"""Centring of matrices in memory, by columns, rows or both, and second moments."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError
from rlreps.numerics import jit, require_array
from rlreps.subspace.row_blocks import ArrayBlocks, CentredBlocks, Centring, centring_means
from rlreps.typing import DoubleArray

# Rows of a block. A block of a 10,000-column float32 matrix then stays inside the caches.
_BLOCK_ROWS = 64


@jit
def centre_columns(matrix: jax.Array) -> jax.Array:
    """Subtract each column's mean over the rows.

    Args:
      matrix: [n, t] floating-point array, states by tasks.

    Returns:
      [n, t] array of the same dtype whose columns have mean zero up to rounding.
    """
    _require_matrix(matrix)
    centred = matrix - jnp.mean(matrix, axis=0, keepdims=True)
    # A mean of many float32 numbers is rounded. The part left behind is small, so a second pass
    # removes it almost exactly.
    return centred - jnp.mean(centred, axis=0, keepdims=True)


def centre_in_place(matrix: np.ndarray, centring: Centring = "columns") -> None:
    """Subtract each column's mean over the rows, each row's over the columns, or both.

    Means are accumulated and subtracted in float64 and rounded once. The memory needed beside the
    matrix is one float64 number per column and row, so that a 400 MB host matrix needs no copy.

    Args:
      matrix: [n, t] writeable float32 or float64 NumPy array; overwritten.
      centring: which means are subtracted; see ``row_blocks.Centring``.

    Raises:
      InputError: if the matrix is not a writeable two-dimensional floating-point NumPy array with
        rows.
    """
    if not isinstance(matrix, np.ndarray) or not matrix.flags.writeable:
        found = "a read-only array" if isinstance(matrix, np.ndarray) else type(matrix).__name__
        raise InputError(f"expected a writeable NumPy array, got {found}")
    _require_matrix(matrix)
    blocks = ArrayBlocks(matrix, _BLOCK_ROWS)
    for start, rows in CentredBlocks(blocks, *centring_means(blocks, centring)).blocks():
        matrix[start : start + len(rows)] = rows


def _require_matrix(matrix: jax.Array | np.ndarray) -> None:
    require_array("a matrix as an array [states, tasks]", matrix)
    is_floating = jnp.issubdtype(matrix.dtype, jnp.floating)
    if matrix.ndim != 2 or matrix.shape[0] == 0 or not is_floating:
        raise InputError(
            "expected a floating-point matrix [states, tasks] with at least one row, "
            f"got {matrix.dtype} of shape {matrix.shape}"
        )


_MOMENT_ROWS = 4096
"""Rows held in float64 at a time: 26 MB for MNIST."""


def second_moments(rows: npt.NDArray[Any]) -> DoubleArray:
    """Compute Σ x xᵀ / n over rows x [n, features] in float64: the covariance of centred rows.

    Returns:
        [features, features].
    """
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _MOMENT_ROWS):
        block = rows[start : start + _MOMENT_ROWS].astype(np.float64)
        total += block.T @ block
    return total / len(rows)
