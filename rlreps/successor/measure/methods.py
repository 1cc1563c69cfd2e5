"""Successor measures of PuddleWorld, and the methods that compute them.

``MonteCarlo`` and ``Transition`` compute the measure of PuddleWorld under its uniformly random
policy, from rollouts and from the one-step transition matrix. Each class is the method and its
configuration. Both make a ``RowEstimator``, which returns blocks of rows.
"""

import abc
import dataclasses
import functools
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlreps.config import configurable, positive
from rlreps.envs import PuddleWorld, arena_settings, load_arena
from rlreps.numerics import usable_cores
from rlreps.subspace.row_blocks import Centring
from rlreps.successor.measure.grids import Grid, spell_cells
from rlreps.successor.measure.rows import RowEstimator
from rlreps.successor.measure.settings import (
    ROLLOUTS_PER_BLOCK,
    DiscountedSum,
    RolloutSettings,
    TransitionSettings,
)

CENTRED_ON_READING = "centred_on_reading"
"""Key of a store's settings that names its centring, if not by columns."""

_FORMULAS = {True: "sum_{t>=0} discount^t", False: "sum_{t>=1} discount^(t-1)"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessorMeasure(DiscountedSum, abc.ABC):
    """A successor measure of PuddleWorld's uniformly random policy, by some method.

    Attributes:
        arena: One of the named arenas, or the path of a TOML file that describes one.
        bins: Cells along each axis; the matrix is bins² x bins², less the cells inside walls.
        block_rows: Number of rows written at a time; a killed process loses at most this many.
        centring: Which means are subtracted when the store is read: each task's mean over the
            states (columns), each state's mean over the tasks (rows, as in the public code of Le
            Lan et al. 2023), or both. ``subspace.row_blocks.Centring`` says how the choice affects
            the components. The stored matrix is not centred.
    """

    arena: str = "sutton"
    bins: int = positive(100, least=2)
    block_rows: int = positive(100)
    centring: Centring = "columns"

    method: ClassVar[str]
    sampled: ClassVar[bool]

    @functools.cached_property
    def grid(self) -> Grid:
        """The cells, some of them inside walls; ``InputError`` for an unknown or invalid arena."""
        return Grid(self.bins).within(self.environment())

    @property
    def num_states(self) -> int:
        """Number of states and of tasks of the matrix, n: bins² without walls."""
        return self.grid.num_states

    @property
    def transitions(self) -> int:
        """Number of simulated environment steps in the whole matrix; 0 without rollouts."""
        return 0

    @property
    def stored_bytes(self) -> int:
        """Size of the store in bytes: a float32 per entry, or two with half differences."""
        return 4 * self.num_states**2 * (2 if self.sampled else 1)

    @property
    @abc.abstractmethod
    def working_bytes(self) -> int:
        """Least memory that the computation needs, in bytes."""

    @property
    @abc.abstractmethod
    def effort(self) -> str:
        """The method's own options, for the store's default name."""

    @abc.abstractmethod
    def method_settings(self) -> dict[str, Any]:
        """Return the method's own settings, as JSON values."""

    @abc.abstractmethod
    def estimator(self) -> RowEstimator:
        """Make the estimator of the rows."""

    def environment(self) -> PuddleWorld:
        """Load the arena; ``InputError`` if it is unknown or invalid."""
        return load_arena(self.arena)

    def store_settings(self) -> dict[str, Any]:
        """Return everything that decides the matrix, under the names of the store's settings."""
        walls = {}
        if self.grid.walls:
            inside = np.flatnonzero(~self.grid.is_state)
            start = "uniform inside the cell, outside the walls"
            walls = {"start": start, "wall_cells": spell_cells(inside)}
        # Stores without this setting have always been centred by columns on reading.
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
            "centring": "none",  # The stored matrix is not centred.
            **other,
            "seed": self.seed,
        }

    @property
    def store_name(self) -> str:
        """Name of the store's folder, made of everything that decides the matrix."""
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

    @property
    def transitions(self) -> int:
        return self.num_states * self.rollouts * self.horizon

    @property
    def working_bytes(self) -> int:
        # A block of rows and of half differences; 32 tiles of both waiting to be written; and the
        # tile being counted: visits, visits as floats, and their sum.
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
        from rlreps.successor.measure.chains import puddle_world_chain
        from rlreps.successor.measure.monte_carlo import RowSampler

        return RowSampler(puddle_world_chain(self.environment(), self.grid), self)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Transition(SuccessorMeasure, TransitionSettings):
    """PuddleWorld's successor measure from one-step transition probabilities, without rollouts."""

    method: ClassVar[str] = "transition"
    sampled: ClassVar[bool] = False

    @property
    def working_bytes(self) -> int:
        # The factors of I - γP take 12 f b bytes for f sub-cells in strips of b; see the estimator.
        fine = self.bins * self.refinement
        # A move of length 0.105 crosses a tenth of the rows; one strip holds at most all cells.
        strip = fine * min(fine, fine // 10 + 1)
        return 12 * fine**2 * strip

    @property
    def effort(self) -> str:
        return f"transition-refinement{self.refinement}-{self.points}points"

    def method_settings(self) -> dict[str, Any]:
        return {"refinement": self.refinement, "points": self.points}

    def estimator(self) -> RowEstimator:
        # Deferred: this part of SciPy takes longer to import than everything else.
        from rlreps.successor.measure.transition_kernels.estimator import TransitionEstimator

        return TransitionEstimator(self.environment(), self.grid, self)


METHODS: dict[str, type[SuccessorMeasure]] = {"monte_carlo": MonteCarlo, "transition": Transition}
"""Name on the command line → class."""
