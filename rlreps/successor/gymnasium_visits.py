"""The successor measure of any Gymnasium environment from the states that it visits by itself.

Nothing is needed of the environment but ``reset`` and ``step``: rows are averages, over the visits
to a cell, of the discounted cells from then on (every-visit Monte Carlo). Where the environment's
state can be set, ``GymnasiumRowSampler`` reaches every cell.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from rlreps.errors import InputError, require, require_positive
from rlreps.successor.estimates import RowEstimates
from rlreps.successor.gymnasium_process import NO_CELL, CellStepper, GymnasiumProcess

_CHUNK_ENTRIES = 2**19
"""Futures looked up at a time: a few megabytes, which stay in the processor's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VisitSettings:
    """What the discounted sum is and how long the environment is watched.

    Attributes:
        steps: Calls of ``step``, each of all copies; about 100 bytes of memory each and copy.
        horizon: Terms of the sum, h.
        discount: γ, strictly between 0 and 1.
        count_start: Whether the sum starts with the visited state (Σ_{t≥0} γᵗ) or with the one
            after it (Σ_{t≥1} γᵗ⁻¹).
        seed: Seed of every random draw, in [0, 2³²).

    Raises:
        InputError: If a value is outside its range, or no horizon fits into the steps.
    """

    steps: int
    horizon: int
    discount: float
    count_start: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require_positive("horizon", self.horizon)
        require(0.0 < self.discount < 1.0, "discount strictly between 0 and 1", self.discount)
        require(0 <= self.seed < 2**32, "seed in [0, 2**32)", self.seed)
        require_positive("steps", self.steps)
        require(self.steps >= self.steps_ahead, f"steps >= {self.steps_ahead}", self.steps)

    @property
    def steps_ahead(self) -> int:
        """Steps that must follow a visit for all terms of its sum to be known."""
        return self.horizon - 1 if self.count_start else self.horizon


class VisitedRows(NamedTuple):
    """Rows of the cells that were visited often enough.

    Attributes:
        cells: Their indices, rising, [m].
        estimates: Rows and half differences, [m, num_cells] (float32); no NaN.
    """

    cells: np.ndarray
    estimates: RowEstimates


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class VisitEstimates:
    """An every-visit estimate of a successor measure.

    Attributes:
        estimates: ``rows`` [n, n] (float32), NaN in the rows of cells never visited; and
            ``half_difference`` [n, n] (float32), √(n_A n_B) / (n_A + n_B) · (A - B) for the means A
            and B over the n_A and n_B visits by the even and by the odd copies, which has the
            variance of the rows' own error; NaN in rows that a half has not visited.
        visits: Counted visits to each cell by either half, [2, n] (int64).
    """

    estimates: RowEstimates
    visits: np.ndarray

    @property
    def unvisited(self) -> np.ndarray:
        """Cells without a row, rising, [m]."""
        return np.flatnonzero(self.visits.sum(axis=0) == 0)

    def reduced(self, *, minimum_visits: int = 1) -> VisitedRows:
        """The rows of cells visited at least so many times by each half; all columns are kept.

        Rows keep their sum, and columns of zeros change no left singular vector.

        Raises:
            InputError: If ``minimum_visits`` is below 1 or no cell was visited as often.
        """
        require_positive("minimum_visits", minimum_visits)
        cells = np.flatnonzero(self.visits.min(axis=0) >= minimum_visits)
        most = int(self.visits.min(axis=0).max())
        require(cells.size > 0, f"minimum_visits <= {most}", minimum_visits)
        half_difference = self.estimates.half_difference
        assert half_difference is not None  # As `every_visit` made it.
        return VisitedRows(cells, RowEstimates(self.estimates.rows[cells], half_difference[cells]))


def every_visit(process: GymnasiumProcess, settings: VisitSettings) -> VisitEstimates:
    """Estimates the successor measure from all states visited from the environment's own resets.

    The start distribution of a cell is that of the visits to it. A visit counts if its whole
    horizon lies before the last step of the run and before the age at which episodes are truncated
    (the youngest at which one was). Neither depends on what followed the visit: to count all visits
    whose future happens to be known would favour those that soon terminate. Where truncation
    depends on the state, no estimate from truncated episodes is free of bias, this one included.

    A terminal state is absorbing, and is itself visited once an episode.

    Args:
        process: The environment, of at least two copies: even and odd copies make the two halves.
        settings: The discounted sum and the length of the run.

    Returns:
        The estimate. The same seed, settings and number of copies give the same bits.

    Raises:
        InputError: If there are fewer than two copies, or no episode outlasts the horizon.
    """
    require(process.num_copies >= 2, "at least two copies of the environment", process.num_copies)
    record = _record(process, settings)
    ahead = settings.steps_ahead
    counts = (record.ages + ahead <= record.time_limit) & (record.times + ahead <= settings.steps)
    if not np.any(counts):
        raise InputError(
            f"expected episodes of at least {ahead} steps, got truncation after "
            f"{record.time_limit}: pass a larger max_episode_steps to make_vec, or use a shorter "
            "horizon"
        )
    halves = [
        _mean_futures(record, np.flatnonzero(counts & (record.halves == half)), process, settings)
        for half in range(2)
    ]
    return _combined(halves)


class _Record(NamedTuple):
    """All states of a run in the order of (copy, time), p of them.

    Attributes:
        cells: Their cells [p].
        times: Steps since the start of the run [p].
        ages: Steps since the start of the episode [p].
        ends: Place, in this order, of the last state of the same episode [p].
        halves: Half that the copy belongs to [p].
        time_limit: Age at which episodes are truncated; the run's length if none was.
    """

    cells: np.ndarray
    times: np.ndarray
    ages: np.ndarray
    ends: np.ndarray
    halves: np.ndarray
    time_limit: int


def _record(process: GymnasiumProcess, settings: VisitSettings) -> _Record:
    """Runs the environment. A step adds to each copy the state it led to, a new start, or both."""
    shape = (settings.steps + 1, 2, process.num_copies)
    cells = np.full(shape, NO_CELL, np.int32)
    truncated = np.zeros(shape, np.bool_)
    stepper = CellStepper(process, (settings.seed,))
    cells[0, 1] = stepper.cells()
    for time in range(1, settings.steps + 1):
        step = stepper.step()
        cells[time, 0], cells[time, 1] = step.arrivals, step.restarts
        truncated[time, 0] = step.truncated
    copies, times, slots = np.nonzero(np.moveaxis(cells, -1, 0) != NO_CELL)
    starts = np.flatnonzero(slots == 1)
    episodes = np.cumsum(slots == 1) - 1
    ages = np.arange(len(times)) - starts[episodes]
    cut = ages[truncated[times, slots, copies]]
    return _Record(
        cells=cells[times, slots, copies],
        times=times,
        ages=ages,
        ends=np.append(starts[1:], len(times))[episodes] - 1,
        halves=copies % 2,
        time_limit=int(cut.min()) if cut.size else settings.steps,
    )


def _mean_futures(
    record: _Record, places: np.ndarray, process: GymnasiumProcess, settings: VisitSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Mean discounted futures [n, n] (float32; 0 without visits) and number [n] of visits.

    Visits are taken cell by cell, so that each row is summed in float64 within the cache.
    """
    n = process.num_cells
    rows, visits = np.zeros((n, n), np.float32), np.bincount(record.cells[places], minlength=n)
    weights = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)
    lags = np.arange(settings.horizon) + (0 if settings.count_start else 1)
    by_cell = places[np.argsort(record.cells[places], kind="stable")]
    lasts = np.cumsum(visits)
    chunk = max(1, _CHUNK_ENTRIES // settings.horizon)
    for cell in np.flatnonzero(visits):
        total = np.zeros(n)
        for first in range(lasts[cell] - visits[cell], lasts[cell], chunk):
            some = by_cell[first : min(first + chunk, lasts[cell])]
            # A terminal state is absorbing: past the end of its episode, a future stays there.
            # Where the episode goes on, the end lies beyond the horizon.
            futures = np.minimum(some[:, None] + lags, record.ends[some][:, None])
            discounts = np.tile(weights, len(some))
            total += np.bincount(record.cells[futures].ravel(), discounts, n)
        rows[cell] = total / visits[cell]
    return rows, visits


def _combined(halves: list[tuple[np.ndarray, np.ndarray]]) -> VisitEstimates:
    """The mean over all visits, and the halves' scaled difference."""
    (rows_a, visits_a), (rows_b, visits_b) = halves
    visits = np.stack([visits_a, visits_b])
    with np.errstate(invalid="ignore"):
        shares = (visits / visits.sum(axis=0)).astype(np.float32)
    rows = shares[0][:, None] * rows_a + shares[1][:, None] * rows_b
    scale = np.sqrt(np.prod(shares, axis=0))
    scale[visits.min(axis=0) == 0] = np.nan
    return VisitEstimates(
        estimates=RowEstimates(rows, scale[:, None] * (rows_a - rows_b)), visits=visits
    )
