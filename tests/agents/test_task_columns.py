"""Task columns: their cumulants' families, discounts, and the observations that they take."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import AuxiliaryConfig
from rlreps.agents.auxiliary import make_task_columns
from rlreps.cumulants import Cells, RandomFourier, RandomIndicators
from rlreps.errors import InputError

RANDOM = (RandomFourier(length_scale=0.2), RandomIndicators())


def columns_of(shape, **options):
    return make_task_columns(AuxiliaryConfig(**options), shape)


@pytest.mark.parametrize(
    "options", [{"tasks": Cells(bins=3)}, *({"tasks": tasks, "num_tasks": 9} for tasks in RANDOM)]
)
def test_columns_are_fixed_by_their_key_and_take_any_leading_axes(options):
    columns = columns_of((2,), **options)
    params = columns.init(jax.random.key(0))
    observations = jax.random.uniform(jax.random.key(1), (4, 5, 2))
    cumulants = jax.jit(columns.apply)(params, observations)
    assert columns.num_tasks == 9
    assert cumulants.shape == (4, 5, 9)
    assert cumulants.dtype == jnp.float32
    assert params.discounts.shape == (9,)
    alone = [[columns.apply(params, each) for each in row] for row in observations]
    np.testing.assert_allclose(cumulants, np.asarray(alone), atol=1e-4)
    again = columns.init(jax.random.key(0))
    np.testing.assert_array_equal(again.discounts, params.discounts)
    assert np.any(columns.init(jax.random.key(2)).discounts != params.discounts)


@pytest.mark.parametrize("tasks", [Cells(bins=4), *RANDOM])
def test_cumulants_lie_between_their_bounds_which_hold_zero(tasks):
    columns = columns_of((3,), tasks=tasks)
    observations = 3.0 * jax.random.normal(jax.random.key(1), (500, 3))
    cumulants = columns.apply(columns.init(jax.random.key(0)), observations)
    low, high = columns.bounds
    assert low <= 0.0 <= high
    assert low - 1e-6 <= float(cumulants.min())
    assert float(cumulants.max()) <= high + 1e-6
    # Bounds that were wider than need be would hold back nothing.
    assert float(cumulants.max()) > 0.99 * high


def test_every_column_has_a_discount_of_its_own_uniform_over_the_interval():
    columns = columns_of((2,), num_tasks=4_000, discount_low=0.6, discount_high=0.9)
    discounts = np.asarray(columns.init(jax.random.key(0)).discounts, np.float64)
    assert discounts.min() >= 0.6
    assert discounts.max() <= 0.9
    spread = 0.3 / math.sqrt(12)
    assert abs(discounts.mean() - 0.75) <= 4.5 * spread / math.sqrt(4_000)
    # The variance of a squared uniform deviation is that of its fourth moment, width⁴ / 180.
    error = math.sqrt(0.3**4 / 180 / 4_000)
    assert abs(discounts.var() - spread**2) <= 4.5 * error


def test_an_interval_of_one_point_gives_that_discount():
    columns = columns_of((2,), num_tasks=5, discount_low=0.95, discount_high=0.95)
    discounts = columns.init(jax.random.key(3)).discounts
    np.testing.assert_array_equal(discounts, np.float32(0.95))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_cells_are_those_of_the_grid_over_all_coordinates(size):
    columns = columns_of((size,), tasks=Cells(bins=4))
    observations = jax.random.uniform(jax.random.key(1), (50, size))
    cumulants = columns.apply(columns.init(jax.random.key(0)), observations)
    expected = Cells(bins=4, num_inputs=size).apply((), observations)
    np.testing.assert_array_equal(cumulants, expected)


def test_waves_have_the_length_scale_asked_for():
    """E c(x) c(y) = exp(−‖x − y‖² / 2l²), within 4.5 standard errors over columns."""
    columns = columns_of((3,), tasks=RandomFourier(length_scale=0.7), num_tasks=40_000)
    observations = jnp.asarray([[0.1, 0.9, 0.3], [0.6, 0.7, 0.5]])
    values = np.asarray(columns.apply(columns.init(jax.random.key(0)), observations), np.float64)
    products = values[0] * values[1]
    expected = math.exp(-(0.5**2 + 0.2**2 + 0.2**2) / (2 * 0.7**2))
    assert abs(products.mean() - expected) <= 4.5 * products.std() / math.sqrt(40_000)


@pytest.mark.parametrize("tasks", RANDOM)
def test_images_are_flattened_and_bytes_are_those_over_255(tasks):
    shape = (4, 3, 2)
    image, flat = columns_of(shape, tasks=tasks), columns_of((24,), tasks=tasks)
    pixels = np.random.default_rng(0).integers(0, 256, (6, *shape), dtype=np.uint8)
    params = image.init(jax.random.key(0))
    as_floats = jnp.asarray(pixels.reshape(6, 24) / 255.0, jnp.float32)
    expected = flat.apply(flat.init(jax.random.key(0)), as_floats)
    np.testing.assert_allclose(image.apply(params, jnp.asarray(pixels)), expected, atol=1e-4)


@pytest.mark.parametrize("shape", [(), (4,), (10, 10, 4), (2, 2)])
def test_cells_of_anything_but_short_vectors_are_refused(shape):
    with pytest.raises(InputError, match="expected observations that are vectors of at most 3"):
        columns_of(shape, tasks=Cells())
