"""Small positive definite matrices and ordered spectra, against SciPy, autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.subspace import largest_eigenvalue_bound, linalg, newton_schulz_step
from rlreps.subspace.ordered import (
    masked_gradient,
    ordered_spectrum,
    orthonormalising_factor,
    ritz_spectrum,
)

SIZES = pytest.mark.parametrize("size", [1, 40])
CONDITIONS = pytest.mark.parametrize(("condition", "scale"), [(1.0, 1.0), (1e3, 1e-9)])
SOLVERS = ["solve_positive_definite", "_solve_by_cholesky", "_solve_by_gauss_jordan"]
INVERSES = [
    "inverse_cholesky_factor",
    "_invert_factor_by_cholesky",
    "_invert_factor_by_elimination",
]


def positive_definite(size, condition, scale=1.0):
    vectors = np.linalg.qr(np.random.default_rng(size).standard_normal((size, size)))[0]
    return (vectors * scale * np.geomspace(1.0, condition, size)) @ vectors.T


def assert_close(found, expected, condition):
    """Compare within the rounding of single precision for matrices of a condition."""
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < 1e-6 * condition**0.5 * 10


@pytest.mark.parametrize("solve", SOLVERS)
@SIZES
@CONDITIONS
def test_systems_are_solved_to_the_rounding_of_their_condition(solve, size, condition, scale):
    right_hand_side = np.random.default_rng(0).normal(size=(size, 5))
    matrix = positive_definite(size, condition, scale)
    expected = scipy.linalg.solve(matrix, right_hand_side, assume_a="pos")
    found = jax.jit(getattr(linalg, solve))(*map(jnp.float32, (matrix, right_hand_side)))
    assert_close(found, expected, condition)


@pytest.mark.parametrize("invert", INVERSES)
@SIZES
@CONDITIONS
def test_inverse_factors_are_those_of_scipy(invert, size, condition, scale):
    matrix = positive_definite(size, condition, scale)
    expected = scipy.linalg.inv(scipy.linalg.cholesky(matrix, lower=True))
    found = np.asarray(jax.jit(getattr(linalg, invert))(jnp.float32(matrix)))
    assert_close(found, expected, condition)
    np.testing.assert_array_equal(found, np.tril(found))


@SIZES
def test_steps_from_nothing_reach_numpys_inverse(size):
    step = jax.jit(newton_schulz_step)
    for scale in (1e-6, 1e6):
        matrix = positive_definite(size, 50.0, scale)
        inverse = jnp.zeros((size, size), jnp.float32)
        for _ in range(20):
            inverse = step(inverse, jnp.asarray(matrix, jnp.float32))
        expected = np.linalg.inv(matrix)
        np.testing.assert_allclose(inverse, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("dimension", [1, 4])
def test_the_bound_lies_above_the_largest_eigenvalue_by_no_more_than_stated(dimension):
    bound_of = jax.jit(largest_eigenvalue_bound)
    for condition in (1.0, 100.0):
        for scale in (0.0, 1e-3, 1e5):
            matrix = positive_definite(dimension, condition, scale)
            bound = float(bound_of(jnp.asarray(matrix, jnp.float32)))
            largest = scale * condition if dimension > 1 else scale
            assert largest * (1 - 1e-4) <= bound <= largest * dimension ** (1 / 16) * (1 + 1e-4)


NUM_STATES, NUM_FEATURES = 12, 4


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield


def problem(seed=0):
    """(u [n, d], measure [n], an operator [n, n] symmetric in the measure)."""
    rng = np.random.default_rng(seed)
    measure = rng.dirichlet(np.full(NUM_STATES, 3.0))
    form = rng.normal(size=(NUM_STATES, NUM_STATES))
    operator = (form + form.T) / measure[:, None]
    return rng.normal(size=(NUM_STATES, NUM_FEATURES)), measure, operator


def moments(features, measure, operator):
    weighted = features * measure[:, None]
    return weighted.T @ features, weighted.T @ (operator @ features)


@pytest.mark.usefixtures("double_precision")
def test_the_ordered_spectrum_holds_rayleigh_quotients_of_gram_schmidts_functions():
    features, measure, operator = problem()
    spectrum = jax.jit(ordered_spectrum)(*moments(features, measure, operator))
    root = np.sqrt(measure)[:, None]
    orthonormal, upper = np.linalg.qr(root * features)
    functions = orthonormal * np.sign(np.diag(upper)) / root
    np.testing.assert_allclose(features @ spectrum.transform, functions, rtol=1e-10, atol=1e-10)
    quotients = [f @ (measure * (operator @ f)) for f in functions.T]
    np.testing.assert_allclose(spectrum.eigenvalues, quotients, rtol=1e-10)


@pytest.mark.usefixtures("double_precision")
def test_the_ritz_spectrum_is_scipys_generalised_eigenproblem():
    covariance, operator_matrix = moments(*problem())
    spectrum = jax.jit(ritz_spectrum)(covariance, operator_matrix)
    values, vectors = scipy.linalg.eigh(operator_matrix, covariance)
    np.testing.assert_allclose(spectrum.eigenvalues, values, rtol=1e-9)
    transform = np.asarray(spectrum.transform)
    np.testing.assert_allclose(transform.T @ covariance @ transform, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(np.abs(np.diag(transform.T @ covariance @ vectors)), 1.0, rtol=1e-9)


def dependent(kind, rows, seed):
    """Five features of which one is fixed by those before it."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 5)) + rng.choice([0.0, 3.0])
    if kind == "repeated":
        features[:, 1:] = features[:, :1]
    elif kind == "combined":
        features[:, 2] = 0.5 * features[:, 0] - 100.0 * features[:, 1]
    else:
        features[:, 1] = 0.0
    return features


KINDS = ("repeated", "combined", "dead")
factor_of, masked_of = jax.jit(orthonormalising_factor), jax.jit(masked_gradient)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_the_gradient_is_finite_where_features_depend_on_each_other(kind, precision):
    for rows in (40, 5000):
        for seed in range(2):
            features = dependent(kind, rows, seed).astype(precision)
            covariance = features.T @ (features / precision(rows))
            assert np.all(np.isfinite(factor_of(covariance))), (rows, seed)
            for leaf in masked_of(covariance, precision(0.3) * covariance):
                assert leaf.dtype == precision
                assert np.all(np.isfinite(leaf)), (rows, seed)
