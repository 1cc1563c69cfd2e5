import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.subspace import largest_eigenvalue_bound, newton_schulz_step


def _positive_definite(dimension: int, condition: float, seed: int = 0) -> np.ndarray:
    vectors = np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, dimension)))[0]
    return (vectors * np.geomspace(1.0, condition, dimension)) @ vectors.T


@pytest.mark.parametrize("dimension", [1, 3, 40])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_steps_from_nothing_reach_numpys_inverse(dimension, scale):
    matrix = scale * _positive_definite(dimension, 50.0)
    inverse = jnp.zeros((dimension, dimension), jnp.float32)
    for _ in range(20):
        inverse = newton_schulz_step(inverse, jnp.asarray(matrix, jnp.float32))
    expected = np.linalg.inv(matrix)
    np.testing.assert_allclose(inverse, expected, atol=1e-4 * np.abs(expected).max())


def test_a_step_squares_the_error():
    with jax.enable_x64(True):
        matrix = _positive_definite(5, 3.0)
        start = 0.7 * np.linalg.inv(matrix)
        step = np.asarray(newton_schulz_step(jnp.asarray(start), jnp.asarray(matrix)))
    np.testing.assert_allclose(np.eye(5) - step @ matrix, 0.3**2 * np.eye(5), atol=1e-12)


@pytest.mark.parametrize("growth", [3.0, 1e4])
def test_a_matrix_that_outgrew_the_iterate_is_caught_up_with(growth):
    matrix = _positive_definite(6, 10.0)
    with jax.enable_x64(True):
        inverse, grown = jnp.asarray(np.linalg.inv(matrix)), jnp.asarray(growth * matrix)
        for _ in range(12):
            inverse = newton_schulz_step(inverse, grown)
        np.testing.assert_allclose(inverse @ grown, np.eye(6), atol=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e5])
@pytest.mark.parametrize("dimension", [1, 4, 300])
def test_the_bound_lies_above_the_largest_eigenvalue_by_no_more_than_stated(dimension, scale):
    for condition in (1.0, 100.0):
        matrix = scale * _positive_definite(dimension, condition)
        bound = float(largest_eigenvalue_bound(jnp.asarray(matrix, jnp.float32)))
        largest = scale * condition if dimension > 1 else scale
        assert largest * (1 - 1e-4) <= bound <= largest * dimension ** (1 / 16) * (1 + 1e-4)
