import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import convolutional
from rlreps.experiments.atari.network import convolutional_by_products


@pytest.mark.parametrize("shape", [(8, 8, 1), (7, 10, 2), (1, 5, 1), (21, 13, 3)])
def test_products_of_patches_are_the_convolutional_encoder(shape):
    sizes = {"channels": (3, 4, 2), "hidden": 5}
    expected = convolutional(shape, 4, **sizes)
    found = convolutional_by_products(shape, 4, **sizes)
    params = found.init(jax.random.key(0))
    frames = jax.random.normal(jax.random.key(1), (6, *shape))

    def loss(encoder, params):
        return jnp.sum(jnp.square(encoder.apply(params, frames)))

    np.testing.assert_allclose(
        found.apply(params, frames), expected.apply(params, frames), atol=1e-5
    )
    slopes = [jax.grad(lambda p, e=each: loss(e, p))(params) for each in (found, expected)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), *slopes)
