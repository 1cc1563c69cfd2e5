"""The successor measure from one-step transition probabilities, without rollouts.

With the first step F and the chain P of ``OneStep``,

    Ψ_h = I + γ F Σ_{t=0}^{h-2} γᵗ Pᵗ        (sum from the start state)
    Ψ_h = F Σ_{t=0}^{h-1} γᵗ Pᵗ              (sum from the first successor)

and the geometric sum is (I - γᵐ Pᵐ)(I - γP)⁻¹. Besides quadrature, the only approximation is state
aggregation: a step from a cell starts from the distribution of all agents that enter the cell, not
from the agent's own position. Without walls, the error is proportional to the square of the cells'
width. With walls, at whose edges agents stop, it is proportional to the width. Both need noise:
without it, agents that start in one sub-cell never part, and components can be wrong at any width.
``refinement`` divides each cell into sub-cells for the computation; the result sums over sub-cells.
"""

from collections.abc import Generator, Sequence

import jax
import numpy as np
import scipy.sparse

from rlreps.envs import PuddleWorld
from rlreps.errors import InputError, require, warn_user
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.rows import RowEstimates, RowEstimator, checked_cells
from rlreps.successor.measure.settings import TransitionSettings
from rlreps.successor.measure.transition_kernels.matrix import one_step
from rlreps.successor.measure.transition_kernels.modes import SlowModes, slow_modes
from rlreps.successor.measure.transition_kernels.solver import BandedSolver, factorise

TILE_ROWS = 100
"""Number of rows computed together. The last bits of the rows depend on this number, since matrix
products of other shapes round differently."""

_SHORTEST_CLOSED_FORM = 8
_LARGEST_DENSE_CHAIN = 2500
"""Largest number of sub-cells for which the sum is one small dense matrix in float64."""

_CUT_TOLERANCE = 1e-7
_STEP_TOLERANCE = 1e-5
_ROUNDING = 1e-3
_LONGEST_SINGLE_PRECISION = 1000.0
_LEAST_NOISE = 0.05
"""Standard deviation of a move, in widths of a sub-cell, below which aggregation is warned of."""


class TransitionEstimator(RowEstimator):
    """Computes rows of PuddleWorld's successor measure; prepared once, for any rows in any order.

    Memory: let f = (bins · refinement)² be the number of sub-cells, w the number of rows of
    sub-cells that the longest move crosses, and b = w · bins · refinement. Counting transitions
    takes about 20 f (2 w + 1)² bytes. The factors then take 12 f b bytes, or 24 f b for discounts
    above 0.999, which need float64. Counting and factors each take 0.1 GB for 100 x 100 sub-cells
    and 2 GB for 200 x 200. Rows are computed in aligned tiles of ``TILE_ROWS``, so that their bits
    do not depend on the rows requested. The bits do depend on the machine, its BLAS and the BLAS's
    threads.
    """

    def __init__(self, environment: PuddleWorld, grid: Grid, settings: TransitionSettings) -> None:
        """Count the transitions and factorise.

        Warns:
            FitWarning: If the noise of moves is below 0.05 of the width of a sub-cell.
        """
        self._grid = grid = grid.within(environment)
        self._settings, self.num_starts = settings, grid.num_states
        # Terms from the first step on; the start itself is added separately.
        self._terms = settings.steps_ahead
        fine = Grid(grid.bins * settings.refinement, grid.walls)
        if environment.noise * fine.bins < _LEAST_NOISE:
            warn_user(
                f"the noise of moves, {environment.noise:g}, is far below the width of a sub-cell, "
                f"{1.0 / fine.bins:.2g}: components can be wrong; take rollouts, the default method"
            )
        steps = one_step(environment, fine, points=settings.points, seed=settings.seed)
        self._first = _starts(grid, fine.bins, steps.free) @ steps.first
        self._ends = _ends(grid, fine) if grid.walls else None
        self._chain = steps.chain
        self._solver: BandedSolver | None = None
        self._end: tuple[np.ndarray, np.ndarray] | None = None
        self._dense_sum: np.ndarray | None = None
        if self._terms > _SHORTEST_CLOSED_FORM and fine.num_cells <= _LARGEST_DENSE_CHAIN:
            self._dense_sum = _dense_sum(self._chain.toarray(), settings.discount, self._terms)
        elif self._terms > _SHORTEST_CLOSED_FORM:
            self._prepare_closed_form(fine.bins)
        self._tile: tuple[int, np.ndarray] = (-1, np.empty(0))

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """See ``RowEstimator.row_blocks``; there is no sampling error."""
        for block in blocks:
            wanted = checked_cells(block, self._grid.num_states)
            rows = np.empty((len(wanted), self._grid.num_states), np.float32)
            for tile in np.unique(wanted // TILE_ROWS):
                here = wanted // TILE_ROWS == tile
                if self._tile[0] != tile:
                    self._tile = (int(tile), self._compute_tile(int(tile)))
                rows[here] = self._tile[1][wanted[here] - tile * TILE_ROWS]
            yield RowEstimates(rows)

    def transposed(self, weights: np.ndarray) -> np.ndarray:
        """Return Ψ' W for weights W, both [n, k] (float64), by one solve for k columns."""
        ahead = np.zeros(weights.shape)
        if self._terms:
            ahead += self._coarse(self._summed((self._first.T @ weights).T)).T
        return weights + self._settings.discount * ahead if self._settings.count_start else ahead

    def _prepare_closed_form(self, bins: int) -> None:
        discount, terms = self._settings.discount, self._terms
        # The omitted modes contribute γᵐ ρᵐ / (1 - γᵐ) of the sum, at most the tolerance.
        weight = discount**terms
        log_rest = (np.log(_CUT_TOLERANCE) + np.log1p(-weight) - terms * np.log(discount)) / terms
        double = 1.0 / (1.0 - discount) > _LONGEST_SINGLE_PRECISION
        for dtype in (np.float64,) if double else (np.float32, np.float64):
            solver = factorise(self._chain, bins, discount, dtype)
            if log_rest >= 0.0:
                self._solver = solver
                return
            modes = slow_modes(self._chain, solver, float(np.exp(log_rest)))
            if modes is None:
                return
            # Single precision blurs sums of many terms too much; double precision does not.
            if terms * weight * modes.residual <= _STEP_TOLERANCE:
                self._solver, self._end = solver, _end_of_sum(modes, discount, terms)
                return

    def _compute_tile(self, tile: int) -> np.ndarray:
        """Return rows [at most TILE_ROWS, n] (float32)."""
        start = tile * TILE_ROWS
        states = np.arange(start, min(start + TILE_ROWS, self._grid.num_states))
        first = self._first[start : start + len(states)].toarray()
        discount = self._settings.discount
        geometric = (1.0 - discount**self._terms) / (1.0 - discount)
        if self._terms == 0:
            rows = np.zeros((len(states), self._grid.num_states))
        else:
            rows = self._coarse(self._summed(first)).astype(np.float64)
            rows = _with_row_sums(rows, np.full(len(states), geometric))
        if self._settings.count_start:
            rows *= discount
            rows[np.arange(len(states)), states] += 1.0
        return rows.astype(np.float32)

    def _summed(self, first: np.ndarray) -> np.ndarray:
        """Return ``first`` · Σ_{t<m} γᵗ Pᵗ, [rows, sub-cells], for m >= 1 terms."""
        if self._dense_sum is not None:
            return np.asarray(first @ self._dense_sum)
        if self._solver is None:
            rows = first
            for _ in range(self._terms - 1):  # Horner's rule.
                rows = first + self._settings.discount * (rows @ self._chain)
            return rows
        rows = self._solver.rows(first)
        if self._end is not None:
            right, left = self._end
            rows -= ((first @ right) @ left).astype(rows.dtype)
        return rows

    def _coarse(self, fine_rows: np.ndarray) -> np.ndarray:
        """Sum [rows, sub-cells] over the sub-cells of each state, [rows, n]."""
        if self._ends is not None:
            return np.asarray(fine_rows @ self._ends)
        bins, refinement = self._grid.bins, self._settings.refinement
        parts = fine_rows.reshape(-1, bins, refinement, bins, refinement)
        return np.asarray(parts.sum(axis=(2, 4)).reshape(len(fine_rows), -1))


def _dense_sum(chain: np.ndarray, discount: float, terms: int) -> np.ndarray:
    """Compute Σ_{t<m} γᵗ Pᵗ = (I - γP)⁻¹ (I - γᵐ Pᵐ), [n, n] (float64)."""
    identity, step = np.eye(len(chain)), discount * chain
    powers = np.linalg.matrix_power(step, terms)
    return np.asarray(np.linalg.solve(identity - step, identity - powers))


def _starts(grid: Grid, fine: int, free: np.ndarray) -> scipy.sparse.csr_array:
    """Return the probability of each sub-cell for uniform starts in a state's cell, [n, sub-cells].

    ``fine`` is the number of sub-cells along each axis, and ``free`` [fine²] their shares outside
    the walls.
    """
    refinement, index = fine // grid.bins, np.arange(fine**2)
    cells = index // fine // refinement * grid.bins + index % fine // refinement
    sums = np.bincount(cells, free)
    found = bool(np.all(sums[grid.states] > 0.0))
    require(found, "a sub-cell outside the walls in every state", "none in some")
    chances = free / np.where(sums > 0.0, sums, 1.0)[cells]
    mean = scipy.sparse.csr_array((chances, (cells, index)), shape=(grid.num_cells, len(index)))
    return scipy.sparse.csr_array(mean[grid.states])


def _ends(grid: Grid, fine: Grid) -> scipy.sparse.csr_array:
    """Return the map from sub-cells to the states of their centres, [sub-cells, n]."""
    centres = Grid(fine.bins).centres()
    states = np.asarray(jax.jit(jax.vmap(grid.state))(centres))
    entries = np.ones(len(states)), (np.arange(len(states)), states)
    return scipy.sparse.csr_array(entries, shape=(len(states), grid.num_states))


def _end_of_sum(modes: SlowModes, discount: float, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Return factors [n, k] and [k, n] of γᵐ Pᵐ (I - γP)⁻¹, the terms beyond the horizon."""
    power = np.linalg.matrix_power(discount * modes.step, terms)
    left = np.linalg.solve(np.eye(len(modes.step)) - discount * modes.step, modes.left)
    return modes.right, power @ left


def _with_row_sums(rows: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Correct float32 rounding: set negative entries to 0 and rescale rows to their exact sums."""
    rows = np.maximum(rows, 0.0)
    found = rows.sum(axis=1)
    scales = np.divide(sums, found, out=np.ones_like(sums), where=found > 0.0)
    worst = float(np.max(np.abs(found - sums), initial=0.0))
    if worst > _ROUNDING * float(np.max(sums, initial=0.0)):
        raise InputError(
            f"expected rows that sum to {np.max(sums):.6g} up to rounding, got {worst:.3g} more or "
            "less; a smaller discount is better conditioned"
        )
    return np.asarray(rows * scales[:, None])
