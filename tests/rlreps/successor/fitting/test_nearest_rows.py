import functools

import numpy as np
import pytest

from rlreps.errors import recorded_warnings
from rlreps.successor import fit
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import FourierBasis
from rlreps.successor.fitting.least_squares import LeastSquares, Steps
from rlreps.successor.fitting.nearest_rows import NearestRows
from rlreps.successor.fitting.policy_improvement import ActionValues, Improvement
from rlreps.successor.fitting.transitions import as_transitions

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
    nearest = NearestRows(line, REWARDS[reached])
    found = nearest.returns(lambda states: policy[states[:, 0].astype(int)])
    assert len(found) == len(reached)
    expected = values_of(policy)[nearest.starts[:, 0].astype(int)]
    # Walks that were cut, at 0.9³⁸ = 0.018, count as if they went on.
    np.testing.assert_allclose(found, expected, atol=0.1)


def on_a_segment(least, most):
    """Rows s' = s + a with s in an interval and |a| <= 0.5, rewarded by -s'²."""
    rng = np.random.default_rng(0)
    state = rng.uniform(least, most, (4_000, 1)).astype(np.float32)
    action = rng.uniform(-0.5, 0.5, (4_000, 1)).astype(np.float32)
    rows = Steps(state, action, state + action, np.zeros(4_000, bool))
    box = ActionBasis(None, np.float32([-0.5]), np.float32([0.5]))
    mean = np.array([1.0, 0.0, 1.0 / 3.0], np.float32)
    basis = FourierBasis.of(state, 60, 1.0, 0)
    solution = LeastSquares(basis, box, rows, 0.8, 1e-6, lambda s: np.tile(mean, (len(s), 1)))
    return NearestRows(solution, -np.square(rows.next_observation[:, 0]))


@pytest.mark.parametrize("gain", [-1.0, -0.5, -0.25])
def test_walks_tell_the_actions_of_a_box_apart(gain):
    def choose(states):
        return np.clip(gain * states, -0.5, 0.5)

    # Nearest rows of 4,000 are some 0.02 away.
    nearest = on_a_segment(-8.0, 8.0)
    inner = np.abs(nearest.starts[:, 0]) < 1.0
    seen, expected = nearest.starts.astype(np.float64), np.zeros(len(inner))
    for step in range(60):
        seen = seen + choose(seen)
        expected -= 0.8**step * np.square(seen[:, 0])
    found = nearest.returns(choose)
    np.testing.assert_allclose(found[inner], expected[inner], rtol=0.1, atol=0.5)
    assert inner.sum() > 20


def test_walks_leave_the_data_and_return():
    # Actions depend on the place: only a walk that is beyond 1 turns back.
    nearest, visited = on_a_segment(-1.0, 1.0), []

    def choose(states):
        visited.append(states[:, 0].max())
        return np.where(states > 2.0, -0.5, 0.5).astype(np.float32)

    nearest.returns(choose)
    assert 2.0 < max(visited) < 2.6
    # Offsets shrink: without it, walks would come to 10, and to 3.4 if a fifth were lost.
    nearest.returns(lambda states: visited.append(states.max()) or np.full_like(states, 0.5))
    assert 4.0 < max(visited) < 6.0


def test_equal_rows_are_drawn_by_chance_and_alike_for_all_policies():
    # Half of the rows from 0 are rewarded and stay; the others end.
    still, ended = np.zeros((400, 1), np.float32), np.arange(400) >= 200
    basis = FourierBasis.of(np.arange(3, dtype=np.float32)[:, None], 40, 0.4, 0)
    rows = Steps(still, np.zeros(400, int), still, ended)
    always = np.ones(1, np.float32)
    solution = LeastSquares(
        basis, ActionBasis(1), rows, 0.5, 1e-8, lambda s: np.tile(always, (len(s), 1))
    )
    nearest = NearestRows(solution, 1.0 * ~ended)
    found = nearest.returns(lambda states: np.zeros(len(states), int))
    # 1/2 + 1/8 + ..., six steps, with a standard deviation below 1.
    np.testing.assert_allclose(found.mean(), 2.0 / 3.0, atol=0.2)
    assert len(np.unique(found)) == 7
    again = nearest.returns(lambda states: np.zeros(len(states), int))
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("length", [10, 100])
@pytest.mark.parametrize("fixed", [False, True])
def test_walks_start_in_different_states_where_episodes_start(length, fixed):
    # Episodes start below zero; the next one starts elsewhere, or where one terminated.
    place = np.resize(np.arange(length), 3_001).astype(np.float32)
    starts = place == 0.0
    place[starts] = -1.0 if fixed else -1.0 - np.arange(starts.sum()) / 1024.0
    ended = (place[:-1] == length - 1) & (np.arange(3_000) % 200 < 100)
    reached = np.where((place[:-1] == length - 1) & ~ended, length, place[1:])
    rows = Steps(place[:-1, None], np.zeros(3_000, int), reached[:, None], ended)
    basis = FourierBasis.of(rows.observation, 40, 0.4, 0)
    solution = LeastSquares(basis, ActionBasis(1), rows, 0.5, 1e-8, lambda s: np.ones((len(s), 1)))
    found = NearestRows(solution, np.zeros(3_000)).starts[:, 0]
    assert len(found) == 256
    few = 1 if fixed else min(3_000 // length, 256)
    assert (found[:few] < 0.0).all()
    assert len(np.unique(found[:few])) == few
    assert few == 256 or found[few:].mean() > 0.2 * length


def test_images_become_those_of_the_nearest_row():
    rows = Steps(*(np.arange(n, n + 4, dtype=np.uint8).reshape(4, 1, 1) for n in (0, 0, 1, 0)))
    rows = rows._replace(action=np.zeros(4, int), terminated=np.arange(4) == 3)
    basis = FourierBasis.of(np.arange(5, dtype=np.float32)[:, None], 40, 0.4, 0)
    always = np.ones(1, np.float32)
    solution = LeastSquares(
        basis, ActionBasis(1), rows, 0.9, 1e-8, lambda s: np.tile(always, (len(s), 1))
    )
    nearest = NearestRows(solution, np.array([1.0, 2.0, 4.0, 8.0]))
    found = nearest.returns(lambda states: np.zeros(len(states), int))
    known = np.array([1 + 0.9 * (2 + 0.9 * (4 + 0.9 * 8)), 2 + 0.9 * (4 + 0.9 * 8), 4 + 0.9 * 8, 8])
    np.testing.assert_allclose(found, known[nearest.starts.ravel()])


REPLACED = "one improvement is better than fitted Q iteration and"


@pytest.mark.parametrize(
    ("sign", "constant", "said"),
    [(-1.0, 0.0, REPLACED), (1.0, 0.0, None), (1.0, 20.0, "not credible: their mean is 2")],
)
def test_near_rows_judge_values_of_fitted_q_iteration(line, sign, constant, said, monkeypatch):
    rewards = REWARDS[line.recorded.next_observation[:, 0].astype(int)]
    improved = Improvement(line)
    one = improved.of_weights(line.values(rewards[:, None])[:, :, 0], 0.0)
    fitted = ActionValues([(line, sign * one.parts[0][1])], one.actions, constant)
    monkeypatch.setattr(Improvement, "fitted_q_iteration", lambda self, rewards: fitted)
    with recorded_warnings() as warned:
        assert improved.values(one, rewards, None) is (one if said == REPLACED else fitted)
    assert [said in line for line in warned] == [True] * (said is not None)


@pytest.mark.parametrize("cut", [0, pytest.param(1, marks=pytest.mark.integration), 3])
def test_rows_that_end_are_judged_by_their_rewards(cut):
    rng = np.random.default_rng(0)
    state = rng.normal(size=(1_000, 3)).astype(np.float32)
    action, ended = rng.integers(3, size=1_000), np.arange(1_000) >= cut
    data = as_transitions((state, action, state, ended, ~ended))
    rep = fit(data, discount=0.9)
    policy = rep.policy(rep.task(state, state[np.arange(1_000), action]), improvements=None)
    assert (policy(state) == state.argmax(axis=1)).mean() > 0.9
