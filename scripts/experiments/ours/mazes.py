"""Shared parts of the experiments in mazes: arenas, goals, reward-free data, exact values of cells.

Agents see a fixed random code of their cell (``Code``), and must learn which cells are near each
other and where the walls are. ``sutton``, whose agents see their position, is the control arena, in
which we expect no effect.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps.envs import Code, Observation, Position, PuddleWorld, load_arena
from rlreps.stats import Contrast, Verdict, all_of, at_least, judge_family
from rlreps.study import Results
from rlreps.successor import (
    FitConfig,
    Grid,
    Scaling,
    SuccessorRepresentation,
    Task,
    Transitions,
    fit,
)
from rlreps.typing import DoubleArray
from rlreps.worlds import World, estimate_arena

MAZES = ("five_corridors", "spiral", "four_rooms")
"""Arenas in which learned features are expected to help."""

CONTROL_ARENA = "sutton"
"""The arena in which learned features are not expected to help."""

BINS = 20
"""Cells along each axis, for codes and for exact values; walls lie along the cells' sides."""

CAP = 300
"""Largest number of steps of an episode."""

GOALS = tuple((x, y, 0.08) for x, y in ((0.9, 0.9), (0.1, 0.9), (0.9, 0.1), (0.1, 0.1), (0.5, 0.5)))
"""Discs (x, y, radius) within a corridor or a room of every maze."""

FIT = FitConfig(behaviour="uniform")
"""Options of the fit to free transitions: the defaults, with the known policy."""


Contrasting: TypeAlias = Callable[[str, str], Contrast]
"""(setting, other arm) → the contrast with the other arm in this setting, such as a maze."""


def observation_of(arena: str) -> Observation:
    """Return what agents see: a code of their cell, or in ``sutton`` their position."""
    return Position() if arena == CONTROL_ARENA else Code(bins=BINS)


def world_of(arena: str, **changes: Any) -> PuddleWorld:
    """Load an arena with its observation and its cap; it has no goal and no reward by default."""
    return load_arena(arena, **{"observation": observation_of(arena), "max_steps": CAP, **changes})


def free_transitions(arena: str, steps: int, seed: int, **changes: Any) -> Transitions:
    """Collect transitions of the uniformly random policy, without goal or reward.

    Args:
        arena: Its name.
        steps: Least number of rows. Each of ``steps / CAP`` copies of the arena, at most 100, plays
            episodes of at most ``CAP`` steps, from uniform starts.
        seed: Seed of all random draws.
        **changes: Changes of the arena, as for ``world_of``.
    """
    copies = min(100, max(1, steps // CAP))
    return Transitions.collect(world_of(arena, **changes), steps=steps, seed=seed, copies=copies)


def mazes_of(results: Results[Any]) -> list[str]:
    """List the mazes among a run's arenas."""
    return [arena for arena in results.config.arenas if arena != CONTROL_ARENA]


def in_mazes(results: Results[Any], judge: Callable[[str], Verdict], needed: int = 2) -> Verdict:
    """Judge that a statement holds in ``needed`` of the three mazes; a maze not run is open."""
    return at_least(needed, {maze: judge(maze) for maze in mazes_of(results)}, of=len(MAZES))


def beaten(
    settings: Iterable[str], contrast: Contrasting, others: Sequence[str]
) -> dict[str, Verdict]:
    """Judge in each setting that it has the effect against every other arm.

    p-values are adjusted for all settings and other arms (Holm).
    """
    contrasts = {pair: contrast(*pair) for pair in itertools.product(settings, others)}
    found = judge_family(contrasts)
    return {
        setting: all_of({each: found[setting, each] for each in others}) for setting, _ in contrasts
    }


def beats(results: Results[Any], contrast: Contrasting, others: Sequence[str]) -> Verdict:
    """Judge that two of three mazes have the effect against every other arm (``beaten``)."""
    return at_least(2, beaten(mazes_of(results), contrast, others), of=len(MAZES))


@functools.cache
def cell_world(arena: str) -> World:
    """Estimate an arena as a world whose states are its cells, without rewards.

    The model assumes that an agent that enters a cell is equally likely to be anywhere in it.
    """
    return estimate_arena(arena, BINS, observation=observation_of(arena))


def places_of(world: World) -> npt.NDArray[np.int64]:
    """Return the places [n] of a world's cells in the grid."""
    return np.asarray(jax.vmap(Grid(BINS).cell)(jnp.asarray(world.coordinates)), np.int64)


def cells_of(world: World, observations: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the cells [m] of observations [m, ...]; -1 for one without a cell."""
    if world.about["name"] != CONTROL_ARENA:
        return _find(world.observations, observations)
    return around(world, observations)


def around(world: World, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the cells [m] that hold positions [m, 2]; -1 for those within a wall."""
    found = np.full(BINS**2, -1, np.int64)
    found[places_of(world)] = np.arange(world.num_states)
    cells: npt.NDArray[np.int64] = found[jax.vmap(Grid(BINS).cell)(jnp.asarray(positions))]
    return cells


def nearest(world: World, positions: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return the cells [m] whose centres are nearest to positions [m, 2]."""
    cells: npt.NDArray[np.intp] = np.argmin(_distances(world, positions), axis=0)
    return cells


def discs(world: World, goals: Any) -> DoubleArray:
    """Return the indicators of discs (x, y, radius) [m, 3] at the cells' centres, [n, m].

    The cell that contains a disc's centre belongs to the disc, however small its radius.
    """
    given = np.asarray(goals, np.float64)
    inside = _distances(world, given[:, :2]) <= given[:, 2]
    inside[nearest(world, given[:, :2]), np.arange(len(given))] = True
    found: DoubleArray = inside.astype(np.float64)
    return found


def _distances(world: World, positions: npt.ArrayLike) -> DoubleArray:
    """Compute the distances from the cells' centres to positions [m, 2], [n, m]."""
    offsets = np.asarray(world.coordinates)[:, None] - np.asarray(positions, np.float64)
    return np.asarray(np.linalg.norm(offsets, axis=2))


@dataclasses.dataclass(frozen=True, eq=False)
class AtCells:
    """A representation of free transitions, at the cells of an arena.

    If the data do not contain a cell's code, the cell's features are 0 and its policy is uniform.

    Attributes:
        data: The transitions, in the form that the fit took.
        inputs: The representation's inputs at the cells, [n, ...].
        known: Whether the data contain a cell's observation, [n].
    """

    representation: SuccessorRepresentation
    data: Transitions
    world: World
    inputs: npt.NDArray[Any]
    known: npt.NDArray[np.bool_]

    def features(self, scaling: Scaling) -> DoubleArray:
        """Compute state features, [n, d]."""
        found = self.representation.features(self.inputs, scaling=scaling)
        return np.where(self.known[:, None], found, 0.0)

    def policy(self, task: Task, improvements: int | None = None) -> DoubleArray:
        """Return the probabilities of the policy of a task, [n, A]."""
        choose = self.representation.policy(task, improvements)
        actions = self.world.num_actions
        greedy = np.eye(actions)[choose(self.inputs)]
        return np.where(self.known[:, None], greedy, 1.0 / actions)


def fit_at_cells(arena: str, data: Transitions, config: FitConfig) -> AtCells:
    """Fit a representation to free transitions: of counted codes, or of positions.

    Counting uses only that an agent recognises a code that it sees again.
    """
    world = cell_world(arena)
    if arena == CONTROL_ARENA:
        everywhere = np.ones(world.num_states, np.bool_)
        return AtCells(fit(data, config), data, world, world.observations, everywhere)
    table, codes = data.numbered()
    rows = _find(codes, world.observations)
    return AtCells(fit(table, config), table, world, np.maximum(rows, 0), rows >= 0)


def _find(known: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Find rows [m, c] among others [k, c]; return indices [m], -1 for rows not found."""
    places = {row.tobytes(): place for place, row in enumerate(known)}
    return np.array([places.get(row.tobytes(), -1) for row in wanted], np.int64)
