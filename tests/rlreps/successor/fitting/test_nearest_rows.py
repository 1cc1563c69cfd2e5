import functools

import numpy as np
import pytest

from rlreps.errors import FitWarning
from rlreps.successor.fitting.basis import ActionBasis, FourierBasis
from rlreps.successor.fitting.improvement import ActionValues, Improvement
from rlreps.successor.fitting.least_squares import LeastSquares, Steps
from rlreps.successor.fitting.nearest_rows import NearestRows

REWARDS = np.array([0.3, -1.0, 0.2, 0.0, 0.5, 2.0, -0.4, 1.0])
"""Reward of arriving at each place of a line; its right end ends episodes."""


@pytest.fixture
def line():
    """Six rows of every place but the last, and of a step to either side."""
    here, action = (each.ravel() for each in np.meshgrid(np.arange(7), [0, 1] * 6))
    there = np.clip(here + 2 * action - 1, 0, 7)
    rows = Steps(
        here.astype(np.float32)[:, None], action, there.astype(np.float32)[:, None], there == 7
    )
    basis = FourierBasis.of(np.arange(8, dtype=np.float32)[:, None], 40, 0.4, 0)
    uniform = functools.partial(np.full, fill_value=0.5, dtype=np.float32)
    return LeastSquares(basis, ActionBasis(2), rows, 0.9, 1e-8, lambda s: uniform((len(s), 2)))


def values_of(policy):
    """Exact values of a policy [7] on the line, by a linear solution."""
    there = np.clip(np.arange(7) + 2 * policy - 1, 0, 7)
    moves = np.eye(8)[there][:, :7]
    return np.linalg.solve(np.eye(7) - 0.9 * moves, REWARDS[there])


@pytest.mark.parametrize("seed", range(3))
def test_nearest_rows_of_a_deterministic_line_give_exact_values(line, seed):
    policy = np.random.default_rng(seed).integers(2, size=7)
    reached = line.recorded.next_observation[:, 0].astype(int)
    found = NearestRows(line, REWARDS[reached])
    value = found.value(lambda states: policy[states[:, 0].astype(int)])
    expected = values_of(policy)[reached[reached < 7]].mean()
    np.testing.assert_allclose(value, expected, atol=0.02)


def test_nearest_rows_tell_the_actions_of_a_box_apart():
    # s' = s + a, rewarded by -s'²; nearest rows of 4,000 are some 0.02 away.
    rng = np.random.default_rng(0)
    state = rng.uniform(-1.0, 1.0, (4_000, 1)).astype(np.float32)
    action = rng.uniform(-0.5, 0.5, (4_000, 1)).astype(np.float32)
    reached = np.clip(state + action, -1.0, 1.0)
    rows = Steps(state, action, reached, np.zeros(4_000, bool))
    box = ActionBasis(None, np.float32([-0.5]), np.float32([0.5]))
    mean = np.array([1.0, 0.0, 1.0 / 3.0], np.float32)
    basis = FourierBasis.of(state, 60, 1.0, 0)
    solution = LeastSquares(basis, box, rows, 0.8, 1e-6, lambda s: np.tile(mean, (len(s), 1)))
    nearest = NearestRows(solution, -np.square(reached[:, 0]).astype(np.float64))
    places = nearest.states.astype(np.float64)
    for policy in (
        lambda states: np.clip(-states, -0.5, 0.5),
        np.zeros_like,
        lambda states: np.full_like(states, 0.5),
    ):
        seen, expected = places, np.zeros(len(places))
        for step in range(40):
            seen = np.clip(seen + policy(seen), -1.0, 1.0)
            expected -= 0.8**step * np.square(seen[:, 0])
        np.testing.assert_allclose(nearest.value(policy), expected.mean(), atol=0.1)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_one_improvement_replaces_worse_values_of_fitted_q_iteration(line, sign, monkeypatch):
    rewards = REWARDS[line.recorded.next_observation[:, 0].astype(int)]
    improved = Improvement(line)
    one = improved.of_weights(line.values(rewards[:, None])[:, :, 0], 0.0)
    monkeypatch.setattr(Improvement, "fitted_q_iteration", lambda self, rewards: fitted)
    fitted = ActionValues([(line.basis, sign * one.parts[0][1])], one.actions, 0.0)
    if sign > 0.0:
        assert improved.values(one, rewards, None) is fitted
        return
    with pytest.warns(FitWarning, match="one improvement is better than fitted Q iteration and"):
        assert improved.values(one, rewards, None) is one


def test_a_policy_below_its_promise_is_told(line, monkeypatch):
    rewards = REWARDS[line.recorded.next_observation[:, 0].astype(int)]
    improved = Improvement(line)
    one = improved.of_weights(line.values(rewards[:, None])[:, :, 0], 0.0)
    monkeypatch.setattr(Improvement, "fitted_q_iteration", lambda self, rewards: fitted)
    fitted = ActionValues(one.parts, one.actions, 20.0)
    with pytest.warns(FitWarning, match="values are not credible: their mean is 2"):
        assert improved.values(one, rewards, None) is fitted
