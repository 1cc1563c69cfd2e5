"""Operators compose as linear maps do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.operators import diagonal, laplacian, matrix
from rlreps.operators.action import act


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


FIRST, SECOND = (square + square.T for square in np.random.default_rng(0).normal(size=(2, 5, 5)))
TABLE = np.random.default_rng(1).normal(size=(5, 3))


def images(operator):
    states = jnp.asarray([4, 0, 0, 2])
    return np.asarray(act(operator, lambda s: jnp.asarray(TABLE)[s], states).images)


COMBINATIONS = {
    "sum": (lambda a, b: a + b, FIRST + SECOND),
    "difference": (lambda a, b: a - b, FIRST - SECOND),
    "factor": (lambda a, b: 2.5 * a, 2.5 * FIRST),
    "factor behind": (lambda a, b: a * -3.0, -3.0 * FIRST),
    "negative": (lambda a, b: -a, -FIRST),
    "combination": (lambda a, b: 2 * (a - 0.5 * b), 2.0 * FIRST - SECOND),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_operators_add_and_scale_as_their_matrices_do(name):
    combine, expected = COMBINATIONS[name]
    found = images(combine(matrix(FIRST), matrix(SECOND)))
    np.testing.assert_allclose(found, (expected @ TABLE)[[4, 0, 0, 2]], rtol=1e-12)


def test_a_factor_that_is_no_number_is_refused():
    for factor in (np.nan, np.inf):
        with pytest.raises(InputError, match="expected a finite factor of an operator, got"):
            factor * matrix(FIRST)


def test_the_harmonic_oscillator_has_its_levels_as_local_energies():
    # −∇² + |x|² in the plane: Hermite functions H_m(x) H_n(y) exp(−|x|²/2) at 2(m + n) + 2.
    hamiltonian = diagonal(lambda x: jnp.sum(x**2, axis=1)) - laplacian()

    def states(points):
        x, y = points[:, 0], points[:, 1]
        polynomials = [jnp.ones_like(x), x, x * y, 4.0 * y**3 - 6.0 * y]
        return jnp.stack(polynomials, axis=1) * jnp.exp(-jnp.sum(points**2, axis=1) / 2)[:, None]

    points = jnp.asarray(np.random.default_rng(2).normal(size=(20, 2)))
    action = act(hamiltonian, states, points)
    energies = np.asarray(action.images) / np.asarray(action.values)
    np.testing.assert_allclose(energies, np.tile([2.0, 4.0, 6.0, 8.0], (20, 1)), rtol=1e-9)
