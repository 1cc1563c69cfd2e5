"""What a principal subspace is, and the conventions that every way of computing one shares."""

import dataclasses
import math
from collections.abc import Mapping

import jax
import numpy as np

from rlreps.errors import InputError
from rlreps.subspace.row_blocks import RowBlocks


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PrincipalSubspace:
    """The top-k left singular subspace of a centred matrix, and how it was computed.

    Attributes:
      basis: [n, k] orthonormal left singular vectors F_k, by falling singular value, in the
        matrix's dtype; the entry of largest magnitude of each column is positive.
      singular_values: [k] singular values, falling, in the matrix's dtype.
      total_energy: squared Frobenius norm of the centred matrix, summed in float64.
      method: "exact" or "randomized".
      settings: the arguments that made it (rank, and for "randomized" oversampling,
        power_iterations and seed).
      distance_bound: [k] float64, for d = 1, ..., k an upper bound on the subspace distance between
        the first d columns of the basis and the exact top-d left singular subspace of the matrix
        (see `rlreps.subspace.error_bound`); 1 where nothing is certain. None if it is not known.
    """

    basis: np.ndarray
    singular_values: np.ndarray
    total_energy: float
    method: str
    settings: Mapping[str, int]
    distance_bound: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.basis.ndim != 2 or self.singular_values.shape != self.basis.shape[1:]:
            raise InputError(
                "expected a basis [n, k] and k singular values, "
                f"got shapes {self.basis.shape} and {self.singular_values.shape}"
            )
        bound = self.distance_bound
        if bound is not None and bound.shape != self.singular_values.shape:
            raise InputError(
                f"expected a distance bound for each of {self.basis.shape[1]} components, "
                f"got shape {bound.shape}"
            )

    def truncated(self, d: int) -> "PrincipalSubspace":
        """Keeps the first d components; settings stay those of the original computation.

        Raises:
          InputError: if d is not between 1 and the number of components held.
        """
        num_components = self.basis.shape[1]
        if not 1 <= d <= num_components:
            raise InputError(f"expected 1 <= d <= {num_components} components, got {d}")
        bound = self.distance_bound
        return dataclasses.replace(
            self,
            basis=self.basis[:, :d],
            singular_values=self.singular_values[:d],
            distance_bound=None if bound is None else bound[:d],
        )

    def energy_captured(self) -> np.ndarray:
        """Returns [k] float64: the share of the total energy in the first 1, ..., k components."""
        energies = np.square(self.singular_values.astype(np.float64))
        return np.minimum(np.cumsum(energies) / self.total_energy, 1.0)


def fix_signs(basis: np.ndarray) -> np.ndarray:
    """Flips columns so that each one's entry of largest magnitude is positive.

    Args:
      basis: [n, k] columns; of several entries of the same magnitude the first decides.

    Returns:
      [n, k] contiguous copy with the signs fixed.
    """
    rows = np.argmax(np.abs(basis), axis=0)
    deciding = np.take_along_axis(basis, rows[None, :], axis=0)
    return np.ascontiguousarray(np.where(deciding < 0, -basis, basis))


def relative_tolerance(shape: tuple[int, ...], dtype: np.dtype | type) -> float:
    """Relative size below which a singular value counts as zero: 10 eps sqrt(max(shape)).

    Rounding errors of a long sum grow like the square root of its length (Higham & Mary 2019), and
    ten is the margin. The worst-case bound eps max(shape) that `numpy.linalg.matrix_rank` uses
    would discard float32 components at 1e-3 of the largest for 10,000 states, which are well
    determined; the two agree at 100 states.

    Args:
      shape: shape of the matrix.
      dtype: its floating dtype.

    Returns:
      The tolerance, to be multiplied by the largest singular value.
    """
    return 10.0 * float(np.finfo(dtype).eps) * math.sqrt(max(shape))


def require_matrix_and_rank(matrix: np.ndarray | jax.Array | RowBlocks, rank: int) -> None:
    """Checks that there is a float matrix and that it could have that many components."""
    if len(matrix.shape) != 2 or matrix.dtype not in (np.float32, np.float64):
        raise InputError(
            "expected a float32 or float64 matrix [states, tasks], "
            f"got {matrix.dtype} of shape {matrix.shape}"
        )
    if not 1 <= rank <= min(matrix.shape):
        rows, columns = matrix.shape
        raise InputError(
            f"expected 1 <= rank <= {min(matrix.shape)} for a {rows} x {columns} matrix, got {rank}"
        )


def components_kept(values: np.ndarray, shape: tuple[int, ...], rank: int, *, at_most: bool) -> int:
    """The rank asked for, or the numerical rank where that is lower and `at_most` is set."""
    cutoff = relative_tolerance(shape, values.dtype) * float(values[0])
    numerical_rank = int(np.count_nonzero(values > cutoff))
    if rank > numerical_rank and not (at_most and numerical_rank >= 1):
        raise InputError(
            f"expected a rank of at most {numerical_rank}, the numerical rank of the "
            f"{shape[0]} x {shape[1]} matrix, got {rank}"
        )
    return min(rank, numerical_rank)
