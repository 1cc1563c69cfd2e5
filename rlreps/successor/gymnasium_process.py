"""Any Gymnasium environment with a cell function, stepped by a host loop over a vector env.

The successor measure is that of a Markov chain on all states, whose transition kernel is
stochastic (Blier et al. 2021). How episodes end is turned into such a chain as follows.

- A state in which an episode *terminates* is absorbing: the rest of the discounted sum falls on its
  cell. With no reward there, values Ψr are the usual ones, and every row still sums to
  (1 - γʰ) / (1 - γ).
- *Truncation* is no part of the dynamics. Nothing is counted beyond it, and no rollout that would
  need what lies beyond it is used.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from rlreps.errors import InputError, require

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

    Raises:
        InputError: If ``environment`` is not a vector environment, does not say how it resets, or
            there is no cell.
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
        require(self.num_cells >= 1, "num_cells >= 1", self.num_cells)
        _ = self.autoreset_mode

    @property
    def num_copies(self) -> int:
        """Copies of the environment that are stepped together."""
        return int(self.environment.num_envs)

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """What the environment does after the end of an episode."""
        # Before 1.4, copies made by Gymnasium shared one metadata; the attribute is their own.
        mode = getattr(self.environment.unwrapped, "autoreset_mode", None)
        if mode is None:
            mode = (self.environment.metadata or {}).get("autoreset_mode")
        require(
            isinstance(mode, AutoresetMode),
            "a vector environment whose metadata has an autoreset_mode",
            mode,
        )
        return AutoresetMode(mode)

    def cells(self, observations: Any) -> np.ndarray:
        """The checked cells [m] (int64) of a batch of observations."""
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
    """One step of all copies, e.

    Attributes:
        arrivals: Cell of the state that the step led to [e]; ``NO_CELL`` where it only reset.
        terminated: Whether that state is terminal [e].
        truncated: Whether the episode was cut there [e].
        restarts: Cell of the first state of a new episode [e]; ``NO_CELL`` where none began.
    """

    arrivals: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    restarts: np.ndarray


class CellStepper:
    """Steps a process and tells episodes apart, whatever the autoreset mode."""

    def __init__(self, process: GymnasiumProcess, seeds: Sequence[int]) -> None:
        """Resets the environment.

        Args:
            process: What to step.
            seeds: What its randomness, and nothing else, depends on.
        """
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
        """Cells [e] of the current states."""
        return self._process.cells(self._observations)

    def place(self, set_state: SetState, cells: np.ndarray) -> None:
        """Puts every copy, just reset, into a state of its cell [e].

        Raises:
            InputError: If the observations that come back are of other cells.
        """
        self._observations = set_state(self._environment, cells, self.generator)
        reached = self.cells()
        wrong = np.flatnonzero(reached != cells)
        if wrong.size:
            raise InputError(
                f"expected set_state to start in cell {cells[wrong[0]]}, "
                f"got an observation in cell {reached[wrong[0]]}"
            )

    def step(self) -> CellStep:
        """Takes one action in every copy."""
        environment = self._environment
        observations, _, terminated, truncated, infos = environment.step(self._actions())
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
                arrivals = cells.copy()
                arrivals[ended] = self._final_cells(infos, ended)
            else:
                observations, _ = environment.reset(options={"reset_mask": ended.copy()})
                cells = self._process.cells(observations)
            restarts = np.where(ended, cells, NO_CELL)
        self._observations = observations
        return CellStep(arrivals, terminated, truncated, restarts)

    def _actions(self) -> Any:
        if self._process.policy is None:
            return self._environment.action_space.sample()
        return self._process.policy(self._observations, self.generator)

    def _final_cells(self, infos: dict[str, Any], ended: np.ndarray) -> np.ndarray:
        """Cells of the last observations of the episodes that have ended."""
        finals = [infos["final_obs"][copy] for copy in np.flatnonzero(ended)]
        space = self._environment.single_observation_space
        empty: Any = create_empty_array(space, len(finals))
        return self._process.cells(concatenate(space, finals, empty))
