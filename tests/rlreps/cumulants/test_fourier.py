"""The cosine behind random waves, against the mathematical one."""

import jax.numpy as jnp
import numpy as np

from rlreps.cumulants.fourier import cosine


def test_cosines_are_right_to_the_rounding_of_their_angles():
    angles = np.concatenate(
        [np.linspace(-400.0, 400.0, 100_001), np.arange(-8, 9) * np.pi / 4]
    ).astype(np.float32)
    exact = np.cos(angles.astype(np.float64))
    error = np.abs(np.asarray(cosine(jnp.asarray(angles)), np.float64) - exact)
    # Half a unit in the last place of the angle, once for turning it into turns, and the series'.
    assert np.all(error <= 1e-6 + np.abs(angles) * np.finfo(np.float32).eps)
