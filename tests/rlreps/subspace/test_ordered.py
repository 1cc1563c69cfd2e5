"""Ordered spectra and the masked gradient, against Gram-Schmidt, SciPy and autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.subspace.ordered import (
    first_dependent_feature,
    masked_gradient,
    ordered_spectrum,
    orthonormalising_factor,
    ritz_spectrum,
)

NUM_STATES, NUM_FEATURES = 12, 4


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def problem(seed=0, num_features=NUM_FEATURES):
    """(u [n, d], measure [n], an operator [n, n] symmetric in the measure)."""
    rng = np.random.default_rng(seed)
    measure = rng.dirichlet(np.full(NUM_STATES, 3.0))
    form = rng.normal(size=(NUM_STATES, NUM_STATES))
    operator = (form + form.T) / measure[:, None]
    return rng.normal(size=(NUM_STATES, num_features)), measure, operator


def moments(features, measure, operator):
    weighted = features * measure[:, None]
    return weighted.T @ features, weighted.T @ (operator @ features)


def gram_schmidt(features, measure):
    """Columns orthonormalised one after the other, in NumPy or JAX."""
    columns = []
    for index in range(features.shape[1]):
        column = features[:, index]
        for other in columns:
            column = column - (measure * other * features[:, index]).sum() * other
        columns.append(column / (measure * column * column).sum() ** 0.5)
    return columns


def test_the_ordered_spectrum_holds_rayleigh_quotients_of_gram_schmidts_functions():
    features, measure, operator = problem()
    spectrum = ordered_spectrum(*map(jnp.asarray, moments(features, measure, operator)))
    functions = np.stack(gram_schmidt(features, measure), axis=1)
    np.testing.assert_allclose(features @ spectrum.transform, functions, rtol=1e-10, atol=1e-10)
    quotients = [f @ (measure * (operator @ f)) for f in functions.T]
    np.testing.assert_allclose(spectrum.eigenvalues, quotients, rtol=1e-10)


def test_the_first_eigenvalues_do_not_depend_on_later_features():
    features, measure, operator = problem()
    whole = ordered_spectrum(*map(jnp.asarray, moments(features, measure, operator)))
    for count in range(1, NUM_FEATURES):
        part = ordered_spectrum(*map(jnp.asarray, moments(features[:, :count], measure, operator)))
        np.testing.assert_allclose(part.eigenvalues, whole.eigenvalues[:count], rtol=1e-12)


def test_triangular_maps_and_scales_of_features_leave_the_ordered_eigenvalues_as_they_are():
    features, measure, operator = problem()
    expected = ordered_spectrum(*map(jnp.asarray, moments(features, measure, operator)))
    rng = np.random.default_rng(1)
    triangle = np.tril(rng.normal(size=(NUM_FEATURES, NUM_FEATURES)), -1)
    triangle += np.diag(rng.uniform(0.5, 2.0, NUM_FEATURES))
    for mixing in (triangle, np.diag([1e-6, 1.0, 1e5, -3.0])):
        mixed = ordered_spectrum(*map(jnp.asarray, moments(features @ mixing.T, measure, operator)))
        np.testing.assert_allclose(mixed.eigenvalues, expected.eigenvalues, rtol=1e-9)
    # A map that is not triangular changes the order, and with it the single values.
    swapped = ordered_spectrum(*map(jnp.asarray, moments(features[:, ::-1], measure, operator)))
    assert np.abs(swapped.eigenvalues - expected.eigenvalues).max() > 0.1
    np.testing.assert_allclose(swapped.eigenvalues.sum(), expected.eigenvalues.sum(), rtol=1e-9)


def test_the_ritz_spectrum_is_scipys_generalised_eigenproblem():
    covariance, operator_matrix = moments(*problem())
    spectrum = ritz_spectrum(jnp.asarray(covariance), jnp.asarray(operator_matrix))
    values, vectors = scipy.linalg.eigh(operator_matrix, covariance)
    np.testing.assert_allclose(spectrum.eigenvalues, values, rtol=1e-9)
    transform = np.asarray(spectrum.transform)
    np.testing.assert_allclose(transform.T @ covariance @ transform, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(np.abs(np.diag(transform.T @ covariance @ vectors)), 1.0, rtol=1e-9)


def gradient_from(masked, features, measure, operator):
    slope = operator @ features @ np.asarray(masked.images) - features @ np.asarray(masked.features)
    return 2.0 * measure[:, None] * slope


@pytest.mark.parametrize("seed", range(3))
def test_the_masked_gradient_is_autodiff_of_each_quotient_in_its_own_feature_alone(seed):
    features, measure, operator = problem(seed)

    def quotient(index, column):
        held = jnp.asarray(features).at[:, index].set(column)
        function = gram_schmidt(held[:, : index + 1], measure)[-1]
        return (measure * function * (operator @ function)).sum()

    expected = np.stack(
        [jax.grad(quotient, argnums=1)(k, jnp.asarray(features[:, k])) for k in range(4)], axis=1
    )
    masked = masked_gradient(*map(jnp.asarray, moments(features, measure, operator)))
    found = gradient_from(masked, features, measure, operator)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_the_masked_gradient_has_the_papers_closed_form():
    # Pfau et al. 2019, below Eq. 12: the derivatives of tr Λ in Π and in Σ.
    features, measure, operator = problem()
    covariance, operator_matrix = moments(features, measure, operator)
    factor = np.linalg.cholesky(covariance)
    inverse = np.linalg.inv(factor)
    lengths = np.diag(1.0 / np.diag(factor))
    inner = inverse @ operator_matrix @ inverse.T
    masked = masked_gradient(jnp.asarray(covariance), jnp.asarray(operator_matrix))
    np.testing.assert_allclose(masked.images, inverse.T @ lengths, rtol=1e-10, atol=1e-12)
    expected = inverse.T @ np.triu(inner @ lengths)
    np.testing.assert_allclose(masked.features, expected, rtol=1e-9, atol=1e-10)


def test_at_eigenfunctions_the_masked_gradient_is_zero_at_any_few_points():
    features, _, _ = problem()
    symmetric = (features @ features.T) / NUM_STATES
    values, vectors = np.linalg.eigh(symmetric)
    functions, values = vectors[:, -NUM_FEATURES:], values[-NUM_FEATURES:]
    points = np.random.default_rng(0).integers(0, NUM_STATES, size=9)
    at_points = functions[points]
    images = at_points * values
    masked = masked_gradient(
        jnp.asarray(at_points.T @ at_points / 9), jnp.asarray(at_points.T @ images / 9)
    )
    slope = images @ np.asarray(masked.images) - at_points @ np.asarray(masked.features)
    assert np.abs(images @ np.asarray(masked.images)).max() > 0.1
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)


def dependent(kind, rows, num_features, seed):
    """Features of which the one whose index comes with them is fixed by those before it."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, num_features)) + rng.choice([0.0, 3.0])
    if kind == "repeated":
        features[:, 1:] = features[:, :1]
        return features, 1
    if kind == "combined":
        features[:, 2] = 0.5 * features[:, 0] - 100.0 * features[:, 1]
        return features, 2
    if kind == "dead":
        features[:, 1] = 0.0
        return features, 1
    features[:] = rng.normal(size=num_features)
    return features, 1


KINDS = ("repeated", "combined", "dead", "constant")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_the_gradient_is_finite_where_features_depend_on_each_other(kind, precision):
    factor_of, masked_of = jax.jit(orthonormalising_factor), jax.jit(masked_gradient)
    for rows in (40, 700, 5000):
        for seed in range(6):
            features, _ = dependent(kind, rows, 5, seed)
            features = jnp.asarray(features.astype(precision))
            covariance = jnp.matmul(features.T, features / precision(rows))
            assert np.all(np.isfinite(factor_of(covariance))), (rows, seed)
            for leaf in masked_of(covariance, 0.3 * covariance):
                assert leaf.dtype == precision
                assert np.all(np.isfinite(leaf)), (rows, seed)


def test_a_dependent_feature_leaves_those_before_it_as_they_are():
    features, _ = dependent("combined", 5000, 4, 0)
    covariance = features.T @ features / 5000
    factor = orthonormalising_factor(jnp.asarray(covariance))
    expected = np.linalg.inv(np.linalg.cholesky(covariance[:2, :2]))
    np.testing.assert_allclose(factor[:2, :2], expected, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_the_first_dependent_feature_is_named(kind, precision):
    for seed in range(6):
        features, index = dependent(kind, 128, 5, seed)
        features = features.astype(precision)
        found = first_dependent_feature(features.T @ features / precision(128))
        if kind == "constant":
            # The variance of a constant carries a systematic rounding: a later one may be named.
            assert found is not None
            assert found >= index
        else:
            assert found == index


def test_fewer_points_than_features_leave_the_feature_after_them_dependent():
    features = np.random.default_rng(0).normal(size=(3, 5))
    assert first_dependent_feature(features.T @ features / 3) == 3


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_independent_features_are_not_accused_whatever_their_scale(precision):
    features = np.random.default_rng(0).normal(size=(200, 6)) * np.geomspace(1e-8, 1e8, 6)
    # Two features an angle of 1/100 apart are ill conditioned, but not dependent.
    features[:, 1] = features[:, 0] / features[:, 0].std() + 0.01 * features[:, 1] / 1e-5
    features = features.astype(precision)
    assert first_dependent_feature(features.T @ features / precision(200)) is None
