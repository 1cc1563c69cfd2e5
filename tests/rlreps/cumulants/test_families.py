"""Families of random functions, against areas, kernels and moments known in closed form."""

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
from rlreps.errors import InputError
from rlreps.successor.grids import Grid

FAMILIES = {
    "discs": Discs(),
    "random_fourier": RandomFourier(),
    "random_indicators": RandomIndicators(hidden=(16, 8)),
    "random_network": RandomNetwork(hidden=(16, 8)),
}


def values_at(family, positions, num_tasks, seed=0):
    """Functions of a family at positions [n, c], [n, num_tasks]."""
    params = family.init(jax.random.key(seed), num_tasks)
    return np.asarray(family.apply(params, jnp.asarray(positions, jnp.float32)), np.float64)


def assert_mean(samples, expected, axis=0):
    """The mean of independent samples is the expected one within 4.5 standard errors."""
    samples = np.asarray(samples, np.float64)
    error = samples.std(axis=axis) / math.sqrt(samples.shape[axis])
    assert np.all(np.abs(samples.mean(axis=axis) - expected) <= 4.5 * error + 1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_functions_are_fixed_by_their_parameters_and_work_for_any_leading_axes(name):
    family = FAMILIES[name]
    params = family.init(jax.random.key(0), 5)
    positions = jax.random.uniform(jax.random.key(1), (2, 3, 2))
    values = family.apply(params, positions)
    assert values.shape == (2, 3, 5)
    assert values.dtype == jnp.float32
    alone = [[family.apply(params, position) for position in row] for row in positions]
    np.testing.assert_allclose(values, np.asarray(alone), rtol=1e-4, atol=1e-5)
    other = family.init(jax.random.key(2), 5)
    assert np.any(np.asarray(family.apply(other, positions)) != np.asarray(values))


@pytest.mark.parametrize("name", FAMILIES)
def test_families_of_equal_settings_are_equal_so_that_programs_are_shared(name):
    family = FAMILIES[name]
    copy = type(family)(**vars(family))
    assert copy == family
    assert hash(copy) == hash(family)


def test_a_disc_is_one_inside_and_on_its_edge_and_zero_outside():
    params = (
        Discs()
        .init(jax.random.key(0), 2)
        ._replace(centres=jnp.asarray([[0.5, 0.5], [0.0, 1.0]]), radii=jnp.asarray([0.25, 0.5]))
    )
    positions = jnp.asarray([[0.5, 0.5], [0.75, 0.5], [0.76, 0.5], [0.3, 0.7], [0.0, 0.6]])
    expected = [[1, 0], [1, 0], [0, 0], [0, 1], [0, 1]]
    np.testing.assert_array_equal(Discs().apply(params, positions)[:3], expected[:3])
    # 0.2 * 0.2 + 0.2 * 0.2 = 0.08 > 0.0625, and 0.3 * 0.3 + 0.3 * 0.3 = 0.18 < 0.25.
    np.testing.assert_array_equal(Discs().apply(params, positions)[3:], expected[3:])


def test_discs_have_the_areas_of_their_radii_and_centres_all_over_the_square():
    discs = Discs(smallest=0.1, largest=0.3)
    params = discs.init(jax.random.key(0), 4_000)
    radii, centres = np.asarray(params.radii), np.asarray(params.centres)
    assert radii.min() >= 0.1
    assert radii.max() <= 0.3
    assert_mean(radii, 0.2)
    assert_mean(centres, 0.5)
    assert_mean(np.square(centres), 1 / 3)
    points = np.random.default_rng(0).random((20_000, 2))
    inside = ((centres >= 0.3) & (centres <= 0.7)).all(axis=1)
    whole = params._replace(centres=params.centres[inside][:20], radii=params.radii[inside][:20])
    covered = discs.apply(whole, jnp.asarray(points, jnp.float32))
    assert_mean(covered, math.pi * np.square(radii[inside][:20]))


def test_the_covariance_of_random_fourier_functions_is_the_rbf_kernel():
    positions = np.random.default_rng(0).random((6, 2))
    values = values_at(RandomFourier(length_scale=0.4), positions, 100_000)
    squared = np.square(positions[:, None] - positions[None]).sum(axis=-1)
    products = np.einsum("it,jt->tij", values, values)
    assert_mean(products, np.exp(-squared / (2 * 0.4**2)))
    assert_mean(values, 0.0, axis=1)


def test_the_covariance_of_a_one_layer_network_follows_its_hidden_units():
    """E r(x) r(y) = E tanh(a) tanh(b), a and b Gaussian: by quadrature, over drawn networks."""
    family = RandomNetwork(hidden=(4,), input_scale=3.0)
    x, y = np.array([0.2, 0.9]), np.array([0.6, 0.1])

    def product(key):
        values = family.apply(family.init(key, 3), jnp.asarray(np.stack([x, y]), jnp.float32))
        return jnp.mean(values[0] * values[1])

    products = jax.vmap(product)(jax.random.split(jax.random.key(0), 20_000))
    covariance = np.array(
        [[1 + 9 * u @ v / 2 for v in (x, y)] for u in (x, y)]  # biases add 1
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    factor = np.linalg.cholesky(covariance)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    a, b = np.einsum("ij,jkl->ikl", factor, np.stack([first, second]))
    both = np.outer(weights, weights) / (2 * math.pi)
    assert_mean(products, float(np.sum(both * np.tanh(a) * np.tanh(b))))


def test_the_cumulant_matrix_holds_the_functions_at_the_centres_of_the_cells():
    centres = Grid(4).centres()
    matrix = cumulant_matrix(RandomFourier(), jax.random.key(3), centres, 7)
    assert matrix.shape == (16, 7)
    np.testing.assert_array_equal(matrix, values_at(RandomFourier(), centres, 7, seed=3))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Discs(smallest=0.0), "expected radii 0 < smallest <= largest"),
        (lambda: Discs(smallest=0.3, largest=0.2), "expected radii 0 < smallest <= largest"),
        (lambda: Discs(largest=math.inf), "expected radii"),
        (lambda: RandomFourier(length_scale=0.0), "expected a length_scale > 0"),
        (lambda: RandomFourier(num_inputs=0), "expected num_inputs >= 1"),
        (lambda: RandomNetwork(hidden=()), "expected at least one hidden layer"),
        (lambda: RandomNetwork(hidden=(4, 0)), "expected at least one hidden layer"),
        (lambda: RandomNetwork(input_scale=-1.0), "expected an input_scale > 0"),
        (lambda: RandomIndicators(hidden=()), "expected at least one hidden layer"),
        (lambda: RandomIndicators(input_scale=0.0), "expected an input_scale > 0"),
        (lambda: Cells(bins=0), "expected bins >= 1"),
        (lambda: Cells(bins=3, num_inputs=0), "expected num_inputs >= 1"),
        (lambda: Cells(bins=3).init(jax.random.key(0), 8), "expected 9 tasks, one a cell"),
    ],
)
def test_settings_out_of_range_are_refused(build, message):
    with pytest.raises(InputError) as error:
        build()
    assert message in str(error.value)
