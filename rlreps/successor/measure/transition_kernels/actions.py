"""One-step probabilities of PuddleWorld between cells for each action, by simulation.

``matrix`` computes the probabilities under the uniformly random policy, by quadrature.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.envs import PuddleWorld, PuddleWorldState
from rlreps.successor.measure.grids import Grid
from rlreps.typing import DoubleArray

SAMPLES = 256
"""Number of moves from each cell by each action."""

_PULLED_BACK = 1e-3
"""Fraction by which a move is shortened before its end point is assigned to a cell. Otherwise an
agent that a wall has stopped, which stands on the wall's edge, would be assigned to a cell in the
wall."""

_LEAST_FREE = 0.05
"""Share of a cell that must be outside the walls; a smaller share would give too few moves."""


class CellMoves(NamedTuple):
    """Steps between the n cells that are outside the walls.

    Attributes:
        cells: Indices of the cells in the grid, [n].
        to: P(S_1 in column | row, action), [actions, n, n].
    """

    cells: npt.NDArray[np.int64]
    to: DoubleArray


def cell_moves(environment: PuddleWorld, grid: Grid, key: Array) -> CellMoves:
    """Estimate the probabilities from random positions in each cell that are outside the walls."""
    keys = jax.random.split(key, (grid.num_cells, SAMPLES))
    targets, held = (np.asarray(part) for part in _sampled_steps(environment, keys, grid))
    cells = np.flatnonzero(1.0 - held.mean(axis=1) >= _LEAST_FREE)
    places = np.full(grid.num_cells, -1)
    places[cells] = np.arange(len(cells))
    # [n, samples, actions] from here on.
    targets, counted = places[targets[cells]], ~held[cells][:, :, None]
    counted = counted & (targets >= 0)
    sources, _, actions = np.nonzero(counted)
    to: DoubleArray = np.zeros((environment.num_actions, len(cells), len(cells)))
    np.add.at(to, (actions, sources, targets[counted]), 1.0)
    return CellMoves(cells, to / np.maximum(to.sum(axis=2, keepdims=True), 1.0))


@partial(jax.jit, static_argnums=2)
def _sampled_steps(environment: PuddleWorld, keys: Array, grid: Grid) -> tuple[Array, Array]:
    """Sample targets [n, samples, actions]; mark starts that no action leaves [n, samples]."""
    actions = jnp.arange(environment.num_actions, dtype=jnp.int32)

    def one(key: Array, cell: Array) -> tuple[Array, Array]:
        start_key, step_key = jax.random.split(key)
        start = grid.sample(start_key, cell)
        state = PuddleWorldState(start, jnp.zeros((), jnp.int32))
        step = jax.vmap(lambda action: environment.step(step_key, state, action))(actions)
        ends = step.state.position
        targets = jax.vmap(grid.cell)(ends + _PULLED_BACK * (start[None] - ends))
        return targets, jnp.all(ends == start[None])

    cells = jnp.arange(grid.num_cells, dtype=jnp.int32)
    sampled: tuple[Array, Array] = jax.vmap(jax.vmap(one, in_axes=(0, None)))(keys, cells)
    return sampled
