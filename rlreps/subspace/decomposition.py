"""The principal subspace of a centred matrix: exact and randomised singular value decomposition."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from rlreps.errors import InputError

# Bytes of float64 scratch for the squared norm of a host matrix.
_SCRATCH_BYTES = 16 * 2**20


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
    """

    basis: np.ndarray
    singular_values: np.ndarray
    total_energy: float
    method: str
    settings: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.basis.ndim != 2 or self.singular_values.shape != self.basis.shape[1:]:
            raise InputError(
                "expected a basis [n, k] and k singular values, "
                f"got shapes {self.basis.shape} and {self.singular_values.shape}"
            )

    def truncated(self, d: int) -> "PrincipalSubspace":
        """Keeps the first d components; settings stay those of the original computation.

        Raises:
          InputError: if d is not between 1 and the number of components held.
        """
        num_components = self.basis.shape[1]
        if not 1 <= d <= num_components:
            raise InputError(f"expected 1 <= d <= {num_components} components, got {d}")
        return dataclasses.replace(
            self, basis=self.basis[:, :d], singular_values=self.singular_values[:d]
        )

    def energy_captured(self) -> np.ndarray:
        """Returns [k] float64: the share of the total energy in the first 1, ..., k components."""
        energies = np.square(self.singular_values.astype(np.float64))
        return np.minimum(np.cumsum(energies) / self.total_energy, 1.0)


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
      The subspace, in the matrix's dtype, as host arrays.

    Raises:
      InputError: if the rank is not between 1 and min(n, t) or exceeds the matrix's numerical
        rank (see `relative_tolerance`), or the matrix is not finite or not of a floating dtype.
    """
    _require_matrix_and_rank(matrix, rank)
    total_energy = _total_energy(matrix)
    left, values, _ = scipy.linalg.svd(np.asarray(matrix), full_matrices=False, check_finite=False)
    kept = _components_kept(values, matrix.shape, rank, at_most=at_most)
    return PrincipalSubspace(
        basis=fix_signs(left[:, :kept]),
        singular_values=values[:kept].copy(),
        total_energy=total_energy,
        method="exact",
        settings={"rank": rank},
    )


def randomized_svd(
    matrix: np.ndarray | jax.Array,
    rank: int,
    *,
    oversampling: int = 40,
    power_iterations: int = 10,
    seed: int = 0,
    at_most: bool = False,
) -> PrincipalSubspace:
    """Top left singular vectors by randomised subspace iteration.

    Halko, Martinsson & Tropp (2011), Algorithms 4.4 (range finder, QR after every product) and 5.1
    (decomposition of the projected matrix). The matrix is only multiplied by panels of
    rank + oversampling columns, never copied: on the host by NumPy's BLAS (a JAX array on a CPU is
    read in place), and on an accelerator where it lies, with only the panels travelling.

    Args:
      matrix: [n, t] float32 or float64 matrix, already centred.
      rank: number of components kept.
      oversampling: extra columns of the panel; capped where the panel would exceed min(n, t).
      power_iterations: passes with the matrix and its transpose that sharpen the spectrum.
      seed: seed of the Gaussian test panel.
      at_most: as for `exact_svd`.

    Returns:
      The subspace, in the matrix's dtype, as host arrays.

    Raises:
      InputError: as `exact_svd`, and if oversampling, power_iterations or seed is negative.
    """
    _require_matrix_and_rank(matrix, rank)
    settings = {
        "rank": rank,
        "oversampling": oversampling,
        "power_iterations": power_iterations,
        "seed": seed,
    }
    for name, value in settings.items():
        if value < 0:
            raise InputError(f"expected {name} >= 0, got {value}")
    total_energy = _total_energy(matrix)
    multiply, multiply_transposed = _products(matrix)
    panel_width = min(rank + oversampling, *matrix.shape)
    panel = np.random.default_rng(seed).standard_normal((matrix.shape[1], panel_width))
    range_basis = _orthonormalise(multiply(panel.astype(matrix.dtype)))
    for _ in range(power_iterations):
        range_basis = _orthonormalise(multiply(_orthonormalise(multiply_transposed(range_basis))))
    # With A'Q = Z R, the left singular vectors of Q'A are the right ones of the small R.
    (triangle,) = scipy.linalg.qr(
        multiply_transposed(range_basis), mode="r", overwrite_a=True, check_finite=False
    )
    _, values, rotation = scipy.linalg.svd(triangle[:panel_width], check_finite=False)
    kept = _components_kept(values, matrix.shape, rank, at_most=at_most)
    return PrincipalSubspace(
        basis=fix_signs(range_basis @ rotation[:kept].T),
        singular_values=values[:kept].copy(),
        total_energy=total_energy,
        method="randomized",
        settings=settings,
    )


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


_Product = Callable[[np.ndarray], np.ndarray]


def _products(matrix: np.ndarray | jax.Array) -> tuple[_Product, _Product]:
    """Products of the matrix and of its transpose with a host panel, wherever the matrix lies."""
    if _on_accelerator(matrix):
        return _accelerator_products(jnp.asarray(matrix))
    host = np.asarray(matrix)
    return (lambda panel: host @ panel), (lambda panel: host.T @ panel)


def _accelerator_products(matrix: jax.Array) -> tuple[_Product, _Product]:
    def multiply(panel: np.ndarray) -> np.ndarray:
        return np.array(_contract(matrix, jnp.asarray(panel), matrix_axis=1))

    def multiply_transposed(panel: np.ndarray) -> np.ndarray:
        return np.array(_contract(matrix, jnp.asarray(panel), matrix_axis=0))

    return multiply, multiply_transposed


@functools.partial(jax.jit, static_argnames="matrix_axis")
def _contract(matrix: jax.Array, panel: jax.Array, *, matrix_axis: int) -> jax.Array:
    # Full precision: accelerators would otherwise multiply float32 in shorter formats.
    return jax.lax.dot_general(
        matrix, panel, (((matrix_axis,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST
    )


def _on_accelerator(matrix: np.ndarray | jax.Array) -> bool:
    return isinstance(matrix, jax.Array) and any(
        device.platform != "cpu" for device in matrix.devices()
    )


def _orthonormalise(panel: np.ndarray) -> np.ndarray:
    basis, _ = scipy.linalg.qr(panel, mode="economic", overwrite_a=True, check_finite=False)
    return np.asarray(basis)


def _total_energy(matrix: np.ndarray | jax.Array) -> float:
    """Squared Frobenius norm, summed in float64 (over rows, where the matrix is on a device)."""
    if _on_accelerator(matrix):
        rows = jax.jit(lambda values: jnp.sum(jnp.square(values), axis=1))(matrix)
        energy = float(np.sum(np.asarray(rows), dtype=np.float64))
    else:
        host = np.asarray(matrix)
        block_rows = max(1, _SCRATCH_BYTES // (8 * host.shape[1]))
        energy = 0.0
        for start in range(0, host.shape[0], block_rows):
            block = host[start : start + block_rows].astype(np.float64)
            energy += float(np.vdot(block, block))
    if not math.isfinite(energy):
        raise InputError(f"expected a matrix of finite entries, got a squared norm of {energy}")
    return energy


def _require_matrix_and_rank(matrix: np.ndarray | jax.Array, rank: int) -> None:
    if matrix.ndim != 2 or matrix.dtype not in (np.float32, np.float64):
        raise InputError(
            "expected a float32 or float64 matrix [states, tasks], "
            f"got {matrix.dtype} of shape {matrix.shape}"
        )
    if not 1 <= rank <= min(matrix.shape):
        rows, columns = matrix.shape
        raise InputError(
            f"expected 1 <= rank <= {min(matrix.shape)} for a {rows} x {columns} matrix, got {rank}"
        )


def _components_kept(
    values: np.ndarray, shape: tuple[int, ...], rank: int, *, at_most: bool
) -> int:
    """The rank asked for, or the numerical rank where that is lower and `at_most` is set."""
    cutoff = relative_tolerance(shape, values.dtype) * float(values[0])
    numerical_rank = int(np.count_nonzero(values > cutoff))
    if rank > numerical_rank and not (at_most and numerical_rank >= 1):
        raise InputError(
            f"expected a rank of at most {numerical_rank}, the numerical rank of the "
            f"{shape[0]} x {shape[1]} matrix, got {rank}"
        )
    return min(rank, numerical_rank)
