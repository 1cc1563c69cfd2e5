"""Matrices that are read in blocks of rows only, so that they may be larger than memory.

Centring is here too: ``Centring`` says how each way of centring affects the components.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from rlreps.config import checked
from rlreps.errors import require
from rlreps.numerics import require_array

Centring: TypeAlias = Literal["columns", "rows", "both"]
"""Which means are subtracted from Psi [n states, t tasks] before its components are taken.

- ``columns``: each task's mean over the states. Principal component analysis with states as
  observations gives the same components: at most n - 1, orthogonal to the constant function.
- ``rows``: each state's mean over the tasks, as in the public code of Le Lan et al. 2023. The rows
  of a successor measure all have the same sum, so the same number, row_sum / t, is subtracted from
  every entry. The constant function stays in the matrix: its energy grows with the difference of
  the mean row from uniform visits to all cells. Components need not be orthogonal to the constant.
- ``both``: one after the other, in either order (the two projections commute). If all rows have the
  same sum, this equals ``columns`` up to rounding.
"""

# Rows that are summed at a time for the column means. The last bit of the means depends on this
# number, so everything that centres a matrix sums the same groups. A group of a 10,000-column
# float32 matrix stays inside the caches.
_SUMMED_ROWS = 64


@runtime_checkable
class RowBlocks(Protocol):
    """A matrix [n, t] as a sequence of blocks of rows that can be read any number of times."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, t): states and tasks."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every block, float32 or float64."""
        ...

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, rows [r, t]) in order, from row 0 to row n - 1 without a gap."""
        ...


@checked
@dataclasses.dataclass(frozen=True, eq=False)
class ArrayBlocks:
    """An array [n, t] in memory as row blocks, which are views of it; the last may be shorter."""

    matrix: np.ndarray
    block_rows: int = 1024

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return rows, columns

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for start in range(0, self.shape[0], self.block_rows):
            yield start, self.matrix[start : start + self.block_rows]


@dataclasses.dataclass(frozen=True, eq=False)
class DerivedBlocks:
    """Row blocks made from others, the source, of the same shape and dtype."""

    source: RowBlocks

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype


@dataclasses.dataclass(frozen=True, eq=False)
class CentredBlocks(DerivedBlocks):
    """Row blocks with a number per column and one per row subtracted, rounded once from float64.

    With `centring_means` of the same source, the rows equal, bit for bit, those that
    `centre_in_place` leaves in an array.

    Attributes:
      source: the matrix, [n, t].
      means: [t] float64.
      row_means: [n] float64; None subtracts nothing from the rows.
    """

    means: np.ndarray
    row_means: np.ndarray | None = None

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for start, rows in self.source.blocks():
            centred = np.empty_like(rows)
            of_rows = None if self.row_means is None else self.row_means[start : start + len(rows)]
            subtract_means(rows, self.means, of_rows, out=centred)
            yield start, centred


def _require_blocks(source: RowBlocks) -> None:
    expected = "row blocks, such as ArrayBlocks(matrix)"
    require(isinstance(source, RowBlocks), expected, type(source).__name__)


def column_means(source: RowBlocks) -> np.ndarray:
    """Compute the mean of every column over the rows in one pass.

    Sums are in float64 over groups of rows that do not depend on how the source is blocked, so
    neither do the means [t] (float64).

    Raises:
      InputError: if the matrix has no rows.
    """
    _require_blocks(source)
    num_rows, num_columns = source.shape
    require(num_rows > 0, "a matrix with at least one row", source.shape)
    sums = np.zeros(num_columns, dtype=np.float64)
    for _, rows in regrouped(source, _SUMMED_ROWS):
        # NumPy's order of addition follows the memory layout; copying a few rows makes it unique.
        sums += np.sum(np.ascontiguousarray(rows), axis=0, dtype=np.float64)
    return np.asarray(sums / num_rows)


def row_means(source: RowBlocks) -> np.ndarray:
    """Compute the mean of every row over the columns in one pass, in float64, [n].

    Like `column_means`, they do not depend on how the source is blocked or laid out.

    Raises:
      InputError: if the matrix has no columns.
    """
    _require_blocks(source)
    num_rows, num_columns = source.shape
    require(num_columns > 0, "a matrix with at least one column", source.shape)
    sums = np.empty(num_rows, dtype=np.float64)
    for start, rows in regrouped(source, _SUMMED_ROWS):
        # Widen in C order first: NumPy would sum narrower rows by pieces of its buffer.
        sums[start : start + len(rows)] = rows.astype(np.float64, order="C").sum(axis=1)
    return sums / num_columns


def centring_means(source: RowBlocks, centring: Centring) -> tuple[np.ndarray, np.ndarray | None]:
    """Compute what a centring subtracts: a number per column, [t], and one per row, [n] or None.

    Both kinds of means contain the grand mean, so ``both`` subtracts it from the row means.
    ``both`` takes two passes over the matrix; ``columns`` and ``rows`` take one pass.

    Raises:
      InputError: if the matrix is empty.
    """
    if centring == "columns":
        return column_means(source), None
    if centring == "rows":
        means_of_rows = row_means(source)
        return np.zeros(source.shape[1]), means_of_rows
    means = column_means(source)
    return means, row_means(source) - means.mean()


def subtract_means(
    rows: np.ndarray, means: np.ndarray, row_means: np.ndarray | None = None, *, out: np.ndarray
) -> None:
    """Write rows [r, t] minus means [t] and row means [r] to out [r, t], rounded from float64."""
    if row_means is None:
        np.subtract(rows, means, out=out, casting="same_kind")
    else:
        np.subtract(rows - means, row_means[:, None], out=out, casting="same_kind")


def regrouped(source: RowBlocks, group_rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the same rows in groups of a fixed size, whatever the source's own blocks are.

    Args:
      source: the matrix [n, t].
      group_rows: rows in a group; the last group may have fewer.

    Yields:
      (first row, rows [group_rows, t]) in order: a view if a group lies within one block, else a
      copy, which the next group may overwrite.
    """
    num_rows, num_columns = source.shape
    buffer: np.ndarray | None = None
    start = filled = 0  # first row of the current group, and its number of rows in the buffer
    for _, rows in source.blocks():
        taken = 0
        while taken < len(rows):
            size = min(group_rows, num_rows - start)
            count = min(size - filled, len(rows) - taken)
            part = rows[taken : taken + count]
            taken += count
            if count < size:
                if buffer is None:
                    buffer = np.empty((min(group_rows, num_rows), num_columns), source.dtype)
                buffer[filled : filled + count] = part
                filled += count
                if filled < size:
                    continue
                part = buffer[:size]
            yield start, part
            start, filled = start + size, 0


# Bytes of the rows in one product.
_GROUP_BYTES = 64 * 2**20


def project_rows(basis: np.ndarray, source: RowBlocks) -> np.ndarray:
    """Compute the coefficients Q^T Psi of the tasks in a basis of states, in one read.

    Args:
      basis: Q, [n, d] columns over the states.
      source: Psi, [n, t], centred or not.

    Returns:
      [d, t] in the matrix's dtype; sums over groups of rows are taken in float64.
    """
    basis = _fitting(basis, source)
    coefficients = np.zeros((basis.shape[1], source.shape[1]), np.float64)
    for part, rows in _paired(basis, source):
        coefficients += part.T @ rows
    return coefficients.astype(source.dtype)


def residual_energy(span: np.ndarray, source: RowBlocks) -> float:
    """Compute the squared norm of the rest of a matrix outside a basis, ||(I - Q Q^T) Psi||_F^2.

    The residual is formed before it is squared (a difference of energies would cancel), and its
    squares are summed in float64. The matrix is read twice.

    Args:
      span: Q, [n, d] orthonormal columns; zero columns are allowed.
      source: Psi, [n, t].
    """
    span = _fitting(span, source)
    coefficients = project_rows(span, source)
    energy = 0.0
    for part, rows in _paired(span, source):
        residual = rows - part @ coefficients
        energy += float(np.einsum("ij,ij->", residual, residual, dtype=np.float64))
    return energy


def _fitting(basis: np.ndarray, source: RowBlocks) -> np.ndarray:
    """Return a basis [n, d] in the matrix's dtype; raise if it is over other states."""
    require_array("a basis as an array [n, d]", basis)
    _require_blocks(source)
    fits = basis.ndim == 2 and basis.shape[0] == source.shape[0]
    require(fits, f"a basis over the matrix's {source.shape[0]} states", basis.shape)
    return np.asarray(basis, source.dtype)


def _paired(basis: np.ndarray, source: RowBlocks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield groups of rows of a basis [n, d] and of a matrix [n, t]."""
    group_rows = max(1, _GROUP_BYTES // (source.dtype.itemsize * source.shape[1]))
    for start, rows in regrouped(source, group_rows):
        yield basis[start : start + len(rows)], rows
