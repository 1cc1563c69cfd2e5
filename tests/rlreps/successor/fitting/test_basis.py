"""Feature maps of least-squares fits."""

import numpy as np

from rlreps.successor.fitting.basis import FourierBasis


def test_fourier_features_estimate_the_kernel():
    places = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32) * [1.0, 5.0]
    basis = FourierBasis.of(places, 4001, 0.5, 0)
    features = basis.apply(places)
    assert features.shape[1] == basis.num_features == 4001
    scaled = places / (places.std(axis=0) * 0.5 * np.sqrt(2.0))
    squares = np.square(scaled[:, None] - scaled).sum(axis=2)
    # The standard deviation of each is at most 4000 ** -0.5.
    np.testing.assert_allclose(features @ features.T, np.exp(-0.5 * squares) + 1.0, atol=0.08)
    near = basis.nearness(places, places[3:4])
    np.testing.assert_allclose(near, np.exp(-0.5 * squares[:, 3]), atol=1e-5)
