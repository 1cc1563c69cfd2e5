"""How far the transition method's rows are from the truth, as two refinements of it tell."""

import dataclasses
from typing import NamedTuple

import numpy as np

from rlreps.envs import PuddleWorld
from rlreps.subspace import centre_columns_in_place, exact_svd, nested_distances
from rlreps.successor.grid import Grid
from rlreps.successor.transition import TransitionEstimator, TransitionSettings

_REMAINING = 4.0 / 3.0


class AggregationError(NamedTuple):
    """The error of a matrix of the transition method that comes from forgetting places in cells.

    Attributes:
        entries: Estimated error of each entry, with its sign (method minus truth), [n, n].
        distances: Estimated subspace distance to the truth of the top-d subspace of the centred
            matrix, for d = 1, 2, ..., [k].
    """

    entries: np.ndarray
    distances: np.ndarray


def aggregation_error(
    environment: PuddleWorld, grid: Grid, settings: TransitionSettings, *, rank: int
) -> AggregationError:
    """Compares a refinement with its double and extrapolates.

    The error of an entry falls with the square of the sub-cells' width once that is below the
    scale on which rows vary (the noise of a move, 0.01). Doubling the refinement then removes three
    quarters of it: the whole is 4/3 of the change, and a subspace distance, quadratic in small
    errors, 16/9. On coarser grids, where halving the width helps less than fourfold, the estimate
    is too low, and tells the order of magnitude only. It holds both matrices and runs the finer
    one, some 20 times the work: for grids small enough, whose error bounds that of finer grids.

    Args:
        environment: The dynamics.
        grid: The cells.
        settings: Whose error it is.
        rank: The most dimensions, k; fewer where the matrix has fewer.

    Returns:
        The estimated errors.
    """
    cells = np.arange(grid.num_cells)
    rows = TransitionEstimator(environment, grid, settings).rows(cells)
    finer = dataclasses.replace(settings, refinement=2 * settings.refinement)
    finer_rows = TransitionEstimator(environment, grid, finer).rows(cells)
    entries = _REMAINING * (rows - finer_rows)
    bases = []
    for matrix in (rows, finer_rows):
        centre_columns_in_place(matrix)
        bases.append(exact_svd(matrix, min(rank, grid.num_cells), at_most=True).basis)
    dimensions = min(basis.shape[1] for basis in bases)
    distances = nested_distances(*(basis[:, :dimensions] for basis in bases))
    return AggregationError(entries, np.minimum(_REMAINING**2 * distances, 1.0))
