"""Products of a matrix with panels of a few columns, from blocks of its rows.

The algorithms use only the products, so the matrix may be larger than memory, or its rows may be
distributed over processes. Panels are host arrays of the matrix's dtype.
"""

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import jax
import numpy as np
import scipy

from rlreps.errors import InputError
from rlreps.subspace.row_blocks import ArrayBlocks, RowBlocks, regrouped

# Bytes of the rows in one product. Each group costs a sweep over the accumulated panel: if rows are
# long, groups grow until they hold several times as many rows as the panel has columns.
_GROUP_BYTES = 128 * 2**20
_LARGEST_GROUP_BYTES = 2 * 2**30
_ROWS_PER_COLUMN = 4

# Exponents e of squared norms 2^e at which no product of an algorithm leaves the range of float32.
_SAFE_EXPONENTS = range(-60, 61)


class Products:
    """Products of a matrix A [n, t] that is read in blocks of rows, once for each method called.

    Products use groups of rows of one size, whatever the blocks of the source. Products with the
    transpose are accumulated over groups in float64. Memory holds the panels (one of them in
    float64), one group, and the buffers of the source.

    If rows are distributed, every process reads its own rows, and the results are summed over the
    processes, so that all processes hold the same results. Every process orthonormalises the same
    panels itself, so the BLAS of all processes must round alike.

    If the norm of the rows lies beyond 1e-9 to 1e9, they are multiplied by a power of two whenever
    they are read, and the first product, which takes the norm, is repeated. All results are those
    of the scaled matrix.

    Attributes:
      shape: (n, t).
      dtype: float32 or float64.
      exponent: exponent of the power of two, known after the first product with the matrix.
    """

    exponent = 0

    def __init__(
        self,
        source: RowBlocks,
        *,
        first: int = 0,
        num_rows: int | None = None,
        total: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        """Take the rows of a source, which are numbered from ``first``.

        Args:
          source: this process's rows, [r, t]; there may be none.
          first: index of the source's first row in the matrix.
          num_rows: n; None is r.
          total: returns the sum of all processes' arrays of one shape; all call it together.
        """
        count = source.shape[0] if num_rows is None else num_rows
        self.shape = (count, source.shape[1])
        self.dtype = source.dtype
        self._source, self._total = source, total
        self._own = slice(first, first + source.shape[0])
        self._energy: float | None = None

    @property
    def total_energy(self) -> float:
        """Squared Frobenius norm in float64, known after the first product; scaled as results are.

        Raises:
          InputError: if the matrix is not finite, or its norm is zero or beyond 1e-140 to 1e140
            (the first product raises it too).
        """
        if self._energy is None:
            for _ in self._groups():
                pass
        own = np.asarray(self._energy)
        energy = float(own if self._total is None else self._total(own))
        expected = "a matrix that is not zero after centring, of norm 1e-140 to 1e140"
        if not 1e-280 <= energy <= 1e280:
            raise InputError(f"expected {expected}, got {math.sqrt(energy):.3g}")
        return energy

    def multiply(self, panel: np.ndarray) -> np.ndarray:
        """Return A times a panel [t, m], [n, m]."""
        return self.multiply_and_normal(panel, panel[:, :0])[0]

    def multiply_transposed(self, panel: np.ndarray) -> np.ndarray:
        """Return A' times a panel [n, m], [t, m]."""
        own, product = panel[self._own], np.zeros((self.shape[1], panel.shape[1]), np.float64)
        for start, rows in self._groups(panel.shape[1]):
            product += rows.T @ own[start : start + len(rows)]
        return self._summed(product)

    def sharpen(self, panel: np.ndarray) -> np.ndarray:
        """Run one power iteration: an orthonormal basis of A'A times a panel [t, m], [t, m].

        A matrix in memory is read twice, and the panel is orthonormalised between the products.
        Other matrices are read once, and the panel is not orthonormalised in between. A'A squares
        the spectrum, so in the first iteration rounding hides a fresh panel's directions below
        sqrt(eps) sigma_1. Later iterations recover them: once the panel's columns are sorted by
        size, rounding changes the product of column i by only eps sigma_1 / sigma_i of its size.
        The two products after the last iteration are orthonormalised one by one as usual.
        """
        if isinstance(self._source, ArrayBlocks):
            return orthonormalise(self.multiply_transposed(orthonormalise(self.multiply(panel))))
        return orthonormalise(self.multiply_and_normal(panel[:, :0], panel)[1])

    def multiply_and_normal(
        self, panel: np.ndarray, probes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return A times a panel [t, m] and A'A times probes [t, s]: [n, m] and [t, s]."""
        width, is_first = panel.shape[1], self._energy is None
        both = np.concatenate([panel, probes], axis=1)
        images = np.zeros((self.shape[0], width), self.dtype)
        own, normal = images[self._own], np.zeros(probes.shape, np.float64)
        for start, rows in self._groups(both.shape[1]):
            with np.errstate(over="ignore", invalid="ignore"):  # Scaled below.
                product = rows @ both
                own[start : start + len(rows)] = product[:, :width]
                normal += rows.T @ product[:, width:]
        if is_first and (exponent := scaling_exponent(self.total_energy)):
            self.exponent, self._energy = exponent, None
            return self.multiply_and_normal(panel, probes)
        if self._total is not None and images.size:
            images = self._total(images)
        return images, self._summed(normal)

    def _summed(self, part: np.ndarray) -> np.ndarray:
        """Sum all processes' arrays in float64; skip empty arrays."""
        summed = part if self._total is None or not part.size else self._total(part)
        return summed.astype(self.dtype)

    def _groups(self, width: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """Read the rows in groups for a panel of this many columns.

        The first read also takes their norm and checks that they are finite.
        """
        energy, row_bytes = 0.0, self.dtype.itemsize * self.shape[1]
        wanted = min(_ROWS_PER_COLUMN * width, _LARGEST_GROUP_BYTES // row_bytes)
        for start, rows in regrouped(self._source, max(1, _GROUP_BYTES // row_bytes, wanted)):
            if self.exponent:
                rows = np.ldexp(rows, self.exponent)
            if self._energy is None:
                part = float(np.einsum("ij,ij->", rows, rows, dtype=np.float64))
                if not math.isfinite(part) and not np.isfinite(rows).all():
                    raise InputError("expected a matrix of finite entries, got NaN or infinity")
                energy += part
            yield start, rows
        if self._energy is None:
            self._energy = energy


Matrix: TypeAlias = np.ndarray | jax.Array | RowBlocks | Products
"""A matrix that can be decomposed."""


def products_of(matrix: Matrix) -> Products:
    """Return the products of a matrix [n, t]; an accelerator's matrix is copied to the host."""
    if isinstance(matrix, Products):
        return matrix
    if isinstance(matrix, RowBlocks):
        return Products(matrix)
    array = np.asarray(matrix)
    # One block, so that groups are views.
    return Products(ArrayBlocks(array, max(1, len(array))))


def scaling_exponent(energy: float) -> int:
    """Return the exponent of the power of two that scales a matrix of this squared norm.

    It is zero at ordinary norms, so that their results do not depend on any scaling.
    """
    exponent = math.frexp(energy)[1]
    return 0 if exponent in _SAFE_EXPONENTS else -(exponent // 2)


def orthonormalise(panel: np.ndarray) -> np.ndarray:
    """Orthonormalise a panel's columns by Householder QR; overwrites the panel."""
    basis, _ = scipy.linalg.qr(panel, mode="economic", overwrite_a=True, check_finite=False)
    return np.asarray(basis)
