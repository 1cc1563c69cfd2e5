"""Potentials."""

import jax.numpy as jnp
import numpy as np

from rlreps.operators import diagonal
from rlreps.operators.action import act


def test_each_function_is_multiplied_by_the_potential_at_its_point():
    points = jnp.asarray([[1.0, 2.0], [3.0, -4.0]])
    action = act(diagonal(lambda x: -1.0 / jnp.sum(x**2, axis=1)), lambda x: 5.0 * x, points)
    np.testing.assert_allclose(action.images, [[-1.0, -2.0], [-0.6, 0.8]], rtol=1e-6)
