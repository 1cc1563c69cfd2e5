import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rlreps.errors import InputError
from rlreps.successor.grids import Grid


@pytest.fixture
def x64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def cells_of(grid, positions):
    return np.asarray(jax.vmap(grid.cell)(jnp.asarray(positions, jnp.float32)))


def samples(grid, cells, seed=0):
    keys = jax.random.split(jax.random.key(seed), len(cells))
    return jax.jit(jax.vmap(grid.sample))(keys, jnp.asarray(cells, jnp.int32))


def test_a_cell_is_row_times_bins_plus_column_with_the_row_from_y():
    positions = [[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.3, 0.6]]
    np.testing.assert_array_equal(cells_of(Grid(4), positions), [0, 3, 12, 9])


def test_the_far_edges_belong_to_the_last_cells():
    corners = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    np.testing.assert_array_equal(cells_of(Grid(3), corners), [0, 2, 6, 8])


@pytest.mark.parametrize("bins", [1, 2, 7, 100])
def test_centres_lie_in_their_own_cells_in_the_order_of_the_indices(bins):
    centres = Grid(bins).centres()
    assert centres.shape == (bins**2, 2)
    assert centres.dtype == np.float32
    np.testing.assert_array_equal(cells_of(Grid(bins), centres), np.arange(bins**2))
    middle = (np.arange(bins) + 0.5) / bins
    np.testing.assert_allclose(centres.reshape(bins, bins, 2)[0, :, 0], middle, rtol=1e-6)
    np.testing.assert_allclose(centres.reshape(bins, bins, 2)[:, 0, 1], middle, rtol=1e-6)


@pytest.mark.parametrize("bins", [2, 10, 100, 300])
def test_no_sample_is_rounded_into_a_neighbouring_cell(bins):
    cells = np.random.default_rng(bins).integers(0, bins**2, 2_000_000).astype(np.int32)
    grid = Grid(bins)
    landed = jax.jit(jax.vmap(grid.cell))(samples(grid, cells))
    assert np.count_nonzero(np.asarray(landed) != cells) == 0


@pytest.mark.parametrize("cell", [0, 37, 99])
def test_samples_are_uniform_and_uncorrelated_inside_their_cell(cell):
    grid, count = Grid(10), 20_000
    corner = np.array([cell % 10, cell // 10])
    inside = np.asarray(samples(grid, np.full(count, cell)), np.float64) * 10 - corner
    for axis in range(2):
        assert scipy.stats.kstest(inside[:, axis], "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(inside.T)[0, 1]) < 5 / np.sqrt(count)


@pytest.mark.usefixtures("x64")
def test_samples_have_the_same_float32_bits_where_x64_is_on():
    grid, cells = Grid(10), np.arange(100)
    with_x64 = samples(grid, cells)
    jax.config.update("jax_enable_x64", False)
    assert with_x64.dtype == jnp.float32
    np.testing.assert_array_equal(with_x64, samples(grid, cells))


def test_a_grid_without_cells_is_refused():
    with pytest.raises(InputError, match="expected bins >= 1, got 0"):
        Grid(0)
