"""What every way of computing a successor measure hands over, block of rows by block of rows."""

from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol

import numpy as np


class RowEstimates(NamedTuple):
    """Rows of a matrix and, where they were sampled, what their sampling error looks like.

    Attributes:
        rows: Ψ for a block of start states, [r, tasks] (float32).
        half_difference: (A - B) / 2 for two independent halves A and B of the samples, whose mean
            the rows are, [r, tasks] (float32); scaled, where one half has a sample more, to have
            the variance of the rows' own error all the same, and no correlation with it. None where
            nothing was sampled.
    """

    rows: np.ndarray
    half_difference: np.ndarray | None = None


class RowEstimator(Protocol):
    """Computes rows of one matrix, for any blocks of them in any order, always to the same bits."""

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """Yields the rows of each block of start states, in the order given."""
        ...
