"""The successor measure of a Gymnasium environment whose state can be set.

The successor measure is defined for a Markov chain on all states: the transition probabilities of
every state sum to 1 (Blier et al. 2021). Ends of episodes fit into this chain as follows.

- A state in which an episode *terminates* is absorbing: the rest of the discounted sum falls on its
  cell. If the terminal state has no reward, Ψr are the usual values. Every row still sums to
  (1 - γʰ) / (1 - γ).
- *Truncation* is not part of the dynamics: the environment must run for the whole horizon.
"""

import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlreps.errors import InputError, require
from rlreps.successor.fitting.recording import Policy
from rlreps.successor.measure.grids import BoxGrid
from rlreps.successor.measure.rows import RowEstimates, RowEstimator, checked_cells
from rlreps.successor.measure.settings import RolloutSettings

CellFunction = Callable[[Any], Any]
"""Observations [m, ...], for any m → their cells [m], integers in [0, num_cells)."""

SetState = Callable[[gymnasium.Env[Any, Any], Any], Any]
"""(environment, state) → observation, as ``reset`` returns it.

The function puts the environment into a state. With a grid, the state is a point [k]. Without a
grid, it is the number of a cell, or the discrete observation that counts as the cell.
"""

_TRIED = 8
"""Number of starts that show whether ``set_state`` makes a difference."""


class GymnasiumRowSampler(RowEstimator):
    """Estimates rows of the successor measure of an environment whose state can be set.

    It estimates rows like ``RowSampler``, but steps the environment in Python. Every random number
    of a row is keyed by (seed, cell, rollout): rows have the same bits in any blocks and any order.

    The environment must run for the whole horizon without truncation (pass ``max_episode_steps``
    to ``gymnasium.make``). A terminal state is absorbing once an episode has ended in it; a start
    never counts as terminal.

    Attributes:
        num_cells: Number of cells.
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        *,
        settings: RolloutSettings,
        grid: BoxGrid | None = None,
        cell: CellFunction | None = None,
        num_cells: int | None = None,
        policy: Policy | None = None,
        set_state: SetState | None = None,
    ) -> None:
        """Prepare the sampler.

        Args:
            environment: From ``gymnasium.make``, or your own. It is reset, reseeded and stepped.
            settings: The discounted sum and the number of rollouts from each cell. The number must
                be even, for two equal halves.
            grid: Cells over the states. Observations are points of the grid, unless ``cell`` is
                given. Discrete observations need no grid: each observation is a cell, numbered from
                0.
            cell: The cell function; None uses the grid, or discrete observations as cells.
            num_cells: Number of cells; None counts the cells of the grid or the discrete
                observations.
            policy: None draws from the action space, uniformly if the space is bounded.
            set_state: Puts the environment into states, which are drawn uniformly inside the grid's
                cells; None is ``state_attribute()``.

        Raises:
            InputError: If the environment is not a single Gymnasium environment, cells are not
                defined, or the number of rollouts is odd.
        """
        require(settings.rollouts % 2 == 0, "an even number of rollouts", settings.rollouts)
        single = isinstance(environment, gymnasium.Env)
        require(single, "a single environment (gymnasium.make)", type(environment).__name__)
        self._environment, self._grid, self._policy = environment, grid, policy
        self._first = 0
        space = environment.observation_space
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
        # Cells beyond the grid's cells hold states that cannot be set.
        self.num_starts = num_cells if grid is None else grid.num_cells
        self._set_state = state_attribute() if set_state is None else set_state
        self._settings, self._tried = settings, False

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """See ``RowEstimator.row_blocks``; refuse truncated rollouts and starts in other cells."""
        rollouts, weights = self._settings.rollouts, self._settings.discounts
        for block in [checked_cells(block, self.num_starts) for block in blocks]:
            if not self._tried and len(block):
                self._warn_unless_obeyed(block)
            sums = np.zeros((2, len(block), self.num_cells))  # Even and odd rollouts.
            for row, cell in enumerate(block):
                for number in range(rollouts):
                    visited = self._rollout(int(cell), number)
                    sums[number % 2, row] += np.bincount(visited, weights, self.num_cells)
            yield RowEstimates(
                rows=((sums[0] + sums[1]) / rollouts).astype(np.float32),
                half_difference=((sums[0] - sums[1]) / rollouts).astype(np.float32),
            )

    def _rollout(self, cell: int, number: int) -> np.ndarray:
        """Return the counted cells [horizon] of one rollout."""
        last = self._settings.steps_ahead
        _, generator = self._reset(cell, number)
        seen = [self._placed(cell, generator)]
        for time in range(1, last + 1):
            policy, space = self._policy, self._environment.action_space
            action = space.sample() if policy is None else policy(seen[-1], generator)
            observation, _, terminated, truncated, _ = self._environment.step(action)
            seen.append(np.array(observation))  # The environment may reuse its array.
            if terminated:
                break
            if truncated and time < last:
                raise InputError(
                    f"expected an environment that runs for {last} steps, got one that is "
                    f"truncated after {time}: pass max_episode_steps={last} to gymnasium.make"
                )
        cells = self.cells(np.asarray(seen))
        # A terminal state is absorbing.
        return np.pad(cells, (0, last + 1 - len(cells)), "edge")[-self._settings.horizon :]

    def cells(self, observations: Any) -> np.ndarray:
        """Return the checked cells [m] (int64) of observations [m, ...]."""
        cells = np.asarray(self._cell(observations))
        require(
            np.issubdtype(cells.dtype, np.integer) and cells.shape == (len(observations),),
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

    def _reset(self, cell: int, number: int) -> tuple[np.ndarray, np.random.Generator]:
        """Reset; return the observation and the generator of this rollout."""
        sequence = np.random.SeedSequence([self._settings.seed, cell, number])
        # 31 bits: some environments refuse more than 32 bits.
        reset_seed, action_seed = (int(word) >> 1 for word in sequence.generate_state(2))
        self._environment.action_space.seed(action_seed)
        observation, _ = self._environment.reset(seed=reset_seed)
        return np.array(observation), np.random.Generator(np.random.PCG64(sequence))

    def _placed(self, cell: int, generator: np.random.Generator) -> np.ndarray:
        """Put the environment, just reset, into a state of a cell; return the observation."""
        state: Any = cell + self._first
        if self._grid is not None:
            state = self._grid.sample_with(generator, np.asarray(cell))
        observation = self._set_state(self._environment, state)
        expected = "an observation from set_state, as reset returns it"
        require(observation is not None, expected, observation)
        seen = np.array(observation)
        reached = int(self.cells(seen[None])[0])
        expected = f"set_state({state!r}) to start in cell {cell} of {self.num_cells}"
        require(reached == cell, expected, f"cell {reached}, observation {seen.tolist()}")
        return seen

    def _warn_unless_obeyed(self, block: np.ndarray) -> None:
        """Warn if ``set_state`` makes no difference to the next step.

        Without a difference, either ``set_state`` sets nothing, or the next state does not depend
        on the current state.
        """
        untouched = []
        for number, cell in enumerate(np.resize(block, _TRIED).tolist()):
            ends = []
            for placed in (True, False):
                observation, generator = self._reset(cell, number)
                elsewhere = self.cells(observation[None])[0] != cell
                if placed:
                    self._placed(cell, generator)
                action = self._environment.action_space.sample()
                ends.append(np.array(self._environment.step(action)[0]))
            if elsewhere:
                untouched.append(np.array_equal(ends[0], ends[1]))
        if untouched and all(untouched):
            warnings.warn(
                "set_state made no difference to the next step from any cell tried: rows are "
                "right only if the environment's next state does not depend on its current one; "
                "set_state should set attributes of environment.unwrapped, as "
                "setattr(environment.unwrapped, name, state) does",
                UserWarning,
                stacklevel=2,
            )
        self._tried = True


def state_attribute(name: str = "state", *, observe: Callable[[Any], Any] = np.asarray) -> SetState:
    """Return a ``SetState`` for environments that keep their state in an attribute.

    Args:
        name: Name of the attribute of the unwrapped environment. If the attribute is missing or has
            another shape than the state, ``set_state`` raises an ``InputError``.
        observe: State [k] → observation; by default, the observation is the state.
    """

    def set_state(environment: gymnasium.Env[Any, Any], state: Any) -> Any:
        inner = environment.unwrapped
        if not hasattr(inner, name):
            raise InputError(
                f"expected an environment with the attribute {name!r}, or another set_state, such "
                f"as state_attribute(NAME) gives, got {environment}"
            )
        current = getattr(inner, name)
        # Observations often have other coordinates than the state: an angle's cosine and sine.
        require(
            current is None or np.shape(current) == np.shape(state),
            f"a grid over the attribute {name!r}, of shape {np.shape(current)}, with a cell "
            "function if observations are no points of it",
            f"states of shape {np.shape(state)}",
        )
        setattr(inner, name, state)
        return observe(state)

    return set_state
