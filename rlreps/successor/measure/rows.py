"""Rows of a matrix as estimators return them, block by block."""

import abc
import contextlib
import math
from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np

from rlreps.errors import require


class RowEstimates(NamedTuple):
    """Rows of a matrix and, if they were sampled, the difference of two halves of the samples.

    Attributes:
        rows: Ψ for a block of start states, [r, tasks] (float32).
        half_difference: (A - B) / 2 for two independent halves A and B of the samples, [r, tasks]
            (float32); the rows are the mean of all samples. If one half has one more sample, the
            difference is scaled to the variance of the rows' error, with which it is uncorrelated.
            None if nothing was sampled.
    """

    rows: np.ndarray
    half_difference: np.ndarray | None = None


def combine_halves(
    first: np.ndarray, second: np.ndarray, rollouts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of all rollouts and half the difference of two halves (float32).

    Args:
        first: Sum over the first half, which has one more rollout if their number is odd.
        second: Sum over the second half.
        rollouts: Number of all rollouts.
    """
    more, fewer = rollouts - rollouts // 2, rollouts // 2
    # If the halves are unequal, half their difference has a larger variance than the mean of
    # all rollouts. The factor √(more · fewer) / rollouts makes the variances equal.
    scale = first.dtype.type(math.sqrt(more * fewer)) / rollouts
    mean, difference = (first + second) / rollouts, (first / more - second / fewer) * scale
    return mean.astype(np.float32, copy=False), difference.astype(np.float32, copy=False)


def checked_cells(cells: Sequence[int] | np.ndarray, num_cells: int) -> np.ndarray:
    """Return start cells [r] as int32, each an integer in [0, num_cells)."""
    values = np.asarray(cells)
    if values.size:
        require(np.issubdtype(values.dtype, np.integer), "integer start cells", values.dtype.name)
        lowest, highest = int(values.min()), int(values.max())
        valid = lowest >= 0 and highest < num_cells
        require(valid, f"start cells in [0, {num_cells})", (lowest, highest))
    return values.astype(np.int32)


class RowEstimator(abc.ABC):
    """Computes rows of one matrix, for any blocks in any order, always with the same bits.

    Attributes:
        num_starts: Number of start states.
    """

    num_starts: int

    @abc.abstractmethod
    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """Yield the rows of each block of start states, in the order given.

        Args:
            blocks: Start states of each block, each in [0, n).

        Yields:
            Rows and half differences, [len(block), n] (float32), for each block.

        Raises:
            InputError: If a state is not an integer in [0, n).
        """

    def estimates(self, cells: Sequence[int] | np.ndarray | None = None) -> RowEstimates:
        """Return the rows of start states (None: all), with half differences if sampled."""
        given = range(self.num_starts) if cells is None else cells
        with contextlib.closing(self.row_blocks([given])) as blocks:
            return next(blocks)

    def rows(self, cells: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the rows of start states, [len(cells), n] (float32)."""
        return self.estimates(cells).rows
