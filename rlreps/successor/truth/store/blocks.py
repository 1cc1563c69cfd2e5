"""Stored matrices as row blocks, for linear algebra, and by single entries, for training."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require
from rlreps.subspace.row_blocks import DerivedBlocks, subtract_means
from rlreps.successor.truth.store.format import MatrixStore
from rlreps.typing import IndexArray

Entries = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, eq=False)
class StoreBlocks:
    """The rows of a complete store; a corrupt block raises an ``InputError``.

    Attributes:
        store: The store.
        part: Consecutive blocks, whose rows are numbered from 0; None is all blocks.
    """

    store: MatrixStore
    part: range | None = None

    @property
    def shape(self) -> tuple[int, int]:
        rows = self.rows
        return rows.stop - rows.start, self.store.shape[1]

    @property
    def rows(self) -> slice:
        """Range of the store's rows in these blocks."""
        if self.part is None:
            return slice(0, self.store.shape[0])
        bounds = [self.store.block_range(index) for index in self.part]
        return slice(bounds[0][0], bounds[-1][1]) if bounds else slice(0, 0)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for index, rows in self.store.iterate_blocks(self.part):
            yield self.store.block_range(index)[0] - self.rows.start, rows


@dataclasses.dataclass(frozen=True, eq=False)
class HalfBlocks(DerivedBlocks):
    """The rows of one of the two halves whose mean is a sampled matrix.

    Attributes:
        source: Mean of the halves.
        half_difference: Half their difference, in the same blocks.
        sign: 1 for the first half, -1 for the second.
    """

    half_difference: StoreBlocks
    sign: int

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        pairs = zip(self.source.blocks(), self.half_difference.blocks(), strict=True)
        for (start, rows), (_, difference) in pairs:
            yield start, rows + np.float32(self.sign) * difference


@dataclasses.dataclass(frozen=True, eq=False)
class WatchedBlocks(DerivedBlocks):
    """Row blocks that call ``advance`` with the number of rows of each block after its use."""

    advance: Callable[[int], object]

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        for start, rows in self.source.blocks():
            yield start, rows
            self.advance(len(rows))


class StoreReader:
    """Reads entries of a store's matrix, centred, straight from the block files.

    Whole rows are read, since a few columns would take as long. A block's checksum is not checked,
    since the check needs the whole block. The earlier read that computes the means checks all
    blocks. Reading entries detects only blocks that are missing or too short, and NaN or infinity.
    Means are subtracted in float64, and the result is rounded once, as in
    ``subspace.centre_in_place``: equal means give equal bits.
    """

    def __init__(
        self, store: MatrixStore, means: np.ndarray, row_means: np.ndarray | None = None
    ) -> None:
        """Prepare to read a complete store.

        Args:
            store: The store.
            means: Means subtracted from the columns, [tasks] (float64), as from
                ``subspace.centring_means``.
            row_means: Means subtracted from the rows, [n] (float64); None subtracts none.

        Raises:
            InputError: For means of another shape, or if blocks are missing.
        """
        require(means.shape == store.shape[1:], f"column means {store.shape[1:]}", means.shape)
        store.require_complete()
        self._store, self._means, self._row_means = store, means, row_means

    @property
    def shape(self) -> tuple[int, int]:
        """(n, tasks)."""
        return self._store.shape

    def entries(self, rows: IndexArray, columns: IndexArray) -> Entries:
        """Return centred entries [b, t] (float32) of rows [b] and columns [t], which may repeat."""
        store = self._store
        width = store.shape[1]
        found, row = np.empty((len(rows), len(columns)), np.float32), np.empty(width, "<f4")
        blocks, offsets = np.divmod(rows, store.block_rows)
        for block in np.unique(blocks).tolist():
            try:
                with store.block_file(block).open("rb", buffering=0) as file:
                    for place in np.flatnonzero(blocks == block):
                        file.seek(4 * width * int(offsets[place]))
                        if file.readinto(row.data) != row.nbytes:
                            raise OSError("too few bytes")
                        found[place] = row[columns]
            except OSError as error:
                raise InputError(
                    f"{store.path}: expected a whole {store.describe_block(block)}, "
                    f"got {error.strerror or error}; verify the store"
                ) from error
        if not np.isfinite(found).all():
            raise InputError(
                f"{store.path}: expected finite entries, got NaN or infinity; verify the store"
            )
        of_rows = None if self._row_means is None else self._row_means[rows]
        subtract_means(found, self._means[columns], of_rows, out=found)
        return found
