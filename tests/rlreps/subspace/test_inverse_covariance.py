"""LISSA and the empirical inverse against exact expectations, series and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import chunked_lissa, empirical_inverse_covariance, lissa


def _recursion(features: np.ndarray, kappa: float) -> np.ndarray:
    """The definition, term by term in float64."""
    identity = np.eye(features.shape[1])
    delta = kappa * identity
    for phi in features:
        delta = kappa * identity + (identity - kappa * np.outer(phi, phi)) @ delta
    return delta


def test_the_estimate_follows_the_recursion_in_the_order_of_the_rows():
    rows = np.random.default_rng(1).standard_normal((6, 4))
    kappa = 1.9 / np.max(np.sum(rows**2, axis=1))
    estimate = lissa(jnp.asarray(rows, jnp.float32), jnp.eye(rows.shape[1]), kappa)
    np.testing.assert_allclose(estimate, _recursion(rows, kappa), atol=2e-6)
    assert np.max(np.abs(_recursion(rows[::-1], kappa) - _recursion(rows, kappa))) > 1e-2


def test_zero_features_give_finite_numbers_everywhere():
    features = jnp.zeros((5, 3))
    np.testing.assert_allclose(lissa(features, jnp.eye(features.shape[1]), 1.5), 9.0 * np.eye(3))
    np.testing.assert_array_equal(empirical_inverse_covariance(features), np.zeros((3, 3)))


@pytest.mark.parametrize("num_rows", [3, 40])
def test_the_empirical_inverse_equals_numpys_pseudo_inverse(num_rows):
    rows = np.random.default_rng(5).standard_normal((num_rows, 6))
    expected = np.linalg.pinv(rows.T @ rows / num_rows, hermitian=True, rcond=1e-10)
    with jax.enable_x64(True):
        inverse = np.asarray(empirical_inverse_covariance(jnp.asarray(rows)))
    np.testing.assert_allclose(inverse, expected, rtol=1e-8, atol=1e-8 * np.max(np.abs(expected)))


_F = np.float32


@pytest.mark.parametrize(
    ("function", "arrays", "expected", "got"),
    [
        (
            lissa,
            (np.ones((3, 2), int), np.ones((2, 1), _F), _F(0.1)),
            r"floating-point features \[j, d\], a right-hand side \[d, t\] and a scalar step",
            r"int32\[3, 2\], float32\[2, 1\], float32\[\]",
        ),
        (lissa, (np.ones((3, 2), _F), np.ones((2, 1), int), _F(0.1)), "", r"int32\[2, 1\]"),
        (lissa, (np.ones((3, 2), _F), np.ones((2, 1), _F), np.ones(3, _F)), "", r"float32\[3\]"),
        (lissa, (np.ones((3, 2), _F), np.ones((3, 1), _F), _F(0.1)), "", r"float32\[3, 1\]"),
        (
            chunked_lissa,
            (np.ones((3, 2, 2), _F), np.ones((2, 2, 1), _F), _F(0.1)),
            r"covariances \[J, d, d\], right-hand sides \[J, d, t\] and a scalar step",
            r"float32\[3, 2, 2\], float32\[2, 2, 1\]",
        ),
        (
            chunked_lissa,
            (np.ones((3, 2), _F), np.ones((3, 2, 1), _F), _F(0.1)),
            "",
            r"float32\[3, 2\]",
        ),
        (
            chunked_lissa,
            (np.ones((3, 2, 2), _F), np.ones((3, 2, 1), _F), np.ones(2, _F)),
            "",
            r"float32\[2\]",
        ),
        (
            chunked_lissa,
            (np.ones((3, 2, 2), _F), np.ones((3, 2, 1), int), _F(0.1)),
            "",
            r"int32\[3, 2, 1\]",
        ),
        (
            empirical_inverse_covariance,
            (np.ones((0, 3), _F),),
            r"non-empty floating-point features \[J, d\]",
            r"float32\[0, 3\]",
        ),
        (empirical_inverse_covariance, (np.ones((3, 0), _F),), "", r"float32\[3, 0\]"),
        (empirical_inverse_covariance, (np.ones(3, _F),), "", r"float32\[3\]"),
        (empirical_inverse_covariance, (np.eye(3, dtype=int),), "", r"int32\[3, 3\]"),
    ],
)
def test_arrays_that_do_not_fit_together_or_are_integers_are_refused(
    function, arrays, expected, got
):
    for each in (function, jax.jit(function)):
        with pytest.raises(InputError, match=f"expected .*{expected}.*, got .*{got}"):
            each(*arrays)
