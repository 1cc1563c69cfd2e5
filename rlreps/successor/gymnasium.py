"""The successor measure of a Gymnasium environment whose state can be set.

The successor measure is that of a Markov chain on all states, whose transition kernel is
stochastic (Blier et al. 2021). Ends of episodes fit into this chain as follows.

- A state in which an episode *terminates* is absorbing: the rest of the discounted sum falls on its
  cell. If it has no reward, values Ψr are the usual ones, and every row still sums to
  (1 - γʰ) / (1 - γ).
- *Truncation* is not part of the dynamics: the environment must run for the whole horizon.
"""

import copy
import math
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rlreps.errors import InputError, require
from rlreps.successor.grids import BoxGrid
from rlreps.successor.rows import RowEstimates, RowEstimator, checked_cells
from rlreps.successor.settings import RolloutSettings

CellFunction = Callable[[Any], Any]
"""Batch of observations [m, ...], for any m → their cells [m], integers in [0, num_cells)."""

Policy = Callable[[Any, np.random.Generator], Any]
"""(Observations of all copies, generator) → actions of all copies."""

SetState = Callable[[VectorEnv[Any, Any, Any], np.ndarray], Any]
"""(Environment, a state for each copy) → observations of all copies, as ``reset`` returns them.

The function puts each copy into its state: a point [k] of the grid, [num_envs, k] in all, or,
without a grid, the number of a cell or the discrete observation that is the cell, [num_envs].
"""


class GymnasiumRowSampler(RowEstimator):
    """Estimates rows of the successor measure of an environment whose state can be set.

    The estimator is that of ``RowSampler``, one step of Python at a time. Everything random in a
    row is keyed by (seed, cell, batch of copies): rows have the same bits in any blocks and any
    order, if the number of copies is the same.

    The environment must run for the whole horizon without truncation (pass ``max_episode_steps``
    to ``gymnasium.make`` or ``make_vec``). A terminal state is absorbing once an episode has ended
    in it; a start never counts as terminal.

    Attributes:
        environment: The copies that are stepped together.
        num_cells: Number of cells.
    """

    def __init__(
        self,
        environment: VectorEnv[Any, Any, Any] | gymnasium.Env[Any, Any],
        *,
        settings: RolloutSettings,
        grid: BoxGrid | None = None,
        cell: CellFunction | None = None,
        num_cells: int | None = None,
        policy: Policy | None = None,
        copies: int = 32,
        set_state: SetState | None = None,
    ) -> None:
        """Prepare the sampler.

        Args:
            environment: From ``gymnasium.make_vec``, with next-step autoreset. It is reset,
                reseeded and stepped freely. Of an environment from ``gymnasium.make``, or of your
                own, ``copies`` are made by ``copy.deepcopy``. If it cannot be copied, it is made
                again from its ``spec``, without later changes.
            settings: The discounted sum and the number of rollouts from each cell, which must be
                even, for two equal halves. Rollouts fill the copies evenly if the number of copies
                divides the number of rollouts.
            grid: Cells over the states. Observations are points of the grid, unless there is a
                ``cell``. Discrete observations need no grid: each is a cell, the first is cell 0.
            cell: The cell function; None is that of the grid or of discrete observations.
            num_cells: Number of cells; None is that of the grid, or of discrete observations.
            policy: None draws from the action space, uniformly if the space is bounded.
            copies: Number of copies to step together, if the environment is not a vector.
            set_state: Puts copies into states, which are drawn uniformly inside the grid's cells;
                None is ``state_attribute()``.

        Raises:
            InputError: If the environment is no such environment, cells are not defined, or the
                number of rollouts is odd.
        """
        require(settings.rollouts % 2 == 0, "an even number of rollouts", settings.rollouts)
        if isinstance(environment, gymnasium.Env):
            environment = _copied(environment, copies)
        vector = isinstance(environment, VectorEnv)
        expected = "an environment, such as gymnasium.make or make_vec gives"
        require(vector, expected, type(environment).__name__)
        # Before Gymnasium 1.4, copies shared one metadata; the attribute belongs to each copy.
        stated = (environment.metadata or {}).get("autoreset_mode")
        mode = getattr(environment.unwrapped, "autoreset_mode", None) or stated
        expected = "a vector environment with next-step autoreset"
        require(mode == AutoresetMode.NEXT_STEP, expected, mode)
        self.environment, self._grid, self._policy = environment, grid, policy
        self._first = 0
        space = environment.single_observation_space
        if grid is None and cell is None and isinstance(space, gymnasium.spaces.Discrete):
            self._first, cell = int(space.start), self._numbered
            num_cells = int(space.n) if num_cells is None else num_cells
        if grid is not None:
            cell = self._cell_of_grid if cell is None else cell
            num_cells = grid.num_cells if num_cells is None else num_cells
        if cell is None or num_cells is None:
            raise InputError(
                f"expected a grid, or a cell function and num_cells, got {cell}, {num_cells}"
            )
        self._cell, self.num_cells = cell, num_cells
        # Cells beyond those of the grid hold states that cannot be set.
        self.num_starts = num_cells if grid is None else grid.num_cells
        self._set_state = state_attribute() if set_state is None else set_state
        self._settings, self._tried = settings, False
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
        for block in [checked_cells(block, self.num_starts) for block in blocks]:
            if not self._tried and len(block):
                self._warn_unless_obeyed(block)
            sums = np.zeros((2, len(block), self.num_cells))
            for row, cell in enumerate(block):
                sums[:, row] = self._visits_by_half(int(cell))
            yield RowEstimates(
                rows=((sums[0] + sums[1]) / rollouts).astype(np.float32),
                half_difference=((sums[0] - sums[1]) / rollouts).astype(np.float32),
            )

    def _visits_by_half(self, cell: int) -> np.ndarray:
        """Sum discounted visits [2, num_cells] over even and over odd rollouts separately."""
        copies, rollouts = self.environment.num_envs, self._settings.rollouts
        visits = np.zeros((2, self.num_cells))
        for batch in range(math.ceil(rollouts / copies)):
            trajectories = self._trajectories(cell, batch)
            number = batch * copies + np.arange(copies)
            for half in range(2):
                counted = trajectories[:, (number < rollouts) & (number % 2 == half)]
                weights = np.repeat(self._weights, counted.shape[1])
                visits[half] += np.bincount(counted.ravel(), weights, self.num_cells)
        return visits

    def _trajectories(self, cell: int, batch: int) -> np.ndarray:
        """Return counted cells [horizon, copies] of one rollout of every copy."""
        last, copies = self._settings.steps_ahead, self.environment.num_envs
        _, generator = self._reset(cell, batch)
        observations = self._placed(cell, generator)
        cells = np.empty((last + 1, copies), np.int64)
        cells[0], ended = cell, np.zeros(copies, np.bool_)
        for time in range(1, last + 1):
            actions = (
                self.environment.action_space.sample()
                if self._policy is None
                else self._policy(observations, generator)
            )
            observations, _, terminated, truncated, _ = self.environment.step(actions)
            # A terminal state is absorbing.
            cells[time] = np.where(ended, cells[time - 1], self.cells(observations))
            ended |= terminated
            if time < last and (truncated & ~ended).any():
                raise InputError(
                    f"expected an environment that runs for {last} steps, got one that is "
                    f"truncated after {time}: pass max_episode_steps={last} to gymnasium.make"
                )
            if ended.all():
                cells[time + 1 :] = cells[time]
                break
        return cells[-self._settings.horizon :]

    def cells(self, observations: Any) -> np.ndarray:
        """Return the checked cells [m] (int64) of a batch of observations."""
        cells = np.asarray(self._cell(observations))
        require(
            np.issubdtype(cells.dtype, np.integer) and cells.ndim == 1,
            "a cell function that gives one integer for each observation",
            f"{cells.dtype} of shape {cells.shape}",
        )
        reach = int(cells.min()), int(cells.max())
        inside = reach[0] >= 0 and reach[1] < self.num_cells
        require(inside, f"cells in [0, {self.num_cells})", reach)
        return cells.astype(np.int64)

    def _numbered(self, observations: Any) -> np.ndarray:
        return np.asarray(observations) - self._first

    def _cell_of_grid(self, observations: Any) -> np.ndarray:
        assert self._grid is not None
        axes, shape = len(self._grid.bins), np.shape(observations)
        require(
            len(shape) == 2 and shape[1] == axes,
            f"observations of {axes} numbers, one for each axis of the grid, or a cell "
            "function that finds their cells",
            f"shape {shape[1:]}",
        )
        cells: np.ndarray = self._grid.cell(observations)
        return cells

    def _reset(self, cell: int, batch: int) -> tuple[Any, np.random.Generator]:
        """Reset all copies; return their observations and the generator of this cell and batch."""
        sequence = np.random.SeedSequence([self._settings.seed, cell, batch])
        # 31 bits: some environments add the copy's number, or refuse more than 32 bits.
        reset_seed, action_seed = (int(word) >> 1 for word in sequence.generate_state(2))
        self.environment.action_space.seed(action_seed)
        observations, _ = self.environment.reset(seed=reset_seed)
        return observations, np.random.Generator(np.random.PCG64(sequence))

    def _placed(self, cell: int, generator: np.random.Generator) -> Any:
        """Put every copy, just reset, into a state of a cell; check and return what it sees."""
        cells = np.full(self.environment.num_envs, cell, np.int64)
        states = cells + self._first
        if self._grid is not None:
            states = self._grid.sample_with(generator, cells)
        observations = self._set_state(self.environment, states)
        expected = "observations from set_state, as reset returns them"
        require(observations is not None, expected, observations)
        for reached in self.cells(observations):
            require(reached == cell, f"set_state to start in cell {cell}", int(reached))
        return observations

    def _warn_unless_obeyed(self, block: np.ndarray) -> None:
        """Warn if ``set_state`` makes no difference to the next step.

        Up to three cells are tried, with the same actions. A lack of difference means that
        ``set_state`` sets nothing, or that the next state does not depend on the current one.
        """
        untouched = []
        for cell in {int(block[0]), int(block[len(block) // 2]), int(block[-1])}:
            ends = []
            for placed in (True, False):
                observations, generator = self._reset(cell, 0)
                elsewhere = self.cells(observations) != cell
                if placed:
                    self._placed(cell, generator)
                ends.append(self.environment.step(self.environment.action_space.sample())[0])
            if elsewhere.any() and isinstance(ends[0], np.ndarray):
                untouched.append(np.array_equal(ends[0][elsewhere], ends[1][elsewhere]))
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
