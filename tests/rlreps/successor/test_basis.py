"""Feature maps of least-squares fits."""

import numpy as np

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
