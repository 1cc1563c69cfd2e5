"""Every-visit estimates of the successor measure of any Gymnasium environment.

Only ``reset`` and ``step`` are needed: rows are averages, over the visits to a cell, of the
discounted cells from then on. Ends of episodes count as in ``rlreps.successor.gymnasium``.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from rlreps.config import checked, positive
from rlreps.errors import InputError, require, require_positive
from rlreps.successor.gymnasium import NO_CELL, CellStepper, GymnasiumProcess
from rlreps.successor.rows import RowEstimates
from rlreps.successor.settings import DiscountedSum

_CHUNK_ENTRIES = 2**19
"""Number of futures looked up at a time: a few megabytes, which stay in the processor's cache."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class VisitSettings(DiscountedSum):
    """A discounted sum, and the length of the run that estimates it.

    Attributes:
        steps: Calls of ``step`` of all copies; each takes about 100 bytes of memory per copy.
    """

    steps: int = positive()

    def __post_init__(self) -> None:
        require(self.steps >= self.steps_ahead, f"steps >= {self.steps_ahead}", self.steps)


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
            and B over the n_A and n_B visits by the even and the odd copies. It has the variance of
            the rows' own error; rows that a half has not visited are NaN.
        visits: Counted visits to each cell by either half, [2, n] (int64).
    """

    estimates: RowEstimates
    visits: np.ndarray

    def reduced(self, *, minimum_visits: int = 1) -> VisitedRows:
        """Return the rows of cells with enough visits by each half; all columns stay.

        Rows keep their sum, and columns of zeros change no left singular vector.

        Raises:
            InputError: If no cell has ``minimum_visits`` by each half.
        """
        require_positive("minimum_visits", minimum_visits)
        cells = np.flatnonzero(self.visits.min(axis=0) >= minimum_visits)
        most = int(self.visits.min(axis=0).max())
        require(cells.size > 0, f"minimum_visits <= {most}", minimum_visits)
        half_difference = self.estimates.half_difference
        assert half_difference is not None  # `every_visit` sets it.
        return VisitedRows(cells, RowEstimates(self.estimates.rows[cells], half_difference[cells]))


def every_visit(process: GymnasiumProcess, settings: VisitSettings) -> VisitEstimates:
    """Estimate the successor measure from all states visited from the environment's resets.

    The start distribution of a cell is that of the visits to it. A visit counts if its whole
    horizon lies before the last step of the run and before the age at which episodes are truncated
    (the youngest at which one was). Neither condition depends on what followed the visit: counting
    all visits with a known future would favour those that soon terminate. If truncation depends on
    the state, every estimate from truncated episodes is biased, this one included.

    A terminal state is absorbing, and is itself visited once an episode.

    Args:
        process: The environment, with at least two copies: even and odd copies make the two halves.
        settings: The discounted sum and the length of the run.

    Returns:
        The estimate. The same seed, settings and number of copies give the same bits.

    Raises:
        InputError: If no episode outlasts the horizon.
    """
    require(process.num_copies >= 2, "at least two copies of the environment", process.num_copies)
    record = _record(process, settings)
    ahead = settings.steps_ahead
    counts = (record.ages + ahead <= record.time_limit) & (record.times + ahead <= settings.steps)
    if not np.any(counts):
        raise InputError(
            f"expected episodes of at least {ahead} steps, got truncation after "
            f"{record.time_limit}: pass a larger max_episode_steps to gymnasium.make, or use a "
            "shorter horizon"
        )
    (rows_a, visits_a), (rows_b, visits_b) = (
        _mean_futures(record, np.flatnonzero(counts & (record.halves == half)), process, settings)
        for half in range(2)
    )
    visits = np.stack([visits_a, visits_b])
    with np.errstate(invalid="ignore"):
        shares = (visits / visits.sum(axis=0)).astype(np.float32)
    rows = shares[0][:, None] * rows_a + shares[1][:, None] * rows_b
    scale = np.sqrt(np.prod(shares, axis=0))
    scale[visits.min(axis=0) == 0] = np.nan
    return VisitEstimates(
        estimates=RowEstimates(rows, scale[:, None] * (rows_a - rows_b)), visits=visits
    )


class _Record(NamedTuple):
    """All states of a run in the order of (copy, time), p of them; each array is [p].

    Attributes:
        cells: Their cells.
        times: Steps since the start of the run.
        ages: Steps since the start of the episode.
        ends: Index, in this order, of the last state of the same episode.
        halves: Half to which the copy belongs.
        time_limit: Age at which episodes are truncated; the run's length if none was.
    """

    cells: np.ndarray
    times: np.ndarray
    ages: np.ndarray
    ends: np.ndarray
    halves: np.ndarray
    time_limit: int


def _record(process: GymnasiumProcess, settings: VisitSettings) -> _Record:
    """Run the environment; a step adds the state reached, a new start, or both to each copy."""
    shape = (settings.steps + 1, 2, process.num_copies)
    cells = np.full(shape, NO_CELL, np.int32)
    truncated = np.zeros(shape, np.bool_)
    stepper = CellStepper(process, (settings.seed,))
    cells[0, 1] = stepper.cells()
    run = stepper.run(settings.steps)
    cells[1:, 0], cells[1:, 1], truncated[1:, 0] = run.arrivals, run.restarts, run.truncated
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
    """Return mean discounted futures [n, n] (float32; 0 without visits) and visits [n].

    Visits are taken cell by cell, so that each row is summed in float64 within the cache.
    """
    n = process.size
    rows, visits = np.zeros((n, n), np.float32), np.bincount(record.cells[places], minlength=n)
    weights = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)
    lags = np.arange(settings.steps_ahead + 1)[-settings.horizon :]
    by_cell = places[np.argsort(record.cells[places], kind="stable")]
    lasts = np.cumsum(visits)
    chunk = max(1, _CHUNK_ENTRIES // settings.horizon)
    for cell in np.flatnonzero(visits):
        total = np.zeros(n)
        for first in range(lasts[cell] - visits[cell], lasts[cell], chunk):
            some = by_cell[first : min(first + chunk, lasts[cell])]
            # A terminal state is absorbing: after the end of its episode, a future stays there. If
            # the episode did not terminate, its end lies beyond the horizon.
            futures = np.minimum(some[:, None] + lags, record.ends[some][:, None])
            discounts = np.tile(weights, len(some))
            total += np.bincount(record.cells[futures].ravel(), discounts, n)
        rows[cell] = total / visits[cell]
    return rows, visits
