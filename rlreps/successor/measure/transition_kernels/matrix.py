"""One-step transition probabilities of PuddleWorld between the cells of a grid, by quadrature.

Sobol points cover the start position in a cell and the Gaussian noise of two steps. Each cell
shifts the points modulo 1 by its own random vector (Cranley & Patterson 1976). ``PuddleWorld.move``
then moves them.

The first step, from uniform starts, gives the probabilities with which a rollout leaves its start
cell. The second step gives the probabilities of the chain: where an agent goes from a cell that it
has *entered*. The two differ where agents do not enter a cell uniformly. Starts lie outside the
walls: a point inside a wall is drawn again.
"""

import concurrent.futures
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.
import scipy.sparse
from jax import Array, lax

from rlreps.envs import PuddleWorld
from rlreps.errors import require
from rlreps.numerics import PRNG, usable_cores
from rlreps.successor.measure.grids import Grid

_POINTS_PER_CHUNK = 2**16
_ROWS_PER_CONVERSION = 1024
_MAX_WORKERS = 4
"""Largest number of threads: each holds its own counts, so memory grows with their number."""

_LARGEST_NORMAL = 5.5
"""Bound of the standard normal draws: float32 uniform draws map to at most 5.3."""


class OneStep(NamedTuple):
    """One-step probabilities between the n cells of a grid, under the uniformly random policy.

    Attributes:
        first: [n, n] (float64), P(S_1 = column | S_0 uniform in row, outside the walls).
        free: [n] (float64), the share of a cell's points that lie outside the walls; positive for
            every state.
        chain: [n, n] (float64), P(S_2 = column | S_1 = row), with S_0 uniform over the square
            outside the walls. A state that is never entered has the identity's row.

    Rows sum to 1. Cells that are not states have rows and columns of zeros.
    """

    first: scipy.sparse.csr_array
    free: np.ndarray
    chain: scipy.sparse.csr_array


def one_step(environment: PuddleWorld, grid: Grid, *, points: int, seed: int) -> OneStep:
    """Estimate one-step probabilities from ``points`` in each cell, a power of two.

    Each point is moved by all four actions; the seed decides the shifts of the points. Counts are
    whole numbers, so the result does not depend on the order of the work. The counts take
    4 · n · (2 w + 1)² bytes for each step in each of up to 4 threads, where w is the number of
    cells in the longest move.
    """
    grid = grid.within(environment)
    require(
        len(grid.divided) == 0,
        "cells that no wall divides, since transitions would pass through it (choose bins or a "
        "refinement for which walls lie along the cells' sides, choose more bins, or use Monte "
        "Carlo)",
        f"{len(grid.divided)} such cells of {grid.bins} x {grid.bins}",
    )
    window = _window(environment, grid)
    left, entered, outside = _counts(environment, grid, window, points, seed, together=True)
    first = _sparse(left, grid.bins, window)
    chain = _sparse(entered, grid.bins, window)
    lost = sum(int(matrix.sum(axis=0)[~grid.is_state].sum()) for matrix in (first, chain))
    require(lost == 0, "moves that end in states; try another number of bins", lost)
    visits = np.asarray(chain.sum(axis=1)).ravel()
    chain = chain.multiply(1.0 / np.where(visits == 0.0, 1.0, visits)[:, None]).tocsr()
    first = first * (1.0 / (4 * points))
    never = (visits == 0.0) & grid.is_state
    if never.any():
        chain = scipy.sparse.csr_array(chain + scipy.sparse.diags_array(never.astype(np.float64)))
    free = np.where(grid.is_state, np.maximum(outside, 1) / points, 0.0)
    return OneStep(first=first, free=free, chain=chain)


def action_steps(
    environment: PuddleWorld, grid: Grid, *, points: int, seed: int
) -> list[scipy.sparse.csr_array]:
    """Count where each action leads from starts uniform in a cell, outside the walls.

    Arguments are as for ``one_step``. The result has, for each action, the moves from row to column
    [n, n] (float64): rows of states sum to ``points``, other rows to 0.
    """
    grid = grid.within(environment)
    window = _window(environment, grid)
    left, _, _ = _counts(environment, grid, window, points, seed)
    return [_sparse(by_offset, grid.bins, window) for by_offset in left]


def _window(environment: PuddleWorld, grid: Grid) -> int:
    """Return the largest distance, in cells along either axis, between two successive positions."""
    longest = float(environment.step_size) + _LARGEST_NORMAL * float(environment.noise)
    # Beside a wall, either end of a move may be assigned to a neighbouring cell.
    across = int(longest * grid.bins) + (3 if grid.walls else 1)
    return min(grid.bins - 1, across)


def _counts(
    environment: PuddleWorld,
    grid: Grid,
    window: int,
    points: int,
    seed: int,
    *,
    together: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count first and second moves by cell and offset o, and points outside the walls [n].

    First moves are counted for each action, [actions, n, o], or, like second moves, for all actions
    together, [n, o]. An offset (Δrow, Δcolumn) has the index (Δrow + w) · (2 w + 1) + Δcolumn + w.
    """
    num_offsets = (2 * window + 1) ** 2
    size = min(grid.num_states, max(1, _POINTS_PER_CHUNK // points))
    actions = () if together else (environment.num_actions,)
    left = np.zeros((*actions, grid.num_cells, num_offsets), np.int32)
    outside = np.zeros(grid.num_cells, np.int32)
    kernel = _kernel(environment, grid, window, points, seed)
    chunks = [grid.states[first : first + size] for first in range(0, grid.num_states, size)]

    def work(share: list[np.ndarray]) -> np.ndarray:
        entered = jnp.zeros((grid.num_cells, num_offsets), jnp.int32)
        for cells in share:
            padded = jnp.asarray(np.resize(cells, size), jnp.int32)
            counted = jnp.arange(size) < len(cells)
            # The option decides how keys turn into bits; a user's own setting must not change them.
            with jax.threefry_partitionable(True):
                left_chunk, outside_chunk, entered = kernel(padded, counted, entered)
            first = np.asarray(left_chunk)[:, : len(cells)]
            left[..., cells, :] = first.sum(axis=0) if together else first
            outside[cells] = np.asarray(outside_chunk)[: len(cells)]
        return np.asarray(entered)

    # An accelerator processes one chunk after another anyway.
    cores = usable_cores() if jax.default_backend() == "cpu" else 1
    workers = min(_MAX_WORKERS, cores, len(chunks))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        shares = pool.map(work, (chunks[worker::workers] for worker in range(workers)))
        entered = np.zeros((grid.num_cells, num_offsets), np.int32)
        for share in shares:
            entered += share
    return left, entered, outside


_Kernel = Callable[[Array, Array, Array], tuple[Array, Array, Array]]


def _kernel(environment: PuddleWorld, grid: Grid, window: int, points: int, seed: int) -> _Kernel:
    """Jit (cells [c], counted [c], entered [n, o]) → (left [a, c, o], outside [c], entered)."""
    sobol = scipy.stats.qmc.Sobol(7, scramble=False).random(points)
    width, bins = 2 * window + 1, grid.bins
    cell_of = jax.vmap(jax.vmap(grid.cell))
    move_all = jax.vmap(jax.vmap(environment.move))
    redraw = jax.vmap(jax.vmap(grid.outside_walls, in_axes=(0, None, 0)))

    def offset(origin: Array, target: Array) -> Array:
        rows = target // bins - origin // bins
        columns = target % bins - origin % bins
        # A move may be assigned to a state beyond the longest move if no nearer cell is a state.
        rows, columns = (jnp.clip(across, -window, window) for across in (rows, columns))
        return (rows + window) * width + columns + window

    def kernel(cells: Array, counted: Array, entered: Array) -> tuple[Array, Array, Array]:
        base = jax.random.key(seed, impl=PRNG)
        keys = jax.vmap(lambda cell: jax.random.fold_in(base, cell))(cells)
        shifts = jax.vmap(lambda key: jax.random.uniform(key, (7,), jnp.float32))(keys)
        uniform = (jnp.asarray(sobol, jnp.float32)[None] + shifts[:, None]) % jnp.float32(1.0)
        # Positions inside the cells, with the margin of ``Grid.sample``.
        margin = bins * 2.0**-22
        corners = jnp.stack([cells % bins, cells // bins], axis=1).astype(jnp.float32)
        start = (corners[:, None] + margin + uniform[..., :2] * (1.0 - 2.0 * margin)) / bins
        free = jax.vmap(jax.vmap(grid.is_free))(start)
        if grid.walls:
            keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, 1), points))(keys)
            start = redraw(keys, cells, start)
        noise, next_noise = _normal(uniform[..., 2:4]), _normal(uniform[..., 4:6])
        draw = (uniform[..., 6] * 4).astype(jnp.int32)
        actions = jnp.arange(4, dtype=jnp.int32)
        moved = jax.vmap(
            lambda action: move_all(start, jnp.broadcast_to(action, draw.shape), noise)
        )(actions)
        # Skip redrawn points, so that a cell counts in proportion to its area outside the walls.
        counts_entered = (counted[:, None] & free).astype(jnp.int32)

        def count(entered: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            action, position = step
            middle = cell_of(position)
            left = jnp.zeros((len(cells), width**2), jnp.int32)
            left = left.at[jnp.arange(len(cells))[:, None], offset(cells[:, None], middle)].add(1)
            # Each first action has one second action, so that all pairs occur equally often.
            last = cell_of(move_all(position, (draw + action) % 4, next_noise))
            entered = entered.at[middle, offset(middle, last)].add(counts_entered)
            return entered, left

        entered, left = lax.scan(count, entered, (actions, moved))
        return left, jnp.sum(free, axis=1, dtype=jnp.int32), entered

    return jax.jit(kernel, donate_argnums=2)


def _normal(uniform: Array) -> Array:
    """Map uniform draws in [0, 1) to standard normals, clipped so that none is infinite."""
    inside = jnp.clip(uniform, 2.0**-24, 1.0 - 2.0**-24)
    normal: Array = jnp.float32(np.sqrt(2.0)) * lax.erf_inv(2.0 * inside - 1.0)
    return normal


def _sparse(counts: np.ndarray, bins: int, window: int) -> scipy.sparse.csr_array:
    """Return counts [n, o] by offset as a sparse matrix [n, n] (float64) by target cell."""
    num_cells, width = len(counts), 2 * window + 1
    columns, values, per_row = [], [], []
    for first in range(0, num_cells, _ROWS_PER_CONVERSION):
        block = counts[first : first + _ROWS_PER_CONVERSION]
        rows, offsets = np.nonzero(block)
        shift = (offsets // width - window) * bins + offsets % width - window
        columns.append((first + rows + shift).astype(np.int32))
        values.append(block[rows, offsets].astype(np.float64))
        per_row.append(np.count_nonzero(block, axis=1))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(per_row))])
    return scipy.sparse.csr_array(
        (np.concatenate(values), np.concatenate(columns), starts), shape=(num_cells, num_cells)
    )
