"""Successor measures: the discounted sum, the methods that compute it and the rows they give.

``MonteCarlo`` and ``Transition`` are PuddleWorld's measure under its uniformly random policy, by
rollouts and by powers of the one-step transition matrix: the configuration of the method and the
method at once. Both make a ``RowEstimator``, which hands over blocks of rows.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, get_args

import numpy as np

from rlreps.config import configurable
from rlreps.envs import PuddleWorld, arena_settings, load_arena
from rlreps.errors import require, require_choice, require_positive
from rlreps.numerics import usable_cores
from rlreps.subspace.row_blocks import Centring
from rlreps.successor.grids import Grid, spell_cells

LONGEST_HORIZON = 10**7
"""Most terms of a discounted sum: each has a weight in memory."""

CENTRED_ON_READING = "centred_on_reading"
"""Setting of a store whose matrix is not centred by columns: by what instead."""

MOST_POINTS = 2**20
"""Most quadrature points of a sub-cell, which are in memory together."""

MOST_ROLLOUTS = 10**9
"""Most rollouts from a cell: their standard error is below single precision's by far."""

ROLLOUTS_PER_BLOCK = 250
"""Rollouts that share a key: part of what a seed means, so changing it changes every matrix."""

_FORMULAS = {True: "sum_{t>=0} discount^t", False: "sum_{t>=1} discount^(t-1)"}


class RowEstimates(NamedTuple):
    """Rows of a matrix and, where they were sampled, what their sampling error looks like.

    Attributes:
        rows: Ψ for a block of start states, [r, tasks] (float32).
        half_difference: (A - B) / 2 for two independent halves A and B of the samples, whose mean
            the rows are, [r, tasks] (float32); scaled, where one half has a sample more, to have
            the variance of the rows' own error all the same, and no correlation with it. None where
            nothing was sampled.
    """

    rows: np.ndarray
    half_difference: np.ndarray | None = None


def checked_cells(cells: Sequence[int] | np.ndarray, num_cells: int) -> np.ndarray:
    """Return start cells [r] as int32, each an integer in [0, num_cells)."""
    values = np.asarray(cells)
    if values.size:
        require(np.issubdtype(values.dtype, np.integer), "integer start cells", values.dtype.name)
        lowest, highest = int(values.min()), int(values.max())
        valid = lowest >= 0 and highest < num_cells
        require(valid, f"start cells in [0, {num_cells})", (lowest, highest))
    return values.astype(np.int32)


class RowEstimator(Protocol):
    """Computes rows of one matrix, for any blocks of them in any order, always to the same bits."""

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """Yield the rows of each block of start states, in the order given.

        Args:
            blocks: Start states of each block, each in [0, n).

        Yields:
            Rows and half differences, [len(block), n] (float32), for each block.

        Raises:
            InputError: If a state is not an integer in [0, n).
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscountedSum:
    """A discounted sum over future states.

    Attributes:
        horizon: Terms of the sum, h.
        discount: γ, strictly between 0 and 1.
        count_start: Whether the sum starts with the start state (Σ_{t≥0} γᵗ, the paper's formula)
            or with the first successor (Σ_{t≥1} γᵗ⁻¹).
        seed: Seed of every random draw, in [0, 2³²).
    """

    horizon: int
    discount: float
    count_start: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = f"horizon in [1, {LONGEST_HORIZON}]"
        require(1 <= self.horizon <= LONGEST_HORIZON, allowed, self.horizon)
        require(0.0 < self.discount < 1.0, "discount strictly between 0 and 1", self.discount)
        require(0 <= self.seed < 2**32, "seed in [0, 2**32)", self.seed)

    @property
    def steps_ahead(self) -> int:
        """Steps that lead from the start to the last term of the sum."""
        return self.horizon - 1 if self.count_start else self.horizon

    @property
    def row_sum(self) -> float:
        """Sum of every row: (1 - γʰ) / (1 - γ)."""
        return (1.0 - self.discount**self.horizon) / (1.0 - self.discount)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings(DiscountedSum):
    """A discounted sum estimated from rollouts.

    Attributes:
        rollouts: Rollouts from each start cell.
    """

    rollouts: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rollouts >= 2, "rollouts >= 2, one for each half", self.rollouts)
        require(self.rollouts <= MOST_ROLLOUTS, f"rollouts <= {MOST_ROLLOUTS:,}", self.rollouts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransitionSettings(DiscountedSum):
    """A discounted sum computed from one-step transition probabilities.

    Attributes:
        refinement: Sub-cells along each side of a cell in which the agent is located.
        points: Quadrature points in each sub-cell, a power of two.
    """

    refinement: int = 1
    points: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("refinement", self.refinement)
        power_of_two = self.points >= 1 and self.points.bit_count() == 1
        require(power_of_two, "points to be a power of two", self.points)
        require(self.points <= MOST_POINTS, f"points <= {MOST_POINTS:,}", self.points)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessorMeasure(DiscountedSum, abc.ABC):
    """A successor measure of PuddleWorld's uniformly random policy, by some method.

    Attributes:
        arena: One of the named arenas, or the path of a TOML file that describes one.
        bins: Cells along each axis; the matrix is bins² x bins², less the cells inside walls.
        block_rows: Rows written, and lost to a kill, at a time.
        centring: Whose means come off whenever the store is read: each task's over the states
            (columns), each state's over the tasks (rows, as the public code of Le Lan et al. 2023
            does), or both; ``subspace.row_blocks.Centring`` says what each means for the
            components. The matrix itself is stored as it is.
    """

    arena: str = "sutton"
    bins: int = 100
    horizon: int = 700
    discount: float = 0.99
    block_rows: int = 100
    centring: Centring = "columns"

    method: ClassVar[str]
    sampled: ClassVar[bool]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.bins >= 2, "bins >= 2", self.bins)
        require_positive("block_rows", self.block_rows)
        require_choice("centring", self.centring, get_args(Centring))

    @functools.cached_property
    def grid(self) -> Grid:
        """The cells, some of them inside walls; ``ArenaError`` for an unknown or invalid arena."""
        return Grid(self.bins).within(self.environment())

    @property
    def num_states(self) -> int:
        """States and tasks of the matrix, n: bins² without walls."""
        return self.grid.num_states

    @property
    def transitions(self) -> int:
        """Simulated environment steps in the whole matrix; 0 without rollouts."""
        return 0

    @property
    def stored_bytes(self) -> int:
        """Size of the store: a float32 an entry, twice that with half differences."""
        return 4 * self.num_states**2 * (2 if self.sampled else 1)

    @property
    @abc.abstractmethod
    def working_bytes(self) -> int:
        """Memory that the computation holds at least."""

    @property
    @abc.abstractmethod
    def effort(self) -> str:
        """The method's own options, for the default name of a store."""

    @abc.abstractmethod
    def method_settings(self) -> dict[str, Any]:
        """Return the method's own settings, as JSON values."""

    @abc.abstractmethod
    def estimator(self) -> RowEstimator:
        """Make what computes the rows."""

    def environment(self) -> PuddleWorld:
        """Load the arena; ``ArenaError`` if it is unknown or invalid."""
        return load_arena(self.arena)

    def store_settings(self) -> dict[str, Any]:
        """Return everything that decides the matrix, under its names in the store."""
        walls = {}
        if self.grid.walls:
            inside = np.flatnonzero(~self.grid.is_state)
            start = "uniform inside the cell, outside the walls"
            walls = {"start": start, "wall_cells": spell_cells(inside)}
        # What comes off on reading is by columns where the settings do not say, as it always was.
        other = {} if self.centring == "columns" else {CENTRED_ON_READING: self.centring}
        return {
            "quantity": "successor measure",
            "method": self.method,
            "environment": arena_settings(self.environment()),
            "policy": "uniformly random",
            "bins": self.bins,
            "cell_index": "row * bins + column, row from y",
            "start": "uniform inside the cell",
            **walls,
            **self.method_settings(),
            "horizon": self.horizon,
            "discount": self.discount,
            "count_start": self.count_start,
            "formula": _FORMULAS[self.count_start],
            "row_sum": self.row_sum,
            "centring": "none",  # Of the stored bytes.
            **other,
            "seed": self.seed,
        }

    @property
    def store_name(self) -> str:
        """Name of the store's folder, from everything that decides the matrix."""
        start = "" if self.count_start else "-first-successor"
        centring = "" if self.centring == "columns" else f"-centred-{self.centring}"
        return (
            f"{Path(self.arena).stem}-{self.bins}bins-{self.effort}-{self.horizon}steps-"
            f"discount{self.discount:g}{start}-seed{self.seed}{centring}"
        )


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class MonteCarlo(SuccessorMeasure, RolloutSettings):
    """PuddleWorld's successor measure from rollouts; ``rollouts`` from each start cell."""

    method: ClassVar[str] = "monte_carlo"
    sampled: ClassVar[bool] = True

    rollouts: int = 1000

    @property
    def transitions(self) -> int:
        return self.num_states * self.rollouts * self.horizon

    @property
    def working_bytes(self) -> int:
        # A block of rows and of half differences; tiles of 32 cells that wait, of both again, and
        # those that are counted: visits, the same as numbers, and their sum.
        tiles, workers = math.ceil(self.num_states / 32), usable_cores()
        waiting, counted = min(2 * workers + 1, tiles), min(workers, tiles)
        block = min(self.block_rows, self.num_states)
        return 4 * self.num_states * (2 * block + 32 * (2 * waiting + 3 * counted))

    @property
    def effort(self) -> str:
        return f"{self.rollouts}rollouts"

    def method_settings(self) -> dict[str, Any]:
        return {
            "rollouts": self.rollouts,
            "rollouts_per_block": ROLLOUTS_PER_BLOCK,
            "halves": 2,
            "random_numbers": "threefry2x32-13 by (seed, cell, block, rollout, step)",
        }

    def estimator(self) -> RowEstimator:
        from rlreps.successor.chains import puddle_world_chain
        from rlreps.successor.monte_carlo import RowSampler

        return RowSampler(puddle_world_chain(self.environment(), self.grid), self)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Transition(SuccessorMeasure, TransitionSettings):
    """PuddleWorld's successor measure from one-step transition probabilities, without rollouts."""

    method: ClassVar[str] = "transition"
    sampled: ClassVar[bool] = False

    @property
    def working_bytes(self) -> int:
        # The factors of I - γP, 12 f b bytes of f sub-cells in strips of b; see the estimator.
        fine = self.bins * self.refinement
        # A move of 0.105 crosses a tenth of the rows; a single strip holds all cells.
        strip = fine * min(fine, fine // 10 + 1)
        return 12 * fine**2 * strip

    @property
    def effort(self) -> str:
        return f"transition-refinement{self.refinement}-{self.points}points"

    def method_settings(self) -> dict[str, Any]:
        return {"refinement": self.refinement, "points": self.points}

    def estimator(self) -> RowEstimator:
        # Deferred: what it needs of SciPy takes longer to import than all the rest.
        from rlreps.successor.transition.estimator import TransitionEstimator

        return TransitionEstimator(self.environment(), self.grid, self)


METHODS: dict[str, type[SuccessorMeasure]] = {"monte_carlo": MonteCarlo, "transition": Transition}
"""Name on the command line → class."""
