"""Reconstruction errors: exact losses, losses of any span, errors of single rows."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps.experiments.reconstruction import exact_components, reconstruction_errors

DIGITS = (load_digits().images[:600].reshape(600, 64) / 16).astype(np.float32)


@pytest.fixture(scope="module")
def digits():
    return exact_components(DIGITS)


def test_exact_losses_are_those_of_scikit_learns_components(digits):
    rows = DIGITS.astype(np.float64)
    for k in (1, 5, 40):
        exact = PCA(k, svd_solver="full").fit(rows)
        residuals = rows - exact.inverse_transform(exact.transform(rows))
        expected = np.mean(np.sum(residuals**2, axis=1))
        assert digits.exact_loss(k) == pytest.approx(expected, rel=1e-5)
        assert digits.loss(exact.components_.T) == pytest.approx(expected, rel=1e-5)
        errors = reconstruction_errors(digits.rows, digits.basis[:, :k])
        np.testing.assert_allclose(errors, np.sum(residuals**2, axis=1), rtol=1e-4, atol=1e-6)


def test_a_loss_depends_on_the_span_alone(digits):
    generator = np.random.default_rng(1)
    components = generator.normal(size=(64, 4))
    span, _ = np.linalg.qr(components)
    residuals = digits.rows - digits.rows @ span @ span.T
    same = digits.loss(components)
    assert same == pytest.approx(np.mean(np.sum(residuals**2, axis=1)), rel=1e-5)
    mixing = generator.normal(size=(4, 4)) + 3.0 * np.eye(4)
    assert digits.loss(1e-20 * components @ mixing) == pytest.approx(same, rel=1e-12)
    twice = np.concatenate([components, components[:, :1]], axis=1)
    assert digits.loss(twice) == pytest.approx(same, rel=1e-12)
    assert math.isnan(digits.loss(components * np.nan))


def test_a_run_that_diverged_counts_with_the_whole_variance():
    signs = np.asarray([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], np.float32)
    # Of variances 9, 4 and 1.
    corners = exact_components(signs * np.float32([3, 2, 1]) + np.float32(7))
    np.testing.assert_allclose(corners.mean, 7.0)
    np.testing.assert_allclose(corners.counted([2.0, math.nan]), [2.0, 14.0])
    np.testing.assert_allclose(corners.excess_percent([5.0, 10.0, math.nan], 1), [0, 100, 180])
