"""Feature maps of least-squares fits."""

import numpy as np
import pytest

from rlreps.successor.basis import ActionBasis, FourierBasis


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


@pytest.mark.parametrize("count", [1, 7, 5000])
def test_fourier_features_are_cosines_to_the_rounding_of_single_precision(count):
    places = np.random.default_rng(0).normal(size=(count, 2, 3)).astype(np.float32)
    basis = FourierBasis.of(np.random.default_rng(1).normal(size=(50, 2, 3)), 65, 0.5, 0)
    scaled = (places.reshape(count, 6).astype(np.float64) - basis.mean) / basis.scale
    waves = np.sqrt(2 / 64) * np.cos(scaled @ basis.frequencies + basis.phases)
    features = basis.apply(places)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, np.append(waves, np.ones((count, 1)), axis=1), atol=2e-6)
    weights = np.random.default_rng(2).normal(size=(65, 2, 3)).astype(np.float32)
    found = basis.projections(places, weights, weights[:, :, 0])
    np.testing.assert_allclose(found[0], np.tensordot(features, weights, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], features @ weights[:, :, 0], rtol=1e-4, atol=1e-5)


def test_actions_of_a_box_have_quadratic_features():
    box = ActionBasis(None, np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
    rng = np.random.default_rng(0)
    actions = rng.uniform(box.low, box.high, (50, 2)).astype(np.float32)
    x, y = (actions / [2.0, 0.5] - [0.0, 1.0]).T
    design = np.column_stack([np.ones(50), x, y, x * x, x * y, y * y])
    found = box.weights(actions)
    assert found.shape == (50, box.size)
    np.testing.assert_allclose(found, design, atol=1e-6)
    candidates = box.candidates.actions
    assert ((candidates >= box.low) & (candidates <= box.high)).all()
    for corner in ([-2.0, 0.0], [2.0, 0.0], [-2.0, 1.0], [2.0, 1.0], [0.0, 0.5]):
        assert (candidates == corner).all(axis=1).any()
