"""Families of functions, against areas, kernels, moments and cells known in closed form."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.cumulants import (
    Cells,
    Discs,
    RandomFourier,
    RandomIndicators,
    RandomNetwork,
    cumulant_matrix,
)
from rlreps.cumulants.fourier import cosine
from rlreps.successor.measure.grids import Grid

FAMILIES = {
    "discs": Discs(),
    "random_fourier": RandomFourier(),
    "random_indicators": RandomIndicators(hidden=(16, 8)),
    "random_network": RandomNetwork(hidden=(16, 8)),
}


@functools.partial(jax.jit, static_argnums=(0, 1))
def values_of(family, num_tasks, key, positions):
    """Functions of a family at positions [..., c], [..., num_tasks]."""
    return family.apply(family.init(key, num_tasks), positions)


def drawn(family, positions, networks):
    """Values [networks, n] of one function from each of many networks at positions [n, c]."""
    keys = jax.random.split(jax.random.key(0), networks)
    one = jax.vmap(lambda key: values_of(family, 1, key, np.float32(positions))[:, 0])
    return np.asarray(jax.jit(one)(keys), np.float64)


def assert_mean(samples, expected, axis=0):
    """The mean of independent samples is the expected one within 4.5 standard errors."""
    samples = np.asarray(samples, np.float64)
    error = samples.std(axis=axis) / math.sqrt(samples.shape[axis])
    assert np.all(np.abs(samples.mean(axis=axis) - expected) <= 4.5 * error + 1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_functions_are_fixed_by_their_parameters_and_work_for_any_leading_axes(name):
    family = FAMILIES[name]
    positions = np.random.default_rng(0).random((2, 3, 2), np.float32)
    values = values_of(family, 5, jax.random.key(0), positions)
    assert values.shape == (2, 3, 5)
    assert values.dtype == jnp.float32
    alone = [[values_of(family, 5, jax.random.key(0), p) for p in row] for row in positions]
    np.testing.assert_allclose(values, np.asarray(alone), rtol=1e-4, atol=1e-5)
    assert np.any(values_of(family, 5, jax.random.key(2), positions) != values)


def test_a_disc_is_one_inside_and_on_its_edge_and_zero_outside():
    centres, radii = jnp.asarray([[0.5, 0.5], [0.0, 1.0]]), jnp.asarray([0.25, 0.5])
    params = Discs().init(jax.random.key(0), 2)._replace(centres=centres, radii=radii)
    positions = jnp.asarray([[0.5, 0.5], [0.75, 0.5], [0.76, 0.5], [0.3, 0.7], [0.0, 0.6]])
    # 0.2 * 0.2 + 0.2 * 0.2 = 0.08 > 0.0625, and 0.3 * 0.3 + 0.3 * 0.3 = 0.18 < 0.25.
    expected = [[1, 0], [1, 0], [0, 0], [0, 1], [0, 1]]
    np.testing.assert_array_equal(Discs().apply(params, positions), expected)


def test_discs_have_the_areas_of_their_radii_and_centres_all_over_the_square():
    discs = Discs(smallest=0.1, largest=0.3)
    params = discs.init(jax.random.key(0), 4_000)
    radii, centres = np.asarray(params.radii), np.asarray(params.centres)
    assert radii.min() >= 0.1
    assert radii.max() <= 0.3
    assert_mean(radii, 0.2)
    assert_mean(np.square(centres), 1 / 3)
    inside = np.flatnonzero(((centres >= 0.3) & (centres <= 0.7)).all(axis=1))[:20]
    whole = params._replace(centres=centres[inside], radii=radii[inside])
    points = np.random.default_rng(0).random((20_000, 2), np.float32)
    assert_mean(discs.apply(whole, points), math.pi * np.square(radii[inside]))


def test_the_covariance_of_random_fourier_functions_is_the_rbf_kernel():
    positions = np.random.default_rng(0).random((6, 2))
    values = values_of(
        RandomFourier(length_scale=0.4), 100_000, jax.random.key(0), np.float32(positions)
    )
    squared = np.square(positions[:, None] - positions[None]).sum(axis=-1)
    values = np.asarray(values, np.float64)
    products = np.einsum("it,jt->tij", values, values)
    assert_mean(products, np.exp(-squared / (2 * 0.4**2)))
    assert_mean(values, 0.0, axis=1)


def test_cosines_are_right_to_the_rounding_of_their_angles():
    angles = np.concatenate(
        [np.linspace(-400.0, 400.0, 100_001), np.arange(-8, 9) * np.pi / 4]
    ).astype(np.float32)
    exact = np.cos(angles.astype(np.float64))
    error = np.abs(np.asarray(jax.jit(cosine)(angles), np.float64) - exact)
    # Half a unit in the last place of the angle, once for turning it into turns, and the series'.
    assert np.all(error <= 1e-6 + np.abs(angles) * np.finfo(np.float32).eps)


def test_the_covariance_of_a_one_layer_network_follows_its_hidden_units():
    # E r(x) r(y) = E tanh(a) tanh(b), a and b Gaussian: by quadrature, over drawn networks.
    x, y = np.array([0.2, 0.9]), np.array([0.6, 0.1])
    values = drawn(RandomNetwork(hidden=(4,), input_scale=3.0), [x, y], 60_000)
    # Biases add 1.
    covariance = np.array([[1 + 9 * u @ v / 2 for v in (x, y)] for u in (x, y)])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    factor = np.linalg.cholesky(covariance)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    a, b = np.einsum("ij,jkl->ikl", factor, np.stack([first, second]))
    both = np.outer(weights, weights) / (2 * math.pi)
    assert_mean(values[:, 0] * values[:, 1], float(np.sum(both * np.tanh(a) * np.tanh(b))))


def test_indicators_are_zero_or_one_and_balanced_at_every_point_inside_the_box_or_not():
    values = drawn(RandomIndicators(hidden=(16, 8)), [[0.5, 0.5], [0.0, 1.0], [3.0, -2.0]], 4_000)
    assert set(np.unique(values)) == {0.0, 1.0}
    assert_mean(values, 0.5)
    # Those drawn together have thresholds of their own.
    params = RandomIndicators(hidden=(8,)).init(jax.random.key(0), 50)
    assert len(np.unique(np.asarray(params.thresholds))) == 50


def test_thresholds_at_a_quantile_leave_its_share_of_the_positions_at_zero():
    family, positions = RandomIndicators(num_inputs=3), np.random.default_rng(0).random((101, 3))
    params = family.init(jax.random.key(0), 20)
    params = family.with_thresholds(params, jnp.float32(positions), 0.7)
    values = np.asarray(family.apply(params, jnp.float32(positions)))
    np.testing.assert_array_equal(values.sum(axis=0), 30)


def test_the_share_of_the_box_where_an_indicator_is_one_is_uniform():
    """Moments of the uniform distribution: 1/2, 1/3; shares over 500 points, unbiased pairs."""
    positions = np.random.default_rng(0).random((500, 3))
    values = drawn(RandomIndicators(hidden=(16,), num_inputs=3), positions, 1_500)
    assert_mean(values.mean(axis=1), 0.5)
    # Products of different points: their mean is the mean squared share.
    assert_mean((values[:, ::2] * values[:, 1::2]).mean(axis=1), 1 / 3)


def cells_of(family, positions):
    """Indices of the cells that hold positions [n, c]; every row must name one cell alone."""
    values = np.asarray(jax.jit(family.apply)((), np.float32(positions)))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(np.sort(values, axis=1)[:, :-1], 0.0)
    np.testing.assert_array_equal(values.max(axis=1), 1.0)
    return values.argmax(axis=1)


def test_cells_are_those_of_the_successor_measure_and_positions_outside_go_to_the_nearest():
    positions = np.random.default_rng(0).random((2_000, 2)).astype(np.float32)
    expected = jax.jit(jax.vmap(Grid(7).cell))(positions)
    np.testing.assert_array_equal(cells_of(Cells(bins=7), positions), expected)
    positions = [point[::-1] for point in itertools.product(*[(0.25, 0.75)] * 3)]
    np.testing.assert_array_equal(cells_of(Cells(bins=2, num_inputs=3), positions), np.arange(8))
    outside = [[-0.3, 0.5], [1.7, 0.5], [0.5, -np.inf], [0.5, 1e12], [-5.0, 9.0]]
    np.testing.assert_array_equal(cells_of(Cells(bins=3), outside), [3, 5, 1, 7, 6])


def test_the_cumulant_matrix_holds_the_functions_at_the_centres_of_the_cells():
    centres, key = Grid(4).centres(), jax.random.key(3)
    matrix = cumulant_matrix(Discs(), key, centres, 7)
    assert matrix.shape == (16, 7)
    np.testing.assert_array_equal(matrix, values_of(Discs(), 7, key, np.float32(centres)))
