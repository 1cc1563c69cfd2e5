"""Stored matrices as row blocks, in which linear algebra reads them one at a time."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlreps.subspace.row_blocks import DerivedBlocks
from rlreps.successor.store.format import MatrixStore


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
        """The range of the store's rows that they are."""
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
