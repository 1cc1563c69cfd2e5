"""Cells of a grid, against the successor measure's own and a count by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.cumulants import Cells
from rlreps.successor.grids import Grid


def cells_of(family, positions):
    """Indices of the cells that hold positions [n, c]; every row must name one cell alone."""
    values = np.asarray(family.apply((), jnp.asarray(positions, jnp.float32)))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(np.sort(values, axis=1)[:, :-1], 0.0)
    np.testing.assert_array_equal(values.max(axis=1), 1.0)
    return values.argmax(axis=1)


def test_two_dimensional_cells_are_those_of_the_successor_measure():
    positions = np.random.default_rng(0).random((2_000, 2)).astype(np.float32)
    positions[:4] = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    expected = jax.vmap(Grid(7).cell)(jnp.asarray(positions))
    np.testing.assert_array_equal(cells_of(Cells(bins=7), positions), expected)


def test_the_first_axis_runs_fastest_in_any_number_of_dimensions():
    for dimensions in (1, 2, 3):
        axes = [(0.25, 0.75)] * dimensions
        positions = [point[::-1] for point in itertools.product(*axes)]
        family = Cells(bins=2, num_inputs=dimensions)
        np.testing.assert_array_equal(cells_of(family, positions), np.arange(2**dimensions))
        assert family.num_cells == 2**dimensions


def test_positions_outside_the_box_belong_to_the_nearest_cell():
    positions = [[-0.3, 0.5], [1.7, 0.5], [0.5, -np.inf], [0.5, 1e12], [-5.0, 9.0]]
    np.testing.assert_array_equal(cells_of(Cells(bins=3), positions), [3, 5, 1, 7, 6])
