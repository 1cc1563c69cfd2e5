"""Cells of the unit square and of boxes: indices, edges, samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlreps.errors import InputError
from rlreps.successor.grids import BoxGrid, Grid


def cells_of(grid, positions):
    return np.asarray(jax.vmap(grid.cell)(jnp.asarray(positions, jnp.float32)))


def test_a_cell_is_row_times_bins_plus_column_with_the_row_from_y():
    positions = [[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.3, 0.6]]
    np.testing.assert_array_equal(cells_of(Grid(4), positions), [0, 3, 12, 9])


MOUNTAIN = BoxGrid((-1.2, -0.07), (0.6, 0.07), (40, 30))
SOLID = BoxGrid((-2.0, 10.0, 0.0), (1.0, 11.0, 5.0), (3, 4, 5))
GRIDS = pytest.mark.parametrize("grid", [MOUNTAIN, SOLID], ids=["plane", "solid"])


def test_indices_count_the_first_coordinate_fastest():
    points = [[-1.5, 10.1, 0.5], [-0.5, 10.1, 0.5], [-1.5, 10.3, 0.5], [-1.5, 10.1, 1.5]]
    np.testing.assert_array_equal(SOLID.cell(np.array(points)), [0, 1, 3, 12])
    assert SOLID.num_cells == 60


def test_on_the_unit_square_cells_and_centres_are_those_of_the_square_grid():
    bins = 100
    box, square = BoxGrid((0, 0), (1, 1), (bins, bins)), Grid(bins)
    points = jax.random.uniform(jax.random.key(bins), (200_000, 2))
    np.testing.assert_array_equal(box.cell(points), jax.vmap(square.cell)(points))
    np.testing.assert_array_equal(box.unit_centres(), square.centres())
    np.testing.assert_allclose(box.centres(), square.centres(), rtol=1e-6)


@GRIDS
def test_centres_lie_in_their_own_cells_and_unit_centres_are_the_same_points_rescaled(grid):
    cells = np.arange(grid.num_cells)
    np.testing.assert_array_equal(grid.cell(grid.centres()), cells)
    np.testing.assert_array_equal(grid.cell(jnp.asarray(grid.centres())), cells)
    low, high = np.array(grid.low), np.array(grid.high)
    rescaled = low + grid.unit_centres() * (high - low)
    np.testing.assert_allclose(grid.centres(), rescaled, rtol=1e-5, atol=1e-6)


@GRIDS
@pytest.mark.parametrize("array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_the_far_edges_and_all_beyond_belong_to_the_last_cells(grid, array):
    low, high = np.array(grid.low, np.float32), np.array(grid.high, np.float32)
    for factor in (0.0, 1e-6, 1.0, np.inf):
        assert int(grid.cell(array(np.nextafter(high, np.inf) + np.float32(factor)))) == (
            grid.num_cells - 1
        )
        assert int(grid.cell(array(np.nextafter(low, -np.inf) - np.float32(factor)))) == 0


@GRIDS
def test_no_sample_leaves_its_cell_even_when_rounded_to_float32(grid):
    rng = np.random.default_rng(1)
    cells = rng.integers(0, grid.num_cells, 300_000)
    points = grid.sample_with(rng, cells)
    np.testing.assert_array_equal(grid.cell(points), cells)
    np.testing.assert_array_equal(grid.cell(points.astype(np.float32)), cells)
    np.testing.assert_array_equal(grid.cell(jnp.asarray(points, jnp.float32)), cells)
    keys = jax.random.split(jax.random.key(0), len(cells))
    drawn = jax.jit(jax.vmap(grid.sample))(keys, jnp.asarray(cells, jnp.int32))
    assert drawn.dtype == jnp.float32
    np.testing.assert_array_equal(grid.cell(drawn), cells)
    np.testing.assert_array_equal(grid.cell(np.asarray(drawn)), cells)


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


def test_points_that_cannot_have_a_cell_are_refused():
    with pytest.raises(InputError, match="points without NaN"):
        MOUNTAIN.cell(np.array([0.0, np.nan]))
    with pytest.raises(InputError, match=r"shape \[\.\.\., 2\]"):
        MOUNTAIN.cell(np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"shape \[\.\.\., 2\]"):
        MOUNTAIN.cell(jnp.zeros(3))


@pytest.mark.parametrize(
    ("low", "high", "bins", "message"),
    [
        ((0.0,), (1.0, 1.0), (2, 2), "same axes"),
        ((), (), (), "same axes"),
        ((0.0,), (0.0,), (2,), "low < high"),
        ((0.0,), (np.inf,), (2,), "low < high"),
        ((0.0,), (1.0,), (0,), "bins >= 1"),
        ((0.0, 0.0), (1.0, 1.0), (2**16, 2**15), "fewer than"),
        ((1e6,), (1e6 + 1,), (1000,), "float32 can tell apart"),
    ],
)
def test_boxes_without_cells_are_refused(low, high, bins, message):
    with pytest.raises(InputError, match=message):
        BoxGrid(low, high, bins)
    with pytest.raises(InputError, match="expected bins >= 1, got 0"):
        Grid(0)


def test_samples_of_the_square_stay_in_their_cells_with_the_same_bits_under_x64():
    grid = Grid(300)
    cells = jnp.asarray(np.random.default_rng(0).integers(0, 300**2, 200_000), jnp.int32)
    keys = jax.random.split(jax.random.key(0), len(cells))
    drawn = jax.jit(jax.vmap(grid.sample))(keys, cells)
    assert np.count_nonzero(np.asarray(jax.jit(jax.vmap(grid.cell))(drawn)) != cells) == 0
    with jax.enable_x64(True):
        wide = jax.jit(jax.vmap(grid.sample))(keys[:100], cells[:100])
    assert wide.dtype == jnp.float32
    np.testing.assert_array_equal(wide, drawn[:100])
