"""What the experiments in mazes share: arenas, goals, data without rewards, exact values of cells.

Agents see a fixed random code of their cell (``Code``): what is near what, and where the walls are,
must be learned. ``sutton``, whose agents see their position, stands beside the mazes as the arena
in which nothing is expected.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from rlreps.envs import Code, Observation, Position, PuddleWorld, load_arena
from rlreps.errors import require, require_interval
from rlreps.successor.data import Transitions
from rlreps.successor.fitting import fit
from rlreps.successor.grids import Grid
from rlreps.successor.kernels.actions import CellMoves, cell_moves
from rlreps.successor.methods import FitConfig
from rlreps.successor.representation import Scaling, SuccessorRepresentation, Task

FloatArray = npt.NDArray[np.float64]

MAZES = ("five_corridors", "spiral", "four_rooms")
"""Arenas in which learned features are expected to help."""

NULL = "sutton"
"""The arena in which they are not."""

BINS = 20
"""Cells along each axis, of codes and of exact values: walls lie along the cells' sides."""

CAP = 300
"""Steps of an episode."""

GOALS = tuple((x, y, 0.08) for x, y in ((0.9, 0.9), (0.1, 0.9), (0.9, 0.1), (0.1, 0.1), (0.5, 0.5)))
"""Discs (x, y, radius) within a corridor or a room of every maze."""

FIT = FitConfig(behaviour="uniform")
"""How free transitions are fitted: the defaults, with the known policy."""


def observation_of(arena: str) -> Observation:
    """Return what agents see: a code of their cell, or in ``sutton`` their position."""
    return Position() if arena == NULL else Code(bins=BINS)


def world_of(arena: str, **changes: Any) -> PuddleWorld:
    """Load an arena with its observation and its cap; no goal, no reward unless changed."""
    return load_arena(arena, **{"observation": observation_of(arena), "max_steps": CAP, **changes})


def free_transitions(arena: str, steps: int, seed: int, **changes: Any) -> Transitions:
    """Let the uniformly random policy act without goal or reward, from uniform starts.

    Args:
        arena: Its name.
        steps: Rows, or somewhat more: one episode of at most ``CAP`` steps after another in each of
            ``steps / CAP`` copies, at most 100.
        seed: Of everything random.
        **changes: To the arena, as of ``world_of``.
    """
    copies = min(100, max(1, steps // CAP))
    return Transitions.collect(world_of(arena, **changes), steps=steps, seed=seed, copies=copies)


@dataclasses.dataclass(frozen=True, eq=False)
class CellModel:
    """An arena as a Markov decision process of its n cells, rewards counted on arrival.

    An agent that enters a cell is taken to be anywhere in it.

    Attributes:
        arena: Its name.
        moves: One-step probabilities.
        centres: Of the cells, [n, 2].
        observations: What an agent sees at the centres, [n, ...].
    """

    arena: str
    moves: CellMoves
    centres: npt.NDArray[np.float32]
    observations: npt.NDArray[Any]

    @property
    def num_cells(self) -> int:
        """Number of cells, n."""
        return len(self.centres)

    @functools.cached_property
    def uniform(self) -> FloatArray:
        """The uniformly random policy, [n, A]."""
        actions = len(self.moves.to)
        return np.full((self.num_cells, actions), 1.0 / actions)

    def cells_of(self, observations: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the cells [m] of what agents see [m, ...]; -1 for what belongs to none."""
        if self.arena != NULL:
            return _places(self.observations, observations)
        found = np.full(BINS**2, -1, np.int64)
        found[self.moves.cells] = np.arange(self.num_cells)
        inside = jax.vmap(Grid(BINS).cell)(jnp.asarray(observations))
        cells: npt.NDArray[np.int64] = found[np.asarray(inside)]
        return cells

    def discs(self, goals: Any) -> FloatArray:
        """Return the indicators of discs (x, y, radius) [m, 3] at the cells' centres, [n, m].

        The cell that holds a disc's centre belongs to it whatever its radius.
        """
        discs = np.asarray(goals, np.float64)
        offsets = np.linalg.norm(self.centres[:, None] - discs[None, :, :2], axis=2)
        inside = offsets <= discs[None, :, 2]
        inside[np.argmin(offsets, axis=0), np.arange(len(discs))] = True
        found: FloatArray = inside.astype(np.float64)
        return found

    def policy_values(
        self, policy: npt.ArrayLike, rewards: npt.ArrayLike, discount: float
    ) -> FloatArray:
        """Solve for V(s) = E Σ_t γᵗ r(s_{t+1}) of one policy, [n, m].

        Args:
            policy: Probabilities [n, A], or actions [n].
            rewards: The reward of arriving in each cell, [n, m].
            discount: γ.
        """
        rewards = np.asarray(rewards, np.float64)
        chain = np.einsum("sa,ast->st", self.probabilities(policy), self.moves.to)
        kernel = np.eye(self.num_cells) - discount * chain
        values: FloatArray = np.linalg.solve(kernel, chain @ rewards)
        return values

    def components(self, size: int, discount: float) -> FloatArray:
        """Compute σu of the random policy's successor measure, uniformly weighted, [n, size].

        States count from the first that is reached on, as of ``SuccessorRepresentation``.
        """
        measure = self.policy_values(self.uniform, np.eye(self.num_cells), discount)
        left, values, _ = np.linalg.svd(measure)
        return np.asarray(left[:, :size] * values[:size])

    def optimal_action_values(self, rewards: npt.ArrayLike, discount: float) -> FloatArray:
        """Iterate Q(s, a) = Σ P(s' | s, a)(r(s') + γ max_b Q(s', b)) to rounding, [n, A, m].

        Args:
            rewards: The reward of arriving in each cell, [n, m].
            discount: γ, in [0, 1).
        """
        require_interval("discount", discount, "[0, 1)")
        rewards = np.asarray(rewards, np.float64)
        require(
            rewards.shape[:1] == (self.num_cells,), f"rewards [{self.num_cells}, m]", rewards.shape
        )
        best: FloatArray = np.zeros_like(rewards)
        tolerance = 1e-10 * max(1.0, float(np.abs(rewards).max(initial=0.0)))
        while True:
            values: FloatArray = np.einsum(
                "ast,tm->sam", self.moves.to, rewards + discount * best, optimize=True
            )
            new = values.max(axis=1)
            if float(np.abs(new - best).max(initial=0.0)) <= tolerance:
                return values
            best = new

    def probabilities(self, policy: npt.ArrayLike) -> FloatArray:
        """Return a policy given as probabilities [n, A] or actions [n] as probabilities."""
        given = np.asarray(policy)
        if given.ndim == 2:
            return np.asarray(given, np.float64)
        chosen: FloatArray = np.eye(len(self.moves.to))[given]
        return chosen


@functools.cache
def cell_model(arena: str) -> CellModel:
    """Estimate the cells' model of an arena, from 256 moves from each cell by each action."""
    world, grid = world_of(arena), Grid(BINS)
    moves = cell_moves(world, grid, jax.random.key(0))
    centres = grid.centres()[moves.cells]
    seen = jax.vmap(lambda place: world.observation.observe(place, world.backdrop))(centres)
    return CellModel(arena, moves, centres, np.asarray(seen))


@dataclasses.dataclass(frozen=True, eq=False)
class AtCells:
    """A representation of free transitions, at the cells of a model.

    At a cell whose code the data do not hold features are 0 and the policy is uniform.

    Attributes:
        representation: It.
        data: The transitions, as it took them.
        model: The cells.
        inputs: What the representation takes at the cells, [n, ...].
        known: Whether the data hold a cell's observation, [n].
    """

    representation: SuccessorRepresentation
    data: Transitions
    model: CellModel
    inputs: npt.NDArray[Any]
    known: npt.NDArray[np.bool_]

    def features(self, scaling: Scaling) -> FloatArray:
        """Compute state features, [n, d]."""
        found = self.representation.features(self.inputs, scaling=scaling)
        table: FloatArray = np.where(self.known[:, None], found, 0.0)
        return table

    def policy(self, task: Task, improvements: int | None = 1) -> FloatArray:
        """Return the probabilities of the policy of a task, [n, A]."""
        choose = self.representation.policy(task, improvements)
        greedy = self.model.probabilities(choose(self.inputs))
        policy: FloatArray = np.where(self.known[:, None], greedy, self.model.uniform)
        return policy


def numbered(data: Transitions) -> tuple[Transitions, npt.NDArray[Any]]:
    """Replace codes by the numbers of the distinct codes that the data hold, [c, size].

    Whoever sees a code again can know it again: no more is used.
    """
    states = np.concatenate([data.observation, data.next_observation])
    codes, numbers = np.unique(states, axis=0, return_inverse=True)
    first, then = numbers.reshape(2, -1)
    return dataclasses.replace(
        data, observation=first, next_observation=then, num_states=len(codes)
    ), codes


def fitted(arena: str, data: Transitions, config: FitConfig) -> AtCells:
    """Fit a representation to free transitions: of counted codes, or of positions."""
    model = cell_model(arena)
    if arena == NULL:
        everywhere = np.ones(model.num_cells, np.bool_)
        return AtCells(fit(data, config), data, model, model.observations, everywhere)
    table, codes = numbered(data)
    places = _places(codes, model.observations)
    return AtCells(fit(table, config), table, model, np.maximum(places, 0), places >= 0)


def _places(known: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Find rows [m, c] among others [k, c], [m]; -1 for those that are not there."""
    places = {row.tobytes(): place for place, row in enumerate(known)}
    return np.array([places.get(row.tobytes(), -1) for row in wanted], np.int64)


def in_all(verdicts: Sequence[bool | None]) -> bool | None:
    """Judge "in all three mazes" from the verdict of each; None without one that fails of fewer."""
    if any(each is False for each in verdicts):
        return False
    return True if len(verdicts) == len(MAZES) and all(verdicts) else None


def in_two_mazes(verdicts: Sequence[bool | None]) -> bool | None:
    """Judge "in at least two of the mazes" from the verdict of each; None of fewer than two."""
    if len(verdicts) < 2:
        return None
    if sum(each is True for each in verdicts) >= 2:
        return True
    return False if sum(each is not False for each in verdicts) < 2 else None
