"""The successor measure of any Gymnasium environment with a cell function.

The successor measure is that of a Markov chain on all states, whose transition kernel is
stochastic (Blier et al. 2021). How episodes end is turned into such a chain as follows.

- A state in which an episode *terminates* is absorbing: the rest of the discounted sum falls on its
  cell. With no reward there, values Ψr are the usual ones, and every row still sums to
  (1 - γʰ) / (1 - γ).
- *Truncation* is no part of the dynamics. Nothing is counted beyond it, and no rollout that would
  need what lies beyond it is used.

``GymnasiumRowSampler`` starts rollouts cell by cell where the environment's state can be set.
``every_visit`` needs nothing but ``reset`` and ``step``: its rows are averages, over the visits to
a cell, of the discounted cells from then on (every-visit Monte Carlo).
"""

import dataclasses
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from rlreps.errors import InputError, require, require_positive
from rlreps.successor.grids import BoxGrid
from rlreps.successor.measure import DiscountedSum, RolloutSettings, RowEstimates, checked_cells

NO_CELL = -1
"""Stands where a step led to no state, or started no episode."""

CellFunction = Callable[[Any], Any]
"""Batch of observations [m, ...], for any m → their cells [m], integers in [0, num_cells)."""

Policy = Callable[[Any, np.random.Generator], Any]
"""(Observations of all copies, generator) → actions of all copies."""

SetState = Callable[[VectorEnv[Any, Any, Any], np.ndarray, np.random.Generator], Any]
"""(Environment, cell [num_envs] for each copy, generator) → observations [num_envs, ...].

Puts each copy into a state drawn from the start distribution of its cell.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumProcess:
    """A vector environment under a policy, seen through a cell function.

    Attributes:
        environment: From ``gymnasium.make_vec``, or any other vector environment, in whatever
            autoreset mode. It is reset, reseeded and stepped at will.
        cell: The cell function.
        num_cells: Number of cells.
        policy: None draws from the action space, uniformly where that is bounded.
    """

    environment: VectorEnv[Any, Any, Any]
    cell: CellFunction
    num_cells: int
    policy: Policy | None = None

    def __post_init__(self) -> None:
        require(
            isinstance(self.environment, VectorEnv),
            "a vector environment, such as gymnasium.make_vec gives",
            type(self.environment).__name__,
        )
        require_positive("num_cells", self.num_cells)
        require(
            isinstance(self.autoreset_mode, AutoresetMode),
            "a vector environment whose metadata has an autoreset_mode",
            self.autoreset_mode,
        )

    @property
    def num_copies(self) -> int:
        """Copies of the environment that are stepped together."""
        return int(self.environment.num_envs)

    @property
    def autoreset_mode(self) -> Any:
        """Behaviour of the environment after the end of an episode."""
        # Before 1.4, copies made by Gymnasium shared one metadata; the attribute is their own.
        stated = (self.environment.metadata or {}).get("autoreset_mode")
        return getattr(self.environment.unwrapped, "autoreset_mode", None) or stated

    def cells(self, observations: Any) -> np.ndarray:
        """Return the checked cells [m] (int64) of a batch of observations."""
        cells = np.asarray(self.cell(observations))
        require(
            np.issubdtype(cells.dtype, np.integer) and cells.ndim == 1,
            "a cell function that gives one integer for each observation",
            f"{cells.dtype} of shape {cells.shape}",
        )
        lowest, highest = int(cells.min()), int(cells.max())
        inside = lowest >= 0 and highest < self.num_cells
        require(inside, f"cells in [0, {self.num_cells})", (lowest, highest))
        return cells.astype(np.int64)


class CellStep(NamedTuple):
    """One step of all copies, e; each entry is [e].

    Attributes:
        arrivals: Cell of the state that the step led to; ``NO_CELL`` where it only reset.
        terminated: Whether that state is terminal.
        truncated: Whether the episode was cut there.
        restarts: Cell of the first state of a new episode; ``NO_CELL`` where none began.
    """

    arrivals: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    restarts: np.ndarray


class CellStepper:
    """Steps a process and tells episodes apart, whatever the autoreset mode."""

    def __init__(self, process: GymnasiumProcess, seeds: Sequence[int]) -> None:
        """Reset the environment; its randomness depends on the seeds alone."""
        self._process = process
        self._environment = process.environment
        self._mode = process.autoreset_mode
        sequence = np.random.SeedSequence(list(seeds))
        self.generator = np.random.Generator(np.random.PCG64(sequence))
        # 31 bits: some environments add the number of the copy, or refuse more than 32.
        reset_seed, action_seed = (int(word) >> 1 for word in sequence.generate_state(2))
        self._environment.action_space.seed(action_seed)
        self._observations, _ = self._environment.reset(seed=reset_seed)
        self._ended = np.zeros(process.num_copies, np.bool_)

    def cells(self) -> np.ndarray:
        """Return cells [e] of the current states."""
        return self._process.cells(self._observations)

    def place(self, set_state: SetState, cells: np.ndarray) -> None:
        """Put every copy, just reset, into a state of its cell [e], and check that it is there."""
        self._observations = set_state(self._environment, cells, self.generator)
        for cell, reached in zip(cells, self.cells(), strict=True):
            if reached != cell:
                raise InputError(
                    f"expected set_state to start in cell {cell}, "
                    f"got an observation in cell {reached}"
                )

    def step(self) -> CellStep:
        """Take one action in every copy."""
        environment, policy = self._environment, self._process.policy
        if policy is None:
            actions = environment.action_space.sample()
        else:
            actions = policy(self._observations, self.generator)
        observations, _, terminated, truncated, infos = environment.step(actions)
        terminated, truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        ended = terminated | truncated
        cells = self._process.cells(observations)
        arrivals, restarts = cells, np.full_like(cells, NO_CELL)
        if self._mode is AutoresetMode.NEXT_STEP:
            arrivals = np.where(self._ended, NO_CELL, cells)
            restarts = np.where(self._ended, cells, NO_CELL)
            self._ended = ended
        elif np.any(ended):
            if self._mode is AutoresetMode.SAME_STEP:
                finals = [infos["final_obs"][copy] for copy in np.flatnonzero(ended)]
                space = environment.single_observation_space
                empty: Any = create_empty_array(space, len(finals))
                arrivals = cells.copy()
                arrivals[ended] = self._process.cells(concatenate(space, finals, empty))
            else:
                observations, _ = environment.reset(options={"reset_mask": ended.copy()})
                cells = self._process.cells(observations)
            restarts = np.where(ended, cells, NO_CELL)
        self._observations = observations
        return CellStep(arrivals, terminated, truncated, restarts)


class GymnasiumRowSampler:
    """Estimates rows of the successor measure of an environment whose state can be set.

    The same estimator as ``RowSampler``, one step of Python at a time. Everything random in a row
    is keyed by (seed, cell, batch of copies): rows come out to the same bits in whatever blocks and
    order, as long as the number of copies is the same.

    The environment must run for the whole horizon without truncation (pass ``max_episode_steps``
    to ``gymnasium.make_vec``). Terminal states are absorbing once an episode has ended in them; a
    start is never taken for terminal.
    """

    def __init__(
        self, process: GymnasiumProcess, *, set_state: SetState, settings: RolloutSettings
    ) -> None:
        """Prepare the sampler.

        Args:
            process: The environment; rollouts fill its copies evenly if their number divides that
                of the rollouts.
            set_state: Puts copies into states drawn from their cells' start distributions.
            settings: The discounted sum and the number of rollouts from each cell: even, so that
                it falls into two equal halves.
        """
        require(settings.rollouts % 2 == 0, "an even number of rollouts", settings.rollouts)
        self._process = process
        self._set_state = set_state
        self._settings = settings
        self._weights = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)

    def rows(self, cells: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return rows [len(cells), num_cells] (float32) for start cells (see ``row_blocks``)."""
        return next(self.row_blocks([cells])).rows

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """See ``RowEstimator.row_blocks``.

        Raises:
            InputError: If a cell lies outside the grid, the environment truncates a rollout, or
                ``set_state`` starts one in another cell.
        """
        rollouts = self._settings.rollouts
        for block in [checked_cells(block, self._process.num_cells) for block in blocks]:
            sums = np.zeros((2, len(block), self._process.num_cells))
            for row, cell in enumerate(block):
                sums[:, row] = self._visits_by_half(int(cell))
            yield RowEstimates(
                rows=((sums[0] + sums[1]) / rollouts).astype(np.float32),
                half_difference=((sums[0] - sums[1]) / rollouts).astype(np.float32),
            )

    def _visits_by_half(self, cell: int) -> np.ndarray:
        """Sum discounted visits [2, num_cells] over the even and over the odd rollouts."""
        copies, rollouts = self._process.num_copies, self._settings.rollouts
        visits = np.zeros((2, self._process.num_cells))
        for batch in range(math.ceil(rollouts / copies)):
            trajectories = self._trajectories(cell, batch)
            number = batch * copies + np.arange(copies)
            for half in range(2):
                counted = trajectories[:, (number < rollouts) & (number % 2 == half)]
                weights = np.repeat(self._weights, counted.shape[1])
                visits[half] += np.bincount(counted.ravel(), weights, self._process.num_cells)
        return visits

    def _trajectories(self, cell: int, batch: int) -> np.ndarray:
        """Return counted cells [horizon, copies] of one rollout of every copy."""
        last = self._settings.steps_ahead
        stepper = CellStepper(self._process, (self._settings.seed, cell, batch))
        starts = np.full(self._process.num_copies, cell, np.int64)
        stepper.place(self._set_state, starts)
        trajectories = np.tile(starts, (last + 1, 1))
        running = np.ones(self._process.num_copies, np.bool_)
        for time in range(1, last + 1):
            step = stepper.step()
            trajectories[time] = np.where(running, step.arrivals, trajectories[time - 1])
            running &= ~step.terminated
            if not running.any():
                trajectories[time:] = trajectories[time]
                break
            if time < last and np.any(running & step.truncated):
                raise InputError(
                    f"expected an environment that runs for {last} steps, got one that is "
                    f"truncated after {time}: pass max_episode_steps={last} to make_vec"
                )
        return trajectories[-self._settings.horizon :]


def starts_in_cells(
    grid: BoxGrid,
    *,
    attribute: str = "state",
    observe: Callable[[np.ndarray], Any] = np.asarray,
) -> SetState:
    """Return a ``SetState`` for environments that keep their state in an attribute.

    Args:
        grid: Cells over the *state* space; states are drawn uniformly inside them.
        attribute: Its name, of the unwrapped environment of each copy; an ``InputError`` at the
            first use if there is none.
        observe: States [m, k] → observations [m, ...]; by default they are the same.

    Returns:
        The function, for ``gymnasium.make_vec(..., vectorization_mode="sync")`` or ``"async"``.
    """

    def set_state(
        environment: VectorEnv[Any, Any, Any], cells: np.ndarray, generator: np.random.Generator
    ) -> Any:
        copies: Any = environment.unwrapped
        try:
            copies.get_attr(attribute)
        except AttributeError as error:
            raise InputError(
                f"expected copies of an environment with the attribute {attribute!r}, "
                f"got {environment}"
            ) from error
        states = grid.sample_with(generator, cells)
        copies.set_attr(attribute, list(states))
        return observe(states)

    return set_state


_CHUNK_ENTRIES = 2**19
"""Futures looked up at a time: a few megabytes, which stay in the processor's cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VisitSettings(DiscountedSum):
    """A discounted sum, and how long the environment is watched to estimate it.

    Attributes:
        steps: Calls of ``step``, each of all copies; about 100 bytes of memory each and copy.
    """

    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("steps", self.steps)
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
            and B over the n_A and n_B visits by the even and by the odd copies, which has the
            variance of the rows' own error; NaN in rows that a half has not visited.
        visits: Counted visits to each cell by either half, [2, n] (int64).
    """

    estimates: RowEstimates
    visits: np.ndarray

    def reduced(self, *, minimum_visits: int = 1) -> VisitedRows:
        """Return the rows of cells visited at least so often by each half; all columns stay.

        Rows keep their sum, and columns of zeros change no left singular vector.

        Raises:
            InputError: If no cell was visited as often.
        """
        require_positive("minimum_visits", minimum_visits)
        cells = np.flatnonzero(self.visits.min(axis=0) >= minimum_visits)
        most = int(self.visits.min(axis=0).max())
        require(cells.size > 0, f"minimum_visits <= {most}", minimum_visits)
        half_difference = self.estimates.half_difference
        assert half_difference is not None  # As `every_visit` made it.
        return VisitedRows(cells, RowEstimates(self.estimates.rows[cells], half_difference[cells]))


def every_visit(process: GymnasiumProcess, settings: VisitSettings) -> VisitEstimates:
    """Estimate the successor measure from all states visited from the environment's resets.

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
        InputError: If no episode outlasts the horizon.
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
        ends: Place, in this order, of the last state of the same episode.
        halves: Half that the copy belongs to.
        time_limit: Age at which episodes are truncated; the run's length if none was.
    """

    cells: np.ndarray
    times: np.ndarray
    ages: np.ndarray
    ends: np.ndarray
    halves: np.ndarray
    time_limit: int


def _record(process: GymnasiumProcess, settings: VisitSettings) -> _Record:
    """Run the environment; a step adds the state it led to, a new start, or both to each copy."""
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
    """Return mean discounted futures [n, n] (float32; 0 without visits) and visits [n].

    Visits are taken cell by cell, so that each row is summed in float64 within the cache.
    """
    n = process.num_cells
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
            # A terminal state is absorbing: past the end of its episode, a future stays there.
            # Where the episode goes on, the end lies beyond the horizon.
            futures = np.minimum(some[:, None] + lags, record.ends[some][:, None])
            discounts = np.tile(weights, len(some))
            total += np.bincount(record.cells[futures].ravel(), discounts, n)
        rows[cell] = total / visits[cell]
    return rows, visits
