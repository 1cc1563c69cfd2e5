"""The Laplacian against closed forms and against itself at half the step."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.operators import FiniteDifferenceLaplacian, Laplacian, act

CLOSED_FORMS = {
    "gaussian": (
        lambda x: jnp.exp(-jnp.sum(x**2, axis=1) / 2.0),
        lambda x: (np.sum(x**2, axis=1) - x.shape[1]) * np.exp(-np.sum(x**2, axis=1) / 2.0),
    ),
    "polynomial": (
        lambda x: x[:, 0] ** 3 * x[:, 1] ** 2 + x[:, 2] ** 4 + 7.0,
        lambda x: 6.0 * x[:, 0] * x[:, 1] ** 2 + 2.0 * x[:, 0] ** 3 + 12.0 * x[:, 2] ** 2,
    ),
    "harmonic": (
        lambda x: x[:, 0] ** 2 - x[:, 2] ** 2 + x[:, 0] * x[:, 1],
        lambda x: 0.0 * x[:, 0],
    ),
    "wave": (
        lambda x: jnp.sin(2.0 * x[:, 0]) * jnp.cos(3.0 * x[:, 1]),
        lambda x: -13.0 * np.sin(2.0 * x[:, 0]) * np.cos(3.0 * x[:, 1]),
    ),
}
POINTS = np.random.default_rng(0).normal(size=(11, 3))


def functions(inputs):
    return jnp.stack([function(inputs) for function, _ in CLOSED_FORMS.values()], axis=1)


EXPECTED = np.stack([closed(POINTS) for _, closed in CLOSED_FORMS.values()], axis=1)


def images(operator):
    return np.asarray(jax.jit(lambda x: act(operator, functions, x).images)(jnp.asarray(POINTS)))


def test_the_exact_laplacian_agrees_with_closed_forms():
    np.testing.assert_allclose(images(Laplacian()), EXPECTED, rtol=1e-11, atol=1e-11)


def test_halving_the_step_of_finite_differences_quarters_their_error():
    errors = [
        np.abs(images(FiniteDifferenceLaplacian(step)) - EXPECTED).max(axis=0)
        for step in (0.04, 0.02, 0.01)
    ]
    # The harmonic function's fourth derivatives vanish: there is no error to be quartered.
    curved = [0, 1, 3]
    for coarse, fine in itertools.pairwise(errors):
        np.testing.assert_allclose(coarse[curved] / fine[curved], 4.0, rtol=0.02)
    assert errors[-1][2] < 1e-9
    assert np.all(errors[0][curved] > 1e-4)
