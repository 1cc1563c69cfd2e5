"""Both ways through a small positive definite matrix, against SciPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.subspace import linalg as positive_definite

SOLVERS = [
    positive_definite.solve_positive_definite,
    positive_definite._solve_by_cholesky,
    positive_definite._solve_by_gauss_jordan,
]
INVERSES = [
    positive_definite.inverse_cholesky_factor,
    positive_definite._invert_factor_by_cholesky,
    positive_definite._invert_factor_by_elimination,
]


def _matrix(size, condition, scale):
    rng = np.random.default_rng(size)
    rotation = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = scale * np.geomspace(1.0, 1.0 / condition, size)
    return (rotation * values) @ rotation.T, rng.normal(size=(size, 5))


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize(("condition", "scale"), [(1.0, 1.0), (1e3, 1e4), (1e3, 1e-6)])
def test_systems_are_solved_to_the_rounding_of_their_condition(solve, size, condition, scale):
    matrix, right_hand_side = _matrix(size, condition, scale)
    expected = scipy.linalg.solve(matrix, right_hand_side, assume_a="pos")
    got = solve(jnp.asarray(matrix, jnp.float32), jnp.asarray(right_hand_side, jnp.float32))
    error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
    assert error < 1e-6 * condition**0.5 * 10


@pytest.mark.parametrize("invert", INVERSES)
@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize(("condition", "scale"), [(1.0, 1.0), (1e3, 1e4), (1e3, 1e-6)])
def test_inverse_factors_are_those_of_scipy(invert, size, condition, scale):
    matrix, _ = _matrix(size, condition, scale)
    expected = scipy.linalg.inv(scipy.linalg.cholesky(matrix, lower=True))
    got = np.asarray(invert(jnp.asarray(matrix, jnp.float32)))
    assert np.linalg.norm(got - expected) / np.linalg.norm(expected) < 1e-6 * condition**0.5 * 10
    np.testing.assert_array_equal(got, np.tril(got))
