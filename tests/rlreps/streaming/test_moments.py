"""Variances of a stream along turning components, against NumPy's weighted covariances."""

import numpy as np
import pytest

from rlreps.streaming.moments import no_moments, take_in

FEATURES = 5


def rows_and_basis(count, k, seed=0):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, FEATURES)) * np.arange(1, FEATURES + 1) + 7.0
    # A trend, so that weights matter.
    rows *= np.linspace(0.5, 2.0, count)[:, None]
    return rows, np.linalg.qr(random.normal(size=(FEATURES, k)))[0].T


def streamed(rows, basis, sizes, fading):
    moments, components = no_moments(FEATURES, len(basis)), np.zeros_like(basis)
    for batch in np.split(rows, np.cumsum(sizes)):
        moments, components = take_in(moments, components, basis, batch, fading)
    return moments, components


@pytest.mark.parametrize("fading", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("k", [2, FEATURES])
def test_rows_weigh_by_their_place_in_the_stream(fading, k):
    rows, basis = rows_and_basis(60, k)
    moments, components = streamed(rows, basis, [1] * 59, fading)
    weights = (np.arange(1, 61) / 60) ** fading
    covariance = np.cov(rows.T, aweights=weights)
    along = np.linalg.eigvalsh(basis @ covariance @ basis.T)[::-1]
    np.testing.assert_allclose(moments.variances, along, rtol=1e-9)
    np.testing.assert_allclose(moments.total_variance, np.trace(covariance), rtol=1e-9)
    np.testing.assert_allclose(moments.mean, np.average(rows, axis=0, weights=weights), rtol=1e-9)
    np.testing.assert_allclose(
        components @ covariance @ components.T, np.diag(along), atol=1e-8 * along[0]
    )
    assert moments.rows_seen == 60
    assert (components[np.arange(k), np.argmax(np.abs(components), axis=1)] > 0.0).all()
