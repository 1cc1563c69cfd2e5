"""Products of a matrix with panels of a few columns, wherever the matrix lies.

In memory, on an accelerator, or in blocks of rows read one after the other: the algorithms use only
the products. Panels are host arrays of the matrix's dtype.
"""

import abc
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from rlreps.errors import InputError
from rlreps.numerics import jit
from rlreps.subspace.row_blocks import RowBlocks, regrouped

# Bytes of float64 scratch for the squared norm of a host matrix.
_SCRATCH_BYTES = 16 * 2**20
# Bytes of the rows in one product of a streamed matrix. Each group costs a sweep over the
# accumulated panel: if rows are long, groups grow until they hold several times as many rows as
# the panel has columns.
_GROUP_BYTES = 128 * 2**20
_LARGEST_GROUP_BYTES = 2 * 2**30
_ROWS_PER_COLUMN = 4


class Products(abc.ABC):
    """Products of a matrix A [n, t].

    Attributes:
      shape: (n, t).
      dtype: float32 or float64.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    _energy: float | None = None

    @property
    def total_energy(self) -> float:
        """Squared Frobenius norm in float64; for a streamed matrix known after the first product.

        Raises:
          InputError: if the matrix is not finite (a streamed matrix's first product raises it).
        """
        assert self._energy is not None
        return self._energy

    @abc.abstractmethod
    def multiply(self, panel: np.ndarray) -> np.ndarray:
        """Return A times a panel [t, m], [n, m]."""

    @abc.abstractmethod
    def multiply_transposed(self, panel: np.ndarray) -> np.ndarray:
        """Return A' times a panel [n, m], [t, m]."""

    def sharpen(self, panel: np.ndarray) -> np.ndarray:
        """Run one power iteration: an orthonormal basis of A'A times a panel [t, m], [t, m]."""
        return orthonormalise(self.multiply_transposed(orthonormalise(self.multiply(panel))))

    def multiply_and_normal(
        self, panel: np.ndarray, probes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return A times a panel [t, m] and A'A times probes [t, s]: [n, m] and [t, s]."""
        images = self.multiply(np.concatenate([panel, probes], axis=1))
        width = panel.shape[1]
        return images[:, :width], self.multiply_transposed(images[:, width:])


class HostProducts(Products):
    """Products of a matrix in host memory, by NumPy's BLAS."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.shape = (matrix.shape[0], matrix.shape[1])
        self.dtype = matrix.dtype
        self._matrix = matrix
        self._energy = _require_finite(_squared_norm(matrix))

    def multiply(self, panel: np.ndarray) -> np.ndarray:
        return np.asarray(self._matrix @ panel)

    def multiply_transposed(self, panel: np.ndarray) -> np.ndarray:
        return np.asarray(self._matrix.T @ panel)


class AcceleratorProducts(Products):
    """Products of a matrix on an accelerator, taken there: only the panels travel."""

    def __init__(self, matrix: jax.Array) -> None:
        self.shape = (matrix.shape[0], matrix.shape[1])
        self.dtype = np.dtype(matrix.dtype)
        self._matrix = matrix
        # Rows are summed on the device in its own precision, and the sums of rows in float64.
        rows = jax.jit(lambda values: jnp.sum(jnp.square(values), axis=1))(matrix)
        self._energy = _require_finite(float(np.sum(np.asarray(rows), dtype=np.float64)))

    def multiply(self, panel: np.ndarray) -> np.ndarray:
        return np.array(_contract(self._matrix, jnp.asarray(panel), matrix_axis=1))

    def multiply_transposed(self, panel: np.ndarray) -> np.ndarray:
        return np.array(_contract(self._matrix, jnp.asarray(panel), matrix_axis=0))


class StreamedProducts(Products):
    """Products of a matrix that is read in blocks of rows, once for each method called.

    Groups of rows of one size enter a product, however the source is blocked. Products with the
    transpose are accumulated over groups in float64. Memory holds the panels (one of them in
    float64), one group, and the buffers of the source.
    """

    def __init__(self, source: RowBlocks) -> None:
        self.shape = source.shape
        self.dtype = source.dtype
        self._source = source

    @property
    def total_energy(self) -> float:
        if self._energy is None:
            for _ in self._rows():
                pass
        return super().total_energy

    def multiply(self, panel: np.ndarray) -> np.ndarray:
        product = np.empty((self.shape[0], panel.shape[1]), self.dtype)
        for start, rows in self._rows(panel.shape[1]):
            np.matmul(rows, panel, out=product[start : start + len(rows)])
        return product

    def multiply_transposed(self, panel: np.ndarray) -> np.ndarray:
        product = np.zeros((self.shape[1], panel.shape[1]), np.float64)
        for start, rows in self._rows(panel.shape[1]):
            product += rows.T @ panel[start : start + len(rows)]
        return product.astype(self.dtype)

    def sharpen(self, panel: np.ndarray) -> np.ndarray:
        """Run one power iteration in one read, not orthonormalised between the two products.

        A'A squares the spectrum, so in the first iteration rounding hides a fresh panel's
        directions below sqrt(eps) sigma_1. They return in later iterations: once the panel's
        columns are sorted by size, a column's own product loses only eps sigma_1 / sigma_i. The two
        products after the last iteration are orthonormalised one by one as usual.
        """
        nothing = panel[:, :0]
        return orthonormalise(self.multiply_and_normal(nothing, panel)[1])

    def multiply_and_normal(
        self, panel: np.ndarray, probes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        width = panel.shape[1]
        both = np.concatenate([panel, probes], axis=1)
        images = np.empty((self.shape[0], width), self.dtype)
        normal = np.zeros(probes.shape, np.float64)
        for start, rows in self._rows(both.shape[1]):
            product = rows @ both
            images[start : start + len(rows)] = product[:, :width]
            normal += rows.T @ product[:, width:]
        return images, normal.astype(self.dtype)

    def _rows(self, width: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """Read the matrix in groups for a panel of this many columns.

        The first read also takes its norm and checks that it is finite.
        """
        energy, row_bytes = 0.0, self.dtype.itemsize * self.shape[1]
        wanted = min(_ROWS_PER_COLUMN * width, _LARGEST_GROUP_BYTES // row_bytes)
        for start, rows in regrouped(self._source, max(1, _GROUP_BYTES // row_bytes, wanted)):
            if self._energy is None:
                energy += _require_finite(_squared_norm(rows))
            yield start, rows
        if self._energy is None:
            self._energy = _require_finite(energy)


class SharedProducts(Products):
    """Products of a matrix whose rows are distributed over processes; equal in all processes.

    Every method reads each process's own rows once, and sums the results over the processes. Every
    process orthonormalises the same panels itself, so their BLAS must round alike.
    """

    def __init__(
        self,
        own: RowBlocks,
        first: int,
        num_rows: int,
        total: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Join this process's rows, numbered from ``first``, to a matrix [num_rows, t].

        Args:
          own: this process's rows, [r, t]; there may be none.
          first: the number of the first of them.
          num_rows: n.
          total: returns the sum of all processes' arrays of one shape; all call it together.
        """
        self.shape = (num_rows, own.shape[1])
        self.dtype = own.dtype
        self._own, self._total = StreamedProducts(own), total
        self._rows = slice(first, first + own.shape[0])

    @property
    def total_energy(self) -> float:
        if self._energy is None:
            self._energy = float(self._total(np.asarray(self._own.total_energy)))
        return super().total_energy

    def multiply(self, panel: np.ndarray) -> np.ndarray:
        return self._joined(self._own.multiply(panel))

    def multiply_transposed(self, panel: np.ndarray) -> np.ndarray:
        return self._summed(self._own.multiply_transposed(panel[self._rows]))

    def sharpen(self, panel: np.ndarray) -> np.ndarray:
        """Run one power iteration in one read, as ``StreamedProducts`` does."""
        return orthonormalise(self.multiply_and_normal(panel[:, :0], panel)[1])

    def multiply_and_normal(
        self, panel: np.ndarray, probes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        images, normal = self._own.multiply_and_normal(panel, probes)
        return self._joined(images), self._summed(normal)

    def _summed(self, part: np.ndarray) -> np.ndarray:
        """Sum all processes' arrays in float64."""
        return self._total(part.astype(np.float64)).astype(self.dtype)

    def _joined(self, own: np.ndarray) -> np.ndarray:
        """Join all processes' rows."""
        joined = np.zeros((self.shape[0], own.shape[1]), self.dtype)
        joined[self._rows] = own
        return self._total(joined) if joined.size else joined


def products_of(matrix: np.ndarray | jax.Array | RowBlocks | Products) -> Products:
    """Return the products of a matrix [n, t], computed where it lies (on a CPU, in place).

    Raises:
      InputError: if a matrix in memory is not finite.
    """
    if isinstance(matrix, Products):
        return matrix
    if isinstance(matrix, RowBlocks):
        return StreamedProducts(matrix)
    if _on_accelerator(matrix):
        return AcceleratorProducts(jnp.asarray(matrix))
    return HostProducts(np.asarray(matrix))


def orthonormalise(panel: np.ndarray) -> np.ndarray:
    """Orthonormalise a panel's columns by Householder QR; overwrites the panel."""
    basis, _ = scipy.linalg.qr(panel, mode="economic", overwrite_a=True, check_finite=False)
    return np.asarray(basis)


@functools.partial(jit, static_argnames="matrix_axis")
def _contract(matrix: jax.Array, panel: jax.Array, *, matrix_axis: int) -> jax.Array:
    # Full precision: accelerators would otherwise multiply float32 in shorter formats.
    return jax.lax.dot_general(
        matrix, panel, (((matrix_axis,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST
    )


def _on_accelerator(matrix: np.ndarray | jax.Array) -> bool:
    return isinstance(matrix, jax.Array) and any(
        device.platform != "cpu" for device in matrix.devices()
    )


def _squared_norm(matrix: np.ndarray) -> float:
    """Compute the squared Frobenius norm of a host matrix in float64."""
    block_rows = max(1, _SCRATCH_BYTES // (8 * matrix.shape[1]))
    energy = 0.0
    for start in range(0, matrix.shape[0], block_rows):
        block = matrix[start : start + block_rows].astype(np.float64)
        energy += float(np.vdot(block, block))
    return energy


def _require_finite(energy: float) -> float:
    if not math.isfinite(energy):
        raise InputError(f"expected a matrix of finite entries, got a squared norm of {energy}")
    return energy
