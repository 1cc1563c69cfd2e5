"""Products of cosines."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import cosine, cosine_products
from rlreps.errors import InputError


def test_cosine_products_are_orthogonal_over_a_grid_with_the_stated_scale():
    centres = (np.arange(16) + 0.5) / 16
    inputs = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)
    products = np.asarray(cosine_products(jnp.asarray(inputs, jnp.float32), 5), np.float64)
    frequencies = np.arange(6)
    squares = (frequencies[:, None] ** 2 + frequencies[None, :] ** 2).reshape(-1)
    np.testing.assert_allclose(
        products.T @ products / len(inputs), np.diag(1.0 / (1.0 + squares / 9.0)), atol=1e-5
    )


def test_cosine_products_of_three_coordinates_are_products_of_cosines():
    inputs = jnp.asarray([[0.2, 0.5, 0.9]])
    products = np.asarray(cosine_products(inputs, 2)).reshape(3, 3, 3)
    expected = np.sqrt(8.0) * np.cos(0.2 * np.pi) * np.cos(np.pi) * np.cos(0.9 * np.pi)
    np.testing.assert_allclose(products[1, 2, 1], expected / np.sqrt(1.0 + 6.0 / 9.0), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cosine(2, 3, frequencies=-1), "expected frequencies >= 0, got -1"),
        (lambda: cosine(4, 3), "expected at most 100000 products of cosines, got 331776"),
    ],
)
def test_numbers_of_cosines_out_of_range_are_refused(build, message):
    with pytest.raises(InputError) as error:
        build()
    assert str(error.value) == message
