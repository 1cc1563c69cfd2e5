"""Monte-Carlo rows of a Gymnasium environment's successor measure, started cell by cell.

For environments whose state can be set. For all others see ``gymnasium_visits``.
"""

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rlreps.errors import InputError, require
from rlreps.successor.box_grid import BoxGrid
from rlreps.successor.estimates import RowEstimates
from rlreps.successor.gymnasium_process import CellStepper, GymnasiumProcess, SetState
from rlreps.successor.monte_carlo import RolloutSettings


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
        """Prepares the sampler.

        Args:
            process: The environment; rollouts fill its copies evenly if their number divides that
                of the rollouts.
            set_state: Puts copies into states drawn from their cells' start distributions.
            settings: The discounted sum and the number of rollouts from each cell, even.

        Raises:
            InputError: If the number of rollouts is odd: it must fall into two equal halves.
        """
        require(settings.rollouts % 2 == 0, "an even number of rollouts", settings.rollouts)
        self._process = process
        self._set_state = set_state
        self._settings = settings
        self._weights = np.power(settings.discount, np.arange(settings.horizon), dtype=np.float64)

    def rows(self, cells: Sequence[int] | np.ndarray) -> np.ndarray:
        """Rows [len(cells), num_cells] (float32) for start cells (see ``row_blocks``)."""
        return next(self.row_blocks([cells])).rows

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """Yields the rows of each block of start cells in order.

        Args:
            blocks: Start cells of each block, each in [0, num_cells).

        Yields:
            Rows and half differences, [len(block), num_cells] (float32).

        Raises:
            InputError: If a cell is outside that range, the environment truncates a rollout, or
                ``set_state`` starts one in another cell.
        """
        checked = [self._checked(block) for block in blocks]
        for block in checked:
            sums = np.zeros((2, len(block), self._process.num_cells))
            for row, cell in enumerate(block):
                sums[:, row] = self._visits_by_half(int(cell))
            rollouts = self._settings.rollouts
            yield RowEstimates(
                rows=((sums[0] + sums[1]) / rollouts).astype(np.float32),
                half_difference=((sums[0] - sums[1]) / rollouts).astype(np.float32),
            )

    def _checked(self, block: Sequence[int] | np.ndarray) -> np.ndarray:
        """Start cells as an array of integers [r]."""
        cells = np.asarray(block)
        if cells.size == 0:
            return np.empty(0, np.int64)
        require(np.issubdtype(cells.dtype, np.integer), "integer start cells", cells.dtype.name)
        lowest, highest = int(cells.min()), int(cells.max())
        valid = lowest >= 0 and highest < self._process.num_cells
        require(valid, f"start cells in [0, {self._process.num_cells})", (lowest, highest))
        return cells

    def _visits_by_half(self, cell: int) -> np.ndarray:
        """Discounted visits [2, num_cells] summed over the even and over the odd rollouts."""
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
        """Counted cells [horizon, copies] of one rollout of every copy."""
        first = 0 if self._settings.count_start else 1
        last = self._settings.horizon - 1 + first
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
        return trajectories[first:]


def starts_in_cells(
    grid: BoxGrid,
    *,
    attribute: str = "state",
    observe: Callable[[np.ndarray], Any] = np.asarray,
) -> SetState:
    """A ``SetState`` for environments that keep their state in an attribute (classic control).

    Args:
        grid: Cells over the *state* space; states are drawn uniformly inside them.
        attribute: Its name, of the unwrapped environment of each copy.
        observe: States [m, k] → observations [m, ...]; by default they are the same.

    Returns:
        The function, for ``gymnasium.make_vec(..., vectorization_mode="sync")`` or ``"async"``.
        It raises an ``InputError`` where there is no such attribute.
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
