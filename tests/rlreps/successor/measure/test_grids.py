"""Cells of the unit square and of boxes: indices, edges, samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlreps.envs import ConvexPolygon, Disc, Puddle, PuddleWorld, load_arena
from rlreps.errors import InputError
from rlreps.successor.measure.grids import BoxGrid, Grid, parse_cells, spell_cells


def cells_of(grid, positions):
    return np.asarray(jax.vmap(grid.cell)(jnp.asarray(positions, jnp.float32)))


def test_a_cell_is_row_times_bins_plus_column_with_the_row_from_y():
    positions = [[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.3, 0.6]]
    np.testing.assert_array_equal(cells_of(Grid(4), positions), [0, 3, 12, 9])


SOLID = BoxGrid((-2.0, 10.0, 0.0), (1.0, 11.0, 5.0), (3, 4, 5))
GRIDS = [
    BoxGrid((-1.2, -0.07), (0.6, 0.07), (40, 30)),
    SOLID,
    BoxGrid((-0.5, 7.5), (3.5, -0.5), (4, 8)),
]


@pytest.mark.parametrize(
    ("low", "high", "bins", "message"),
    [
        ((0, 1), (1, 1), (2, 2), "finite low and high that differ"),
        ((0, 0), (1, 1), (2**16, 2**15), r"fewer than 2\*\*31 cells"),
        ((1e6,), (1e6 + 1,), (1_000,), "cells that float32 can tell apart"),
    ],
)
def test_a_box_without_cells_is_refused(low, high, bins, message):
    with pytest.raises(InputError, match=f"expected {message}"):
        BoxGrid(low, high, bins)


def test_a_grid_over_points_counts_values_that_differ_by_rounding_as_one():
    steps = np.cumsum(np.full(9, 0.1, np.float32))
    points = np.column_stack([np.append(steps, np.float32(0.1) * np.arange(1, 10)), np.ones(18)])
    grid = BoxGrid.spanning(points)
    assert grid.bins == (9, 1)
    np.testing.assert_array_equal(grid.cell(points), np.tile(np.arange(9), 2))


def test_centres_of_cells_lie_on_whole_numbers_with_gaps():
    points = np.array([[0.0, 20.0], [3.0, 60.0], [7.0, 120.0]])
    grid = BoxGrid.spanning(points)
    assert grid.bins == (8, 6)
    np.testing.assert_array_equal(grid.centres()[grid.cell(points)], points)


def test_rows_count_downwards():
    points = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    grid = BoxGrid.spanning(points, ("column", "row"))
    assert (grid.low, grid.high, grid.bins) == ((-1.0, 4.5), (3.0, -1.5), (2, 2))
    np.testing.assert_array_equal(grid.cell(points), [2, 3, 0])
    upwards = BoxGrid.spanning(points, ("x", "y"))
    assert (upwards.low, upwards.high) == ((-1.0, -1.5), (3.0, 4.5))


@pytest.mark.parametrize(("count", "each"), [(300, 1), (600, 2), (802, 3)])
def test_cells_over_many_values_hold_as_many_of_them(count, each):
    points = 5.0 + 0.5 * np.arange(count)[:, None]
    grid = BoxGrid.spanning(points, most=400)
    held = np.bincount(grid.cell(points), minlength=grid.num_cells)
    assert grid.bins == (-(-count // each),)
    assert set(held[:-1]) == {each}
    assert 1 <= held[-1] <= each


@pytest.mark.parametrize("grid", GRIDS, ids=["plane", "solid", "falling"])
def test_centres_edges_and_samples_lie_in_their_cells(grid):
    low, high = np.array(grid.low, np.float32), np.array(grid.high, np.float32)
    rescaled = low + grid.unit_centres() * (high - low)
    np.testing.assert_allclose(grid.centres(), rescaled, rtol=1e-5, atol=1e-6)
    cells = np.random.default_rng(1).integers(0, grid.num_cells, 300_000)
    points = grid.sample_with(np.random.default_rng(2), cells)
    keys = jax.random.split(jax.random.key(0), len(cells))
    drawn = jax.jit(jax.vmap(grid.sample))(keys, jnp.asarray(cells, jnp.int32))
    assert drawn.dtype == jnp.float32
    for array in (np.asarray, jnp.asarray):
        np.testing.assert_array_equal(grid.cell(array(grid.centres())), np.arange(grid.num_cells))
        # What lies on the far edges or beyond belongs to the last cells.
        for far in np.float32([0.0, 1e-6, 1.0, np.inf]):
            away = np.copysign(far, high - low)
            beyond = np.nextafter(high, np.copysign(np.float32(np.inf), high - low)) + away
            before = np.nextafter(low, np.copysign(np.float32(np.inf), low - high)) - away
            assert grid.cell(array(beyond)) == grid.num_cells - 1
            assert grid.cell(array(before)) == 0
        # No sample leaves its cell when it is rounded to single precision.
        np.testing.assert_array_equal(grid.cell(array(points.astype(np.float32))), cells)
        np.testing.assert_array_equal(grid.cell(array(drawn)), cells)


@pytest.mark.parametrize("maker", ["numpy", "jax"])
def test_samples_are_uniform_and_uncorrelated_inside_their_cell(maker):
    cell, count = 2 + 3 * (1 + 4 * 3), 20_000
    if maker == "numpy":
        points = SOLID.sample_with(np.random.default_rng(2), np.full(count, cell))
    else:
        keys = jax.random.split(jax.random.key(2), count)
        points = jax.jit(jax.vmap(SOLID.sample, in_axes=(0, None)))(keys, jnp.int32(cell))
    inside = (np.asarray(points, np.float64) - [0.0, 10.25, 3.0]) / [1.0, 0.25, 1.0]
    for axis in range(3):
        assert scipy.stats.kstest(inside[:, axis], "uniform").pvalue > 1e-4
    correlations = np.corrcoef(inside.T) - np.eye(3)
    assert np.abs(correlations).max() < 5 / np.sqrt(count)


TWO_ROOM = load_arena("two_room")


def walled(bins):
    """Mask of the cells [bins²] that lie wholly in one of the walls of two_room."""
    low, high = np.arange(bins) / bins - 1e-9, np.arange(1, bins + 1) / bins + 1e-9
    columns, rows = (
        (low >= 0.4 - 2e-9) & (high <= 0.6 + 2e-9),
        (high <= 0.4 + 2e-9) | (low >= 0.6 - 2e-9),
    )
    return (rows[:, None] & columns).ravel()


@pytest.mark.parametrize("bins", [5, 16, 30])
def test_cells_wholly_inside_a_wall_are_no_states(bins):
    grid = Grid(bins).within(TWO_ROOM)
    states = np.flatnonzero(~walled(bins))
    np.testing.assert_array_equal(grid.states, states)
    assert grid.num_states == len(states) == bins**2 - {5: 4, 16: 24, 30: 144}[bins]


def test_ranges_of_cells_are_spelled_and_read():
    assert spell_cells(np.array([3, 4, 5, 9, 11, 12])) == "3-5, 9-9, 11-12"
    assert parse_cells("3-5, 9-9, 11-12", 13).tolist() == [3, 4, 5, 9, 11, 12]


def test_samples_are_uniform_over_the_part_of_a_cell_outside_the_walls():
    # Row 14, columns 5 to 7 of 16: free, free up to x = 0.4, which is at 0.4 of the cell, and wall.
    grid, count = Grid(16).within(TWO_ROOM), 4000
    state = int(np.searchsorted(grid.states, 14 * 16 + 6))
    states = np.concatenate([np.full(count, state), np.arange(grid.num_states)]).astype(np.int32)
    keys = jax.random.split(jax.random.key(0), len(states))
    points = jax.jit(jax.vmap(grid.sample))(keys, states)
    np.testing.assert_array_equal(jax.jit(jax.vmap(grid.state))(points), states)
    assert jax.vmap(grid.is_free)(points).all()
    x, y = np.asarray(points[:count], np.float64).T
    assert scipy.stats.kstest((x - 0.375) / 0.025, "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(16.0 * y - 14.0, "uniform").pvalue > 1e-3


def test_wherever_agents_go_among_walls_their_state_is_at_most_a_cell_away():
    walls = (Disc((0.3, 0.3), 0.17), ConvexPolygon(((0.5, 0.4), (0.93, 0.61), (0.71, 0.97))))
    world, bins = PuddleWorld(puddles=tuple(Puddle(wall, 0.0) for wall in walls)), 23
    grid = Grid(bins).within(world)
    assert 0.05 < 1.0 - grid.num_states / bins**2 < 0.2

    @jax.jit
    def walk(positions):
        def advance(positions, key):
            action_key, noise_key = jax.random.split(key)
            actions = jax.random.randint(action_key, (len(positions),), 0, 4)
            noise = jax.random.normal(noise_key, positions.shape)
            positions = jax.vmap(world.move)(positions, actions, noise)
            return positions, (positions, jax.vmap(grid.cell)(positions))

        return jax.lax.scan(advance, positions, jax.random.split(jax.random.key(1), 200))[1]

    starts = jax.jit(jax.vmap(world.reset))(jax.random.split(jax.random.key(0), 300)).position
    positions, cells = map(np.asarray, walk(starts))
    assert np.isin(cells, grid.states).all()
    centres = np.stack([cells % bins, cells // bins], axis=-1) + 0.5
    beyond = np.abs(positions * bins - centres).max(axis=-1) - 0.5
    assert beyond.max() < 0.2
    # Nearly all are in a state's own cell.
    assert np.mean(beyond > 1e-4) < 1e-3
