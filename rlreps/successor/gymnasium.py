"""The successor measure of any Gymnasium environment with a grid or a cell function.

The successor measure is that of a Markov chain on all states, whose transition kernel is
stochastic (Blier et al. 2021). Ends of episodes fit into this chain as follows.

- A state in which an episode *terminates* is absorbing: the rest of the discounted sum falls on its
  cell. If it has no reward, values Ψr are the usual ones, and every row still sums to
  (1 - γʰ) / (1 - γ).
- *Truncation* is not part of the dynamics. Nothing is counted after it, and rollouts that would
  need later steps are not used.

``GymnasiumRowSampler`` starts rollouts cell by cell, in environments whose state can be set.
``every_visit`` in ``rlreps.successor.visits`` needs only ``reset`` and ``step``.
"""

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from rlreps.config import checked, positive
from rlreps.errors import InputError, require
from rlreps.successor.grids import BoxGrid
from rlreps.successor.rows import RowEstimates, RowEstimator, checked_cells
from rlreps.successor.settings import RolloutSettings

NO_CELL = -1
"""Cell of a step that led to no state, or started no episode."""

CellFunction = Callable[[Any], Any]
"""Batch of observations [m, ...], for any m → their cells [m], integers in [0, num_cells)."""

Policy = Callable[[Any, np.random.Generator], Any]
"""(Observations of all copies, generator) → actions of all copies."""

SetState = Callable[[VectorEnv[Any, Any, Any], np.ndarray], Any]
"""(Environment, a state for each copy) → observations of all copies, as ``reset`` returns them.

The function puts each copy into its state: a point [k] of the grid, [num_envs, k] in all, or,
without a grid, the number of a cell or the discrete observation that is the cell, [num_envs].
"""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumProcess:
    """A vector environment under a policy, seen through a grid or a cell function.

    Attributes:
        environment: From ``gymnasium.make_vec``, or any other vector environment, in any autoreset
            mode. It is reset, reseeded and stepped freely. Of an environment from
            ``gymnasium.make``, or of your own, ``copies`` are made by ``copy.deepcopy``. If it
            cannot be copied, it is made again from its ``spec``, without later changes.
        grid: Cells over the states. Observations are points of the grid, unless there is a
            ``cell``. Discrete observations need no grid: each is a cell, the first is cell 0.
        cell: The cell function; None is that of the grid or of discrete observations.
        num_cells: Number of cells; None is that of the grid, or of discrete observations.
        policy: None draws from the action space, uniformly if the space is bounded.
        copies: Number of copies to step together, if the environment is not a vector.
    """

    environment: VectorEnv[Any, Any, Any] | gymnasium.Env[Any, Any]
    grid: BoxGrid | None = None
    cell: CellFunction | None = None
    num_cells: int | None = positive(None)
    policy: Policy | None = None
    copies: int = positive(32)

    def __post_init__(self) -> None:
        if isinstance(self.environment, gymnasium.Env):
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
            given = (self.cell, self.num_cells)
            require(None not in given, "a grid, or a cell function and num_cells", given)
        elif self.num_cells is None:
            object.__setattr__(self, "num_cells", self.grid.num_cells)
        require(
            isinstance(self.autoreset_mode, AutoresetMode),
            "a vector environment whose metadata has an autoreset_mode",
            self.autoreset_mode,
        )

    @property
    def num_copies(self) -> int:
        """Number of copies of the environment that are stepped together."""
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
        # Before Gymnasium 1.4, copies shared one metadata; the attribute belongs to each copy.
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
        reach = int(cells.min()), int(cells.max())
        require(reach[0] >= 0 and reach[1] < self.size, f"cells in [0, {self.size})", reach)
        return cells.astype(np.int64)

    def states(self, cells: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Draw a state uniformly inside each cell [m], [m, k]; see ``SetState``."""
        if self.grid is None:
            return cells + (self.cell.start if isinstance(self.cell, _Numbered) else 0)
        last = int(np.max(cells, initial=0))
        require(last < self.grid.num_cells, "starts in cells of the grid", last)
        return self.grid.sample_with(generator, cells)


@dataclasses.dataclass(frozen=True)
class _Numbered:
    """The cell function of discrete observations."""

    start: int

    def __call__(self, observations: Any) -> np.ndarray:
        return np.asarray(observations) - self.start


def _copied(environment: gymnasium.Env[Any, Any], copies: int) -> VectorEnv[Any, Any, Any]:
    """Make a vector of copies of an environment, with all changes made to it."""

    def make() -> gymnasium.Env[Any, Any]:
        try:
            return copy.deepcopy(environment)
        except Exception:  # Simulators in C++ may raise anything.
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


class CellRun(NamedTuple):
    """Steps of all copies; each entry is [t, e].

    Attributes:
        arrivals: Cell of the state that a step led to; ``NO_CELL`` if it only reset.
        terminated: Whether this state is terminal.
        truncated: Whether the episode was cut there.
        restarts: Cell of the first state of a new episode; ``NO_CELL`` if none began.
    """

    arrivals: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    restarts: np.ndarray


_TRACE_BYTES = 2**24
"""Number of observations whose cells are found together, which is faster than step by step."""


class _Trace:
    """The cells of observations of all copies, computed for many steps at a time."""

    def __init__(self, process: GymnasiumProcess) -> None:
        self._process = process
        self._found: list[np.ndarray] = []
        self._kept, self._count = np.empty(0), 0

    def add(self, observations: Any) -> None:
        """Add the observations of a step; arrays are copied, since environments overwrite them."""
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
        """Return the cells [t, e] of all steps added."""
        self._flush()
        return np.concatenate(self._found)

    def _flush(self) -> None:
        if self._count:
            kept = self._kept[: self._count]
            cells = self._process.cells(kept.reshape(-1, *kept.shape[2:]))
            self._found.append(cells.reshape(kept.shape[:2]))
            self._count = 0


class CellStepper:
    """Steps a process and separates its episodes, in any autoreset mode."""

    def __init__(self, process: GymnasiumProcess, seeds: Sequence[int]) -> None:
        """Reset the environment; its randomness depends on the seeds alone."""
        self._process = process
        self._environment = process.vector
        self._mode = process.autoreset_mode
        sequence = np.random.SeedSequence(list(seeds))
        self.generator = np.random.Generator(np.random.PCG64(sequence))
        # 31 bits: some environments add the copy's number, or refuse more than 32 bits.
        reset_seed, action_seed = (int(word) >> 1 for word in sequence.generate_state(2))
        self._environment.action_space.seed(action_seed)
        self._observations, _ = self._environment.reset(seed=reset_seed)
        self._ended = np.zeros(process.num_copies, np.bool_)

    def cells(self) -> np.ndarray:
        """Return cells [e] of the current states."""
        return self._process.cells(self._observations)

    def place(self, set_state: SetState, cells: np.ndarray) -> None:
        """Put every copy, just reset, into a state of its cell [e], and check the cell reached."""
        found = set_state(self._environment, self._process.states(cells, self.generator))
        require(found is not None, "observations from set_state, as reset returns them", found)
        self._observations = found
        for cell, reached in zip(cells, self.cells(), strict=True):
            require(reached == cell, f"set_state to start in cell {cell}", int(reached))

    def observations_ahead(self) -> Any:
        """Take one action of the action space in every copy, and return the next observations."""
        return self._environment.step(self._environment.action_space.sample())[0]

    def run(self, steps: int, *, first_episodes: bool = False) -> CellRun:
        """Take ``steps`` actions in every copy, or fewer if all copies end an episode first.

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


class GymnasiumRowSampler(RowEstimator):
    """Estimates rows of the successor measure of an environment whose state can be set.

    The estimator is that of ``RowSampler``, one step of Python at a time. Everything random in a
    row is keyed by (seed, cell, batch of copies): rows have the same bits in any blocks and any
    order, if the number of copies is the same.

    The environment must run for the whole horizon without truncation (pass ``max_episode_steps``
    to ``gymnasium.make`` or ``make_vec``). A terminal state is absorbing once an episode has ended
    in it; a start never counts as terminal.
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
            process: The environment. Rollouts fill its copies evenly if the number of copies
                divides the number of rollouts.
            settings: The discounted sum and the number of rollouts from each cell, which must be
                even, for two equal halves.
            set_state: Puts copies into states, which are drawn uniformly inside the grid's cells;
                None is ``state_attribute()``.

        Raises:
            InputError: For an odd number of rollouts.
        """
        require(settings.rollouts % 2 == 0, "an even number of rollouts", settings.rollouts)
        self._process, grid = process, process.grid
        # Cells beyond those of the grid hold states that cannot be set.
        self.num_starts = process.size if grid is None else grid.num_cells
        self._set_state = state_attribute() if set_state is None else set_state
        self._tried = False
        self._settings = settings
        self._weights = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """See ``RowEstimator.row_blocks``.

        Raises:
            InputError: If a cell lies outside the grid, the environment truncates a rollout, or
                ``set_state`` starts one in another cell.
        """
        rollouts = self._settings.rollouts
        for block in [checked_cells(block, self._process.size) for block in blocks]:
            if not self._tried and len(block):
                self._warn_unless_obeyed(block)
            sums = np.zeros((2, len(block), self._process.size))
            for row, cell in enumerate(block):
                sums[:, row] = self._visits_by_half(int(cell))
            yield RowEstimates(
                rows=((sums[0] + sums[1]) / rollouts).astype(np.float32),
                half_difference=((sums[0] - sums[1]) / rollouts).astype(np.float32),
            )

    def _visits_by_half(self, cell: int) -> np.ndarray:
        """Sum discounted visits [2, num_cells] over even and over odd rollouts separately."""
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

    def _warn_unless_obeyed(self, block: np.ndarray) -> None:
        """Warn if ``set_state`` makes no difference to the next step.

        Up to three cells are tried, with the same actions. A lack of difference means that
        ``set_state`` sets nothing, or that the next state does not depend on the current one.
        """
        untouched = []
        for cell in {int(block[0]), int(block[len(block) // 2]), int(block[-1])}:
            starts = np.full(self._process.num_copies, cell, np.int64)
            ends = []
            for placed in (True, False):
                stepper = CellStepper(self._process, (self._settings.seed, cell, 0))
                elsewhere = stepper.cells() != starts
                if placed:
                    stepper.place(self._set_state, starts)
                ends.append(stepper.observations_ahead())
            if elsewhere.any():
                same = [np.asarray(end)[elsewhere] for end in ends if isinstance(end, np.ndarray)]
                untouched.append(len(same) == 2 and np.array_equal(*same))
        if untouched and all(untouched):
            warnings.warn(
                "set_state made no difference to the next step from any cell tried: rows are "
                "right only if the environment's next state does not depend on its current one; "
                "it should set the copies' own attributes, as environment.set_attr(name, "
                "list(states)) does",
                UserWarning,
                stacklevel=2,
            )
        self._tried = True

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


def state_attribute(
    name: str = "state", *, observe: Callable[[np.ndarray], Any] = np.asarray
) -> SetState:
    """Return a ``SetState`` for environments that keep their state in an attribute.

    Args:
        name: Name of the attribute of each copy's unwrapped environment. At the first use, an
            ``InputError`` is raised if there is none, or one of another shape.
        observe: States [m, k] → observations [m, ...]; by default they are equal.

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
        require(
            current is None or np.shape(current) == states.shape[1:],
            f"a grid over the attribute {name!r}, of shape {np.shape(current)}, with a cell "
            "function if observations are no points of it",
            f"states of shape {states.shape[1:]}",
        )
        copies.set_attr(name, list(states))
        return observe(states)

    return set_state
