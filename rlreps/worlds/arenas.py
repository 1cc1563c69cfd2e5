"""Arenas of PuddleWorld as worlds: the moves between the cells of a grid, estimated."""

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.envs import Observation, load_arena
from rlreps.errors import require, require_positive
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.transition_kernels.actions import SAMPLES, cell_moves
from rlreps.worlds.world import World


def estimate_arena(
    arena: str,
    bins: int,
    *,
    seed: int = 0,
    goal: tuple[float, float, float] | None = None,
    observation: Observation | str = "position",
) -> World:
    """Estimate the moves between the bins x bins cells of an arena of PuddleWorld.

    The states are the cells outside walls, and their coordinates the centres of the cells.

    Args:
        arena: Name of the arena, or the path of its file.
        bins: Cells along each axis.
        seed: Seed of the random positions within cells.
        goal: A disc (x, y, radius): reaching a cell whose centre is inside pays 1 and ends the
            episode. By default nothing pays or ends.
        observation: What an agent sees at a cell's centre, or its name.

    Raises:
        InputError: For an unknown arena or numbers out of range.
    """
    require_positive("seed", seed, least=0)
    if goal is not None:
        fits = np.shape(goal) == (3,) and bool(np.isfinite(goal).all()) and goal[2] > 0.0
        require(fits, "a goal (x, y, radius) with a positive radius", goal)
    environment, grid = load_arena(arena, observation=observation), Grid(bins)
    moves = cell_moves(environment, grid, jax.random.key(seed))
    centres = np.asarray(grid.centres())[moves.cells]
    reached = np.zeros(len(centres), np.bool_)
    if goal is not None:
        offsets = centres.astype(np.float64) - np.asarray(goal[:2])
        reached = np.linalg.norm(offsets, axis=1) <= goal[2]
        some = bool(reached.any() and not reached.all())
        require(some, "a goal that contains the centres of some cells, and not of all", goal)
    return World.from_arrays(
        probabilities=moves.to,
        transition_rewards=np.broadcast_to(reached.astype(np.float64), moves.to.shape),
        terminal=reached,
        observations=jax.vmap(environment.observe_position)(jnp.asarray(centres)),
        coordinates=centres,
        names=("x", "y"),
        about={
            "name": arena,
            "seeds": [seed],
            "estimated": f"one move of each action from {SAMPLES} random positions in each cell",
        },
    )
