"""The successor measure of any Gymnasium environment with a grid or a cell function.

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

import copy
import dataclasses
import inspect
import math
import pickle
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from rlreps.errors import InputError, require, require_positive
from rlreps.successor.grids import BoxGrid
from rlreps.successor.rows import RowEstimates, checked_cells
from rlreps.successor.settings import DiscountedSum, RolloutSettings

NO_CELL = -1
"""Stands where a step led to no state, or started no episode."""

CellFunction = Callable[[Any], Any]
"""Batch of observations [m, ...], for any m → their cells [m], integers in [0, num_cells)."""

Policy = Callable[[Any, np.random.Generator], Any]
"""(Observations of all copies, generator) → actions of all copies."""

SetState = Callable[[VectorEnv[Any, Any, Any], np.ndarray], Any]
"""(Environment, a state for each copy) → observations of all copies, as ``reset`` returns them.

Puts each copy into its state: a point [k] of the grid, [num_envs, k] in all, or without a grid the
number of a cell, or the discrete observation that is one, [num_envs].
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumProcess:
    """A vector environment under a policy, seen through a grid or a cell function.

    Attributes:
        environment: From ``gymnasium.make_vec``, or any other vector environment, in whatever
            autoreset mode. It is reset, reseeded and stepped at will. Of an environment from
            ``gymnasium.make``, or of your own, ``copies`` are made by ``copy.deepcopy``. One that
            cannot be copied is made again from its ``spec``, without later changes to it.
        grid: Cells over the states. Observations are points of it, unless there is a ``cell``.
            Discrete observations need none: each is a cell, the first is cell 0.
        cell: The cell function; None is that of the grid or of discrete observations.
        num_cells: Number of cells; None is that of the grid, or of discrete observations.
        policy: None draws from the action space, uniformly where that is bounded.
        copies: Copies that are stepped together, of an environment that is no vector.
    """

    environment: VectorEnv[Any, Any, Any] | gymnasium.Env[Any, Any]
    grid: BoxGrid | None = None
    cell: CellFunction | None = None
    num_cells: int | None = None
    policy: Policy | None = None
    copies: int = 32

    def __post_init__(self) -> None:
        if isinstance(self.environment, gymnasium.Env):
            require_positive("copies", self.copies)
            object.__setattr__(self, "environment", _copied(self.environment, self.copies))
        require(
            isinstance(self.environment, VectorEnv),
            "an environment, such as gymnasium.make or make_vec gives",
            type(self.environment).__name__,
        )
        space = self.vector.single_observation_space
        unseen = self.grid is None and self.cell is None
        if unseen and isinstance(space, gymnasium.spaces.Discrete):
            object.__setattr__(self, "cell", _Numbered(int(space.start)))
            if self.num_cells is None:
                object.__setattr__(self, "num_cells", int(space.n))
        if self.grid is None:
            given = [name for name in ("cell", "num_cells") if getattr(self, name) is not None]
            said = f"{given[0]} alone" if given else "none of them"
            require(len(given) == 2, "a grid, or a cell function and num_cells", said)
        elif self.num_cells is None:
            object.__setattr__(self, "num_cells", self.grid.num_cells)
        assert self.num_cells is not None
        require_positive("num_cells", self.num_cells)
        require(
            isinstance(self.autoreset_mode, AutoresetMode),
            "a vector environment whose metadata has an autoreset_mode",
            self.autoreset_mode,
        )
        for name, takes in (("cell", ("observations",)), ("policy", ("observations", "generator"))):
            if getattr(self, name) is not None:
                _require_arguments(name, getattr(self, name), takes)

    @property
    def num_copies(self) -> int:
        """Copies of the environment that are stepped together."""
        return int(self.vector.num_envs)

    @property
    def vector(self) -> VectorEnv[Any, Any, Any]:
        """The environment, a vector of copies."""
        assert isinstance(self.environment, VectorEnv)
        return self.environment

    @property
    def size(self) -> int:
        """Number of cells."""
        assert self.num_cells is not None
        return self.num_cells

    @property
    def autoreset_mode(self) -> Any:
        """Behaviour of the environment after the end of an episode."""
        # Before 1.4, copies made by Gymnasium shared one metadata; the attribute is their own.
        stated = (self.vector.metadata or {}).get("autoreset_mode")
        return getattr(self.vector.unwrapped, "autoreset_mode", None) or stated

    def cells(self, observations: Any) -> np.ndarray:
        """Return the checked cells [m] (int64) of a batch of observations."""
        if self.cell is not None:
            cells = np.asarray(self.cell(observations))
        else:
            assert self.grid is not None
            axes, shape = len(self.grid.bins), np.shape(observations)
            require(
                len(shape) == 2 and shape[1] == axes,
                f"observations of {axes} numbers, one for each axis of the grid, or a cell "
                "function that finds their cells",
                f"shape {shape[1:]}",
            )
            cells = self.grid.cell(observations)
        require(
            np.issubdtype(cells.dtype, np.integer) and cells.ndim == 1,
            "a cell function that gives one integer for each observation",
            f"{cells.dtype} of shape {cells.shape}",
        )
        lowest, highest = int(cells.min()), int(cells.max())
        inside = lowest >= 0 and highest < self.size
        require(inside, f"cells in [0, {self.size})", (lowest, highest))
        return cells.astype(np.int64)

    def states(self, cells: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Draw a state uniformly inside each cell [m]: [m, k], or see ``SetState``."""
        if self.grid is None:
            return cells + (self.cell.start if isinstance(self.cell, _Numbered) else 0)
        beyond = int(np.max(cells, initial=0))
        require(beyond < self.grid.num_cells, "starts in cells of the grid", beyond)
        return self.grid.sample_with(generator, cells)


@dataclasses.dataclass(frozen=True)
class _Numbered:
    """The cell function of discrete observations."""

    start: int

    def __call__(self, observations: Any) -> np.ndarray:
        return np.asarray(observations) - self.start


def _copied(environment: gymnasium.Env[Any, Any], copies: int) -> VectorEnv[Any, Any, Any]:
    """Make a vector of copies of an environment, with all that was changed in it."""

    def make() -> gymnasium.Env[Any, Any]:
        try:
            return copy.deepcopy(environment)
        except Exception:  # As of simulators in C++, whatever they raise.
            if environment.spec is None:
                raise
            return gymnasium.make(environment.spec, disable_env_checker=True)

    try:
        return SyncVectorEnv([make] * copies)
    except Exception as error:
        raise InputError(
            "expected an environment that can be copied, or a vector environment such as "
            f"gymnasium.make_vec gives, got {environment} ({error})"
        ) from error


def _require_arguments(name: str, function: Callable[..., Any], takes: Sequence[str]) -> None:
    """Raise an ``InputError`` unless a function can be called with so many arguments."""
    expected = f"{name}({', '.join(takes)})"
    require(callable(function), f"a function {expected}", function)
    try:
        signature = inspect.signature(function)
    except ValueError:  # Some compiled functions do not tell.
        return
    try:
        signature.bind(*takes)
    except TypeError:
        raise InputError(f"expected a function {expected}, got {name}{signature}") from None


class CellRun(NamedTuple):
    """Steps of all copies; each entry is [t, e].

    Attributes:
        arrivals: Cell of the state that a step led to; ``NO_CELL`` where it only reset.
        terminated: Whether that state is terminal.
        truncated: Whether the episode was cut there.
        restarts: Cell of the first state of a new episode; ``NO_CELL`` where none began.
    """

    arrivals: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    restarts: np.ndarray


_TRACE_BYTES = 2**24
"""Observations kept before their cells are found together, faster than step by step."""


class _Trace:
    """The cells of observations of all copies, found for many steps at a time."""

    def __init__(self, process: GymnasiumProcess) -> None:
        self._process = process
        self._found: list[np.ndarray] = []
        self._kept, self._count = np.empty(0), 0

    def add(self, observations: Any) -> None:
        """Add the observations of a step; arrays are copied, as environments write into them."""
        if not isinstance(observations, np.ndarray):
            self._found.append(self._process.cells(observations)[None])
            return
        if self._count == len(self._kept):
            self._flush()
            steps = min(
                max(16, 2 * len(self._kept)), 1 + _TRACE_BYTES // max(1, observations.nbytes)
            )
            self._kept = np.empty((steps, *observations.shape), observations.dtype)
        self._kept[self._count] = observations
        self._count += 1

    def cells(self) -> np.ndarray:
        """Return the cells [t, e] of all that was added."""
        self._flush()
        return np.concatenate(self._found)

    def _flush(self) -> None:
        if self._count:
            kept = self._kept[: self._count]
            cells = self._process.cells(kept.reshape(-1, *kept.shape[2:]))
            self._found.append(cells.reshape(kept.shape[:2]))
            self._count = 0


class CellStepper:
    """Steps a process and tells episodes apart, whatever the autoreset mode."""

    def __init__(self, process: GymnasiumProcess, seeds: Sequence[int]) -> None:
        """Reset the environment; its randomness depends on the seeds alone."""
        self._process = process
        self._environment = process.vector
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
        states = self._process.states(cells, self.generator)
        try:
            found = set_state(self._environment, states)
        except (AttributeError, TypeError) as error:  # As of arguments taken for each other.
            raise InputError(
                "expected set_state(environment, states) to set the states of a vector "
                f"environment, got {type(error).__name__}: {error}"
            ) from error
        shape, single = None, self._environment.single_observation_space.shape
        if single is not None:
            shape = (len(cells), *single)
        if found is None or (shape is not None and np.shape(found) != shape):
            said = "None" if found is None else f"shape {np.shape(found)}"
            wanted = "observations" if shape is None else f"observations of shape {shape}"
            raise InputError(
                f"expected set_state(environment, states) to return {wanted}, as reset does, "
                f"got {said}"
            )
        self._observations = found
        for cell, reached in zip(cells, self.cells(), strict=True):
            if reached != cell:
                raise InputError(
                    f"expected set_state to start in cell {cell}, "
                    f"got an observation in cell {reached}"
                )

    def observations_ahead(self) -> Any:
        """Take one action of the action space in every copy, and return what is observed then."""
        return self._environment.step(self._environment.action_space.sample())[0]

    def run(self, steps: int, *, first_episodes: bool = False) -> CellRun:
        """Take ``steps`` actions in every copy, fewer once all of its first episodes have ended.

        Args:
            steps: Calls of ``step``, at least 1.
            first_episodes: Whether to stop when every copy has ended an episode.
        """
        environment, policy, mode = self._environment, self._process.policy, self._mode
        terminated = np.zeros((steps, self._process.num_copies), np.bool_)
        truncated = np.zeros_like(terminated)
        trace, over = _Trace(self._process), np.zeros(self._process.num_copies, np.bool_)
        before, apart = self._ended, {}
        time = 0
        for time in range(steps):
            if policy is None:
                actions = environment.action_space.sample()
            else:
                actions = policy(self._observations, self.generator)
            observations, _, terminated[time], truncated[time], infos = environment.step(actions)
            trace.add(observations)
            ended = terminated[time] | truncated[time]
            self._observations = observations
            if ended.any():
                if mode is AutoresetMode.SAME_STEP:
                    finals = [infos["final_obs"][copy] for copy in np.flatnonzero(ended)]
                    space = environment.single_observation_space
                    empty: Any = create_empty_array(space, len(finals))
                    apart[time] = self._process.cells(concatenate(space, finals, empty))
                elif mode is AutoresetMode.DISABLED:
                    self._observations, _ = environment.reset(options={"reset_mask": ended.copy()})
                    apart[time] = self.cells()[ended]
                over |= ended
                if first_episodes and over.all():
                    break
        terminated, truncated = terminated[: time + 1], truncated[: time + 1]
        arrivals, ended = trace.cells(), terminated | truncated
        restarts = np.full_like(arrivals, NO_CELL)
        if mode is AutoresetMode.NEXT_STEP:
            self._ended = ended[-1]
            only_reset = np.concatenate([before[None], ended[:-1]])
            restarts[only_reset], arrivals[only_reset] = arrivals[only_reset], NO_CELL
        else:
            for time, cells in apart.items():
                there = ended[time]
                if mode is AutoresetMode.SAME_STEP:
                    restarts[time, there], arrivals[time, there] = arrivals[time, there], cells
                else:
                    restarts[time, there] = cells
        return CellRun(arrivals, terminated, truncated, restarts)


class GymnasiumRowSampler:
    """Estimates rows of the successor measure of an environment whose state can be set.

    The same estimator as ``RowSampler``, one step of Python at a time. Everything random in a row
    is keyed by (seed, cell, batch of copies): rows come out to the same bits in whatever blocks and
    order, as long as the number of copies is the same.

    The environment must run for the whole horizon without truncation (pass ``max_episode_steps``
    to ``gymnasium.make`` or ``make_vec``). Terminal states are absorbing once an episode has ended
    in them; a start is never taken for terminal.
    """

    def __init__(
        self,
        process: GymnasiumProcess,
        *,
        settings: RolloutSettings,
        set_state: SetState | None = None,
    ) -> None:
        """Prepare the sampler.

        Args:
            process: The environment; rollouts fill its copies evenly if their number divides that
                of the rollouts.
            settings: The discounted sum and the number of rollouts from each cell: even, so that
                it falls into two equal halves.
            set_state: Puts copies into states, which are drawn uniformly inside the grid's cells;
                None is ``state_attribute()``.

        Raises:
            InputError: For an odd number of rollouts, or a ``set_state`` of other arguments.
        """
        kind = type(process).__name__
        require(isinstance(process, GymnasiumProcess), "a GymnasiumProcess", kind)
        require(settings.rollouts % 2 == 0, "an even number of rollouts", settings.rollouts)
        self._process = process
        self._set_state = state_attribute() if set_state is None else set_state
        _require_arguments("set_state", self._set_state, ("environment", "states"))
        self._obeyed = False
        self._settings = settings
        self._weights = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)

    def rows(self, cells: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return rows [len(cells), num_cells] (float32) for start cells (see ``row_blocks``)."""
        return next(self.row_blocks([cells])).rows

    def estimates(self, cells: Sequence[int] | np.ndarray | None = None) -> RowEstimates:
        """Return the rows of start cells with the difference of their halves.

        None is all cells, or all of the grid if there is one.
        """
        grid = self._process.grid
        count = self._process.size if grid is None else grid.num_cells
        return next(self.row_blocks([range(count) if cells is None else cells]))

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """See ``RowEstimator.row_blocks``.

        Raises:
            InputError: If a cell lies outside the grid, the environment truncates a rollout, or
                ``set_state`` starts one in another cell or moves no copy of the environment.
        """
        rollouts = self._settings.rollouts
        for block in [checked_cells(block, self._process.size) for block in blocks]:
            if not self._obeyed and len(block):
                self._require_obeyed(block)
            sums = np.zeros((2, len(block), self._process.size))
            for row, cell in enumerate(block):
                sums[:, row] = self._visits_by_half(int(cell))
            yield RowEstimates(
                rows=((sums[0] + sums[1]) / rollouts).astype(np.float32),
                half_difference=((sums[0] - sums[1]) / rollouts).astype(np.float32),
            )

    def _visits_by_half(self, cell: int) -> np.ndarray:
        """Sum discounted visits [2, num_cells] over the even and over the odd rollouts."""
        copies, rollouts = self._process.num_copies, self._settings.rollouts
        visits = np.zeros((2, self._process.size))
        for batch in range(math.ceil(rollouts / copies)):
            trajectories = self._trajectories(cell, batch)
            number = batch * copies + np.arange(copies)
            for half in range(2):
                counted = trajectories[:, (number < rollouts) & (number % 2 == half)]
                weights = np.repeat(self._weights, counted.shape[1])
                visits[half] += np.bincount(counted.ravel(), weights, self._process.size)
        return visits

    def _require_obeyed(self, block: np.ndarray) -> None:
        """Raise an ``InputError`` if ``set_state`` returns observations and sets nothing.

        Up to three cells are tried, with the same actions. Where no start makes a difference to
        the next step, either no attribute that a copy had is another after the call, which is
        refused, or the next state may not depend on the current one: there is a warning.
        """
        untouched, sets = [], False
        for cell in {int(block[0]), int(block[len(block) // 2]), int(block[-1])}:
            starts = np.full(self._process.num_copies, cell, np.int64)
            ends = []
            for placed in (True, False):
                stepper = CellStepper(self._process, (self._settings.seed, cell, 0))
                elsewhere = stepper.cells() != starts
                if placed:
                    before = _attributes(self._process.vector)
                    stepper.place(self._set_state, starts)
                    sets |= _changed(before, _attributes(self._process.vector))
                ends.append(stepper.observations_ahead())
            if elsewhere.any():
                untouched.append(bool(_equal(ends[0], ends[1], len(starts))[elsewhere].all()))
        if untouched and all(untouched):
            if not sets:
                raise InputError(
                    "expected set_state to put every copy of the environment into its state, got "
                    "steps as if it had not been called; set the copies' own attributes, as "
                    "environment.set_attr(name, list(states)) does"
                )
            warnings.warn(
                "set_state made no difference to the next step from any cell tried: rows are "
                "right only if the environment's next state does not depend on its current one",
                UserWarning,
                stacklevel=2,
            )
        self._obeyed = True

    def _trajectories(self, cell: int, batch: int) -> np.ndarray:
        """Return counted cells [horizon, copies] of one rollout of every copy."""
        last, copies = self._settings.steps_ahead, self._process.num_copies
        stepper = CellStepper(self._process, (self._settings.seed, cell, batch))
        starts = np.full((1, copies), cell, np.int64)
        stepper.place(self._set_state, starts[0])
        if last == 0:
            return starts
        run = stepper.run(last, first_episodes=True)
        ended = np.logical_or.accumulate(run.terminated)
        cut = np.flatnonzero((run.truncated & ~ended)[: last - 1].any(axis=1))
        if cut.size:
            raise InputError(
                f"expected an environment that runs for {last} steps, got one that is "
                f"truncated after {cut[0] + 1}: pass max_episode_steps={last} to gymnasium.make"
            )
        # A terminal state is absorbing.
        ends = np.where(ended[-1], 1 + ended.argmax(axis=0), last)
        times = np.minimum(np.arange(last + 1)[:, None], ends)
        trajectories = np.concatenate([starts, run.arrivals])[times, np.arange(copies)]
        return trajectories[-self._settings.horizon :]


def _attributes(environment: VectorEnv[Any, Any, Any]) -> list[dict[str, bytes]] | None:
    """Return the pickled attributes of every copy, None where they cannot be had."""
    copies: Any = environment.unwrapped
    try:
        return [
            {name: pickle.dumps(value) for name, value in vars(each.unwrapped).items()}
            for each in copies.envs
        ]
    except Exception:  # Copies in other processes, simulators in C++, lambdas.
        return None


def _changed(before: list[dict[str, bytes]] | None, after: list[dict[str, bytes]] | None) -> bool:
    """Return whether an attribute that some copy had is, or may be, another."""
    if before is None or after is None:
        return True
    return any(not old.items() <= new.items() for old, new in zip(before, after, strict=True))


def _equal(first: Any, second: Any, copies: int) -> np.ndarray:
    """Return which copies [e] observe the same; observations that are no array count as others."""
    if not isinstance(first, np.ndarray):
        return np.zeros(copies, np.bool_)
    return np.asarray((first == second).reshape(len(first), -1).all(axis=1))


def state_attribute(
    name: str = "state", *, observe: Callable[[np.ndarray], Any] = np.asarray
) -> SetState:
    """Return a ``SetState`` for environments that keep their state in an attribute.

    Args:
        name: Of the unwrapped environment of each copy; an ``InputError`` at the first use if there
            is none, or one of another shape.
        observe: States [m, k] → observations [m, ...]; by default they are the same.

    Returns:
        The function, for environments in this process and in others.
    """

    def set_state(environment: VectorEnv[Any, Any, Any], states: np.ndarray) -> Any:
        copies: Any = environment.unwrapped
        try:
            current = copies.get_attr(name)[0]
        except AttributeError as error:
            raise InputError(
                f"expected copies of an environment with the attribute {name!r}, or another "
                f"set_state, such as state_attribute(NAME) gives, got {environment}"
            ) from error
        # Observations often have other coordinates than the state: an angle's cosine and sine.
        fitting = current is None or np.shape(current) == states.shape[1:]
        require(
            fitting,
            f"a grid over the attribute {name!r}, of shape {np.shape(current)}, with a cell "
            "function if observations are no points of it",
            f"states of shape {states.shape[1:]}",
        )
        copies.set_attr(name, list(states))
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
            # A terminal state is absorbing: past the end of its episode, a future stays there.
            # Where the episode goes on, the end lies beyond the horizon.
            futures = np.minimum(some[:, None] + lags, record.ends[some][:, None])
            discounts = np.tile(weights, len(some))
            total += np.bincount(record.cells[futures].ravel(), discounts, n)
        rows[cell] = total / visits[cell]
    return rows, visits
