"""Features of actions, and which actions the data support."""

import numpy as np
import pytest
from scipy.stats import norm

from rlreps.successor.fitting.actions import ActionBasis


def test_actions_of_a_box_have_quadratic_features():
    box = ActionBasis(None, np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
    rng = np.random.default_rng(0)
    actions = rng.uniform(box.low, box.high, (50, 2)).astype(np.float32)
    x, y = (actions / [2.0, 0.5] - [0.0, 1.0]).T
    design = np.column_stack([np.ones(50), x, y, x * x, x * y, y * y])
    found = box.weights(actions)
    assert found.shape == (50, box.size)
    np.testing.assert_allclose(found, design, atol=1e-6)
    # Candidates stay in the range of the data.
    (candidates,) = box.candidates(np.float32([[-2.0, 0.5], [1.0, 1.0]])).actions
    assert ((candidates >= [-2.0, 0.5]) & (candidates <= 1.0)).all()
    for corner in ([-2.0, 0.5], [1.0, 0.5], [-2.0, 1.0], [1.0, 1.0], [-0.5, 0.75]):
        assert (candidates == corner).all(axis=1).any()


def test_discrete_actions_are_likely_with_a_tenth_of_the_largest_probability():
    actions = ActionBasis(3)
    candidates = actions.candidates(np.array([0, 2, 2]))  # Action 1 was never taken.
    expected = np.float32([[0.5, 0.5, 0.0], [0.08, 0.02, 0.9], [0.2, 0.3, 0.5]])
    found = actions.find_likely(candidates, expected)
    np.testing.assert_array_equal(found[:, 0], [[True, False], [False, True], [True, True]])


@pytest.mark.parametrize("k", [1, 2, 5])
def test_actions_of_a_box_are_likely_by_their_normal_density(k):
    rng = np.random.default_rng(k)
    box = ActionBasis(None, np.full(k, -1.0, np.float32), np.ones(k, np.float32))
    candidates = box.candidates(np.stack([box.low, box.high]))
    mean, deviation = rng.uniform(-1.5, 1.5, (200, k)), rng.uniform(0.1, 0.6, (200, k))
    products = mean[:, :, None] * mean[:, None] + np.square(deviation)[:, :, None] * np.eye(k)
    places = [(i, j) for i in range(k) for j in range(i, k) if k < 4 or i == j]
    seconds = np.stack([products[:, i, j] for i, j in places], axis=1)
    found = box.find_likely(candidates, np.column_stack([np.ones(200), mean, seconds]))
    density = norm(mean[:, None, None], deviation[:, None, None]).pdf(candidates.actions)
    # One group chooses all numbers together; of several, each chooses its own.
    alone = len(candidates.actions) == 1
    density = density.prod(axis=3) if alone else np.einsum("ngcg->ngc", density)
    largest = density.max(axis=2, keepdims=True)
    np.testing.assert_array_equal(found, density >= 0.1 * largest)
    assert found.any(axis=2).all()
    assert not found.all()


def test_bounds_far_from_the_data_do_not_change_which_actions_are_likely():
    mean, variance = np.random.default_rng(0).uniform(-1.0, 1.0, 50), 0.04**2
    found = []
    for bound in (1.0, 50.0):
        box = ActionBasis(None, np.float32([-bound]), np.float32([bound]))
        candidates = box.candidates(np.float32([[-1.0], [1.0]]))
        seconds = (mean**2 + variance) / bound**2
        found.append(
            box.find_likely(candidates, np.column_stack([np.ones(50), mean / bound, seconds]))
        )
    np.testing.assert_array_equal(*found)
    assert not found[0].all()


def test_actions_of_many_numbers_are_maximised_number_by_number():
    rng = np.random.default_rng(0)
    box = ActionBasis(None, np.float32([-2.0, 0.0, 0.0, -1.0]), np.float32([2.0, 1.0, 3.0, 1.0]))
    corners = np.stack([box.low, box.high])
    found = box.candidates(corners)
    assert found.actions.shape == (4, 9, 4)
    weights = rng.normal(size=(20, box.size))
    values = np.einsum("nm,gcm->ngc", weights, found.weights)
    best = found.best(values)
    grid = np.stack(np.meshgrid(*np.linspace(*corners, 9).T), axis=-1).reshape(-1, 4)
    every = weights @ box.weights(grid).T
    np.testing.assert_array_equal(best, np.float32(grid[every.argmax(axis=1)]))
    np.testing.assert_allclose(values.max(axis=2).sum(axis=1), every.max(axis=1), rtol=1e-5)
