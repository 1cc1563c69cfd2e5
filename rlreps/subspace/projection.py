"""Products of a matrix in row blocks with the span of a set of features."""

import numpy as np

from rlreps.errors import InputError
from rlreps.subspace.row_blocks import RowBlocks, regrouped

# Bytes of the rows that enter one product.
_GROUP_BYTES = 64 * 2**20


def project_rows(basis: np.ndarray, source: RowBlocks) -> np.ndarray:
    """Coefficients Q^T Psi of the tasks in a basis of states, in one read of the matrix.

    Args:
      basis: Q, [n, d] columns over the states.
      source: Psi, [n, t], centred or not.

    Returns:
      [d, t] in the matrix's dtype; sums over groups of rows are taken in float64.

    Raises:
      InputError: if the basis and the blocks do not fit together.
    """
    basis = _fitting(basis, source)
    coefficients = np.zeros((basis.shape[1], source.shape[1]), np.float64)
    for start, rows in regrouped(source, _group_rows(source)):
        coefficients += basis[start : start + len(rows)].T @ rows
    return coefficients.astype(source.dtype)


def residual_energy(span: np.ndarray, source: RowBlocks) -> float:
    """Squared norm of what an orthonormal basis leaves of a matrix, ||(I - Q Q^T) Psi||_F^2.

    The residual is formed before it is squared (a difference of energies would cancel), and its
    squares are summed in float64. Two reads of the matrix.

    Args:
      span: Q, [n, d] orthonormal columns; zero columns are allowed.
      source: Psi, [n, t].

    Returns:
      The energy.

    Raises:
      InputError: if the basis and the blocks do not fit together.
    """
    span = _fitting(span, source)
    coefficients = project_rows(span, source)
    energy = 0.0
    for start, rows in regrouped(source, _group_rows(source)):
        residual = rows - span[start : start + len(rows)] @ coefficients
        energy += float(np.einsum("ij,ij->", residual, residual, dtype=np.float64))
    return energy


def _group_rows(source: RowBlocks) -> int:
    return max(1, _GROUP_BYTES // (source.dtype.itemsize * source.shape[1]))


def _fitting(basis: np.ndarray, source: RowBlocks) -> np.ndarray:
    if basis.ndim != 2 or basis.shape[0] != source.shape[0]:
        raise InputError(
            f"expected a basis over the matrix's {source.shape[0]} states, got shape {basis.shape}"
        )
    return np.asarray(basis, source.dtype)
