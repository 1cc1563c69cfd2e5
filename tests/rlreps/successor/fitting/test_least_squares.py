"""Least squares against dense linear algebra on counted models."""

import contextlib
import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import FitWarning, InputError
from rlreps.successor.fitting import basis as bases
from rlreps.successor.fitting import factors, policy_improvement, products, sparse_systems
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import FourierBasis, UnitVectors
from rlreps.successor.fitting.behaviour import estimate_behaviour
from rlreps.successor.fitting.factors import decompose
from rlreps.successor.fitting.least_squares import LeastSquares, Steps
from rlreps.successor.fitting.policy_checks import describe_departure
from rlreps.successor.fitting.policy_improvement import Improvement
from rlreps.successor.fitting.rewards import Task, arrivals

BASES = ("unit vectors", "Fourier")


def indices_of(states):
    return states if states.ndim == 1 else np.rint(states[:, 0]).astype(int)


@pytest.fixture(scope="module", params=[False, True], ids=["endless", "terminal"])
def model(request, make_chain):
    # Of the first 70 seeds, the one whose steps of policy iteration differ most.
    rng, ring = np.random.default_rng(65), np.arange(6)
    counts = rng.integers(1, 6, (6, 2, 6)) * (rng.random((6, 2, 6)) < 0.3)
    counts[ring, 0, (ring + 1) % 6] += 9
    counts[ring, 1, (ring - 1) % 6] += 4
    terminal = np.arange(6) == 5 if request.param else np.zeros(6, bool)
    counts[terminal] = 0
    return make_chain(counts, terminal, 0.9)


@pytest.fixture(scope="module")
def rows(model):
    return Steps.of(model.transitions())


def solved(model, basis, rows, regularisation):
    def behaviour(states):
        return model.behaviour[indices_of(states)]

    return LeastSquares(basis, ActionBasis(2), rows, 0.9, regularisation, behaviour)


@pytest.fixture(scope="module")
def counted(model, rows):
    return solved(model, UnitVectors(6), rows, 1e-12)


@pytest.fixture(scope="module")
def dense(model, rows):
    """The same states as places on a line, with more features than states."""
    places = np.arange(6, dtype=np.float32)[:, None]
    states = {name: places[getattr(rows, name)] for name in ("observation", "next_observation")}
    basis = FourierBasis.of(places, 60, 0.3, 0)
    return solved(model, basis, rows._replace(**states), 1e-6)


@pytest.fixture(params=BASES)
def solution(request, counted, dense):
    return counted if request.param == BASES[0] else dense


def states_of(solution, model):
    """The states that rows start from, as indices and as the solution takes them."""
    states = np.flatnonzero(~model.terminal)
    if isinstance(solution.basis, UnitVectors):
        return states, states
    return states, states[:, None].astype(np.float32)


def test_the_value_of_a_goal_is_the_density_of_the_measure_there(model, rows, solution):
    states, places = states_of(solution, model)
    goals = np.arange(6) if isinstance(solution.basis, UnitVectors) else np.arange(6.0)[:, None]
    for goal in range(6):
        count, rewards = arrivals(solution, goals[goal : goal + 1])
        assert count == (rows.next_observation == goal).sum()
        found = solution.basis.project(places, solution.values(rewards[:, None]))[:, :, 0]
        expected = model.measure()[states, :, goal] / model.reached()[goal]
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
        assert solution.is_terminal(goals[goal : goal + 1]) == model.terminal[goal]


def test_factors_are_the_singular_value_decomposition(model, solution):
    states, places = states_of(solution, model)
    density = (model.measure() / model.reached())[states]
    tried = (model.counts.sum(axis=2) / model.counts.sum())[states]
    whole = np.sqrt(tried)[:, :, None] * density * np.sqrt(model.reached())
    left, values, right = np.linalg.svd(whole.reshape(-1, 6), full_matrices=False)
    found = decompose(solution, 5)
    np.testing.assert_allclose(found.singular_values, values[:5], rtol=1e-3)
    forward = solution.basis.project(places, found.forward)
    goals = np.arange(6) if isinstance(solution.basis, UnitVectors) else np.arange(6.0)[:, None]
    product = forward @ solution.basis.project(goals, found.backward).T
    best = ((left[:, :5] * values[:5]) @ right[:5]).reshape(whole.shape)
    best = best / np.sqrt(tried)[:, :, None] / np.sqrt(model.reached())
    np.testing.assert_allclose(product, best, rtol=2e-3, atol=5e-3)
    moment = np.einsum("sa,sad,sae->de", tried, forward, forward)
    np.testing.assert_allclose(moment, np.diag(values[:5]), atol=1e-2)


@pytest.mark.parametrize("most_fill", [10**9, 0], ids=["factors", "GMRES"])
def test_large_systems_are_decomposed_iteratively(model, rows, counted, most_fill, monkeypatch):
    expected, rewards = decompose(counted, 4), np.eye(6)[rows.next_observation]
    monkeypatch.setattr(factors, "_DENSE", 0)
    monkeypatch.setattr(sparse_systems, "_MOST_FILL", most_fill)
    large = solved(model, UnitVectors(6), rows, 1e-12)
    np.testing.assert_allclose(large.values(rewards), counted.values(rewards), atol=1e-5)
    found = decompose(large, 4)
    np.testing.assert_allclose(found.singular_values, expected.singular_values, rtol=1e-5)
    products = [part.forward @ part.backward.T for part in (found, expected)]
    np.testing.assert_allclose(*products, rtol=1e-4, atol=1e-4)
    assert (decompose(counted, 9).singular_values[6:] == 0.0).all()


def test_an_unsolved_iterative_system_is_refused(model, rows, monkeypatch):
    monkeypatch.setattr(sparse_systems, "_MOST_FILL", 0)
    monkeypatch.setattr(sparse_systems, "_RESIDUAL", 1e-30)
    with pytest.raises(InputError, match="expected 6 states whose equations GMRES solves, got non"):
        solved(model, UnitVectors(6), rows, 1e-12).values(np.ones((len(rows.action), 1)))


def test_blocks_of_rows_change_no_solution_and_report_each_row(model, solution, monkeypatch):
    expected, done = decompose(solution, 3), []
    monkeypatch.setattr(bases, "_BLOCK_NUMBERS", 60 * 7)
    monkeypatch.setattr(
        products, "progress_bar", lambda *_, **__: contextlib.nullcontext(done.append)
    )
    for found, wanted in zip(decompose(dataclasses.replace(solution), 3), expected, strict=True):
        np.testing.assert_allclose(np.abs(found), np.abs(wanted), rtol=1e-4, atol=1e-4)
    counts = isinstance(solution.basis, UnitVectors)
    assert sum(done) == (0 if counts else 4 * len(solution.taken))
    assert len(done) > 3 or counts


def test_the_next_features_of_a_steady_policy_are_means_over_rows_that_go_on(dense):
    policy = np.array([0.3, 0.7])
    rows, now, later = dense.rows, *map(dense.features, dense.rows[::2])
    pairs = np.einsum("na,np->nap", dense.taken, now).reshape(len(now), -1)
    goes_on = 0.9 * ~rows.terminated[:, None] * later
    following = np.concatenate([weight * goes_on for weight in policy], axis=1)
    expected = pairs.T @ following / len(now)
    found = dense.followed(np.tile(policy, (len(now), 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def improved_values(improved, rewards, improvements):
    """Improve on the values of the data's policy."""
    task = Task(improved.solution, rewards)
    return improved.values(improved.of_weights(task.weights, task.constant), rewards, improvements)


def test_fitted_q_iteration_leaves_out_rows_that_memory_does_not_hold(dense, model, monkeypatch):
    states, places = states_of(dense, model)
    rewards = np.array([0.3, 0.0, -1.0, 0.1, 0.0, 1.0])
    reached, count = rewards[indices_of(dense.rows.next_observation)], len(dense.rows.action)
    most = 2 * count // 3
    monkeypatch.setattr(policy_improvement, "_MOST_NUMBERS", most * 2 * 60 * 3)
    improved = Improvement(dense)
    with pytest.warns(FitWarning, match=f"fitted Q iteration takes {most} of {count:,} transition"):
        found = improved.greedy(places, improved_values(improved, reached, None))
    assert [len(each.solution.rows.action) for each in improved._members] == [most] * 3
    expected = model.optimal_policy(rewards)[states]
    assert (found == expected).mean() >= 0.8


def test_the_ridge_is_added_to_the_moments(model, rows):
    # Each (s, a) is divided by its share of the rows plus λ.
    solution, rewards = solved(model, UnitVectors(6), rows, 0.01), np.arange(6.0) - 2.0
    tried = model.counts.sum(axis=2).ravel() / model.counts.sum()
    following = model.probabilities.reshape(12, 6)
    policy = np.einsum("sa,tb->satb", np.ones((6, 2)), model.behaviour)[0, 0]
    next_pairs = (following[:, :, None] * policy).reshape(12, 12)
    system = np.diag(tried + 0.01) - 0.9 * tried[:, None] * next_pairs * ~model.terminal.repeat(2)
    expected = np.linalg.solve(system, tried * (following @ rewards)).reshape(6, 2)
    found = solution.values(rewards[rows.next_observation][:, None])[:, :, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("improvements", [1, 2, 3, None])
def test_improvements_are_policy_iteration(model, rows, solution, improvements):
    rewards = np.array([0.3, 0.0, -1.0, 0.1, 0.0, 1.0])
    states, places = states_of(solution, model)
    counts = isinstance(solution.basis, UnitVectors)
    to_the_end = improvements is None or (improvements > 1 and not counts)
    expected = model.measure() @ rewards
    for _ in range(49 if to_the_end else improvements - 1):
        expected = model.measure(expected.argmax(axis=1)) @ rewards
    expected = expected[states]
    reached = rewards[rows.next_observation]
    found = improved_values(Improvement(solution), reached, improvements)(places)[:, 0]
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))
    # Fitted Q iteration, of dense features, ends once the policy no longer changes.
    if counts or improvements == 1:
        np.testing.assert_allclose(found, expected, atol=5e-3)


def test_fitted_q_iteration_rounds_no_inverse(dense, model, rows):
    # One round is a regression of the rewards, whatever λ: single precision would be 5 % off.
    states, places = states_of(dense, model)
    rewards = 10.0 + np.arange(6.0)
    solution = LeastSquares(dense.basis, dense.actions, dense.rows, 1e-9, 1e-6, dense.behaviour)
    values = Improvement(solution).fitted_q_iteration(rewards[rows.next_observation])
    expected = (model.probabilities @ rewards)[states]
    np.testing.assert_allclose(values(places)[:, 0], expected, atol=0.05)


def test_draws_of_features_share_their_targets(dense):
    # So few features that draws differ; two rounds, since 0.1² is 1 %.
    few = FourierBasis.of(np.arange(6, dtype=np.float32)[:, None], 5, 1.0, 0)
    rows = dense.rows
    rewards = np.sin(rows.next_observation[:, 0]).astype(np.float64)
    solution = LeastSquares(few, dense.actions, rows, 0.1, 1e-6, dense.behaviour)
    found = Improvement(solution).fitted_q_iteration(rewards)
    assert len({other.basis.phases.tobytes() for other, _ in found.parts}) == 3
    constant = 0.0 if rows.terminated.any() else rewards.mean()
    targets = rewards = rewards - constant
    taken = np.eye(2)[rows.action]
    for _ in range(2):
        values = []
        for other, _ in found.parts:
            here, there = (
                other.basis.apply(s).astype(float)
                for s in (rows.observation, rows.next_observation)
            )
            pairs = np.einsum("na,np->nap", taken, here).reshape(len(taken), -1)
            gram = pairs.T @ pairs / len(pairs) + 1e-5 * np.eye(pairs.shape[1])
            weights = np.linalg.solve(gram, pairs.T @ targets / len(pairs)).reshape(2, -1)
            values.append(there @ weights.T)
        least = np.min(values, axis=0)
        best = np.clip(least.max(axis=1), min(0.0, rewards.min() / 0.9), rewards.max() / 0.9)
        targets = rewards + 0.1 * ~rows.terminated * best
    least += constant / 0.9
    np.testing.assert_allclose(found(rows.next_observation)[:, 0], least, atol=1e-3)


def test_fitted_q_iteration_warns_where_it_diverges(dense, monkeypatch):
    # The second state has twice the feature of the first (Tsitsiklis & Van Roy 1996).
    ones = np.ones(100, np.float32)
    monkeypatch.setattr(FourierBasis, "apply", lambda self, states: states)
    ends = np.arange(100) == 99
    rows = Steps(ones[:, None], np.zeros(100, int), 2.0 * ones[:, None], ends)
    basis = FourierBasis(np.zeros(1), np.ones((1, 1)), *np.zeros((2, 0), np.float32))
    diverging = LeastSquares(basis, ActionBasis(1), rows, 0.9, 1e-6, dense.behaviour)
    with pytest.warns(FitWarning, match="diverges: values of 19.6 where rewards allow 10;"):
        Improvement(diverging).fitted_q_iteration(ones)


@pytest.mark.parametrize("constant", [-100.0, 100.0])
def test_far_rewards_and_constants_added_to_all_decide_no_policy(constant):
    # A line of 50 steps to its end, half a step of noise, nothing terminates.
    rng = np.random.default_rng(0)
    place = rng.uniform(size=(4_000, 1)).astype(np.float32)
    action = rng.integers(2, size=4_000)
    after = place + 0.02 * (2 * action[:, None] - 1) + rng.normal(0.0, 0.01, place.shape)
    rows = Steps(place, action, np.clip(after, 0, 1).astype(np.float32), np.zeros(4_000, np.bool_))
    basis = FourierBasis.of(place, 60, 0.25, 0)
    solution = LeastSquares(basis, ActionBasis(2), rows, 0.95, 1e-6, lambda s: np.ones((len(s), 2)))
    rewards = constant + (rows.next_observation[:, 0] > 0.98)
    values = Improvement(solution).fitted_q_iteration(rewards)
    places = np.linspace(0.02, 0.9, 45, dtype=np.float32)[:, None]
    assert Improvement(solution).greedy(places, values).mean() > 0.9


def test_the_policy_of_the_data_is_counted_or_regressed(model, rows, dense):
    actions = ActionBasis(2)
    held = np.arange(len(rows.action)) % 5 == 0
    found = estimate_behaviour(UnitVectors(6), actions, rows, held).weights
    states = ~model.terminal
    np.testing.assert_allclose(found[states], model.behaviour[states], rtol=1e-6)
    share = np.tile(np.bincount(rows.action) / len(rows.action), (model.terminal.sum(), 1))
    np.testing.assert_allclose(found[model.terminal], share, rtol=1e-6)
    rng = np.random.default_rng(0)
    places = rng.integers(6, size=(4000, 1)).astype(np.float32)
    ahead = 0.1 + 0.16 * places[:, 0]
    taken = (rng.random(4000) < ahead).astype(int)
    sample, held = Steps(places, taken, places, np.zeros(4000, bool)), rng.random(4000) < 0.2
    found = estimate_behaviour(dense.basis, actions, sample, held)
    np.testing.assert_allclose(found(places)[:, 1], ahead, atol=0.08)
    # A policy that does not depend on the state stays so.
    coin = sample._replace(action=rng.integers(2, size=4000))
    found = estimate_behaviour(dense.basis, actions, coin, held)
    assert np.ptp(found(places), axis=0).max() < 1e-6


def test_continuous_actions_reach_the_analytic_best_of_a_linear_quadratic_task():
    # s' = s + a, reward −(s' − 0.2)².
    rng = np.random.default_rng(0)
    state = rng.uniform(-1.0, 1.0, (4000, 1)).astype(np.float32)
    action = rng.uniform(-0.5, 0.5, (4000, 1)).astype(np.float32)
    reached = state + action
    rows = Steps(state, action, reached, np.zeros(4000, bool))
    basis = FourierBasis.of(state, 60, 1.0, 0)
    box = ActionBasis(None, np.float32([-0.5]), np.float32([0.5]))
    mean = np.array([1.0, 0.0, 1.0 / 3.0], np.float32)
    solution = LeastSquares(
        basis, box, rows, 0.8, 1e-6, lambda states: np.tile(mean, (len(states), 1))
    )
    rewards = -np.square(reached[:, 0] - 0.2).astype(np.float64)
    values = improved_values(Improvement(solution), rewards, None)
    places = np.linspace(-0.8, 0.8, 9, dtype=np.float32)[:, None]
    assert len(values.parts) == 3
    chosen = Improvement(solution).greedy(places, values)[:, 0]
    # The best is to go to 0.2 at once, as far as the box allows.
    np.testing.assert_allclose(chosen, np.clip(0.2 - places[:, 0], -0.5, 0.5), atol=0.1)


def test_only_so_many_products_of_state_and_box_features_are_solved_for(monkeypatch):
    monkeypatch.setattr(products, "MOST_UNKNOWNS", 12 + 5 * 4 + 3)
    rng = np.random.default_rng(0)
    state = rng.normal(size=(301, 2)).astype(np.float32)
    action = rng.uniform(-1.0, 1.0, (300, 2)).astype(np.float32)
    box = ActionBasis(None, np.float32([-1.0, -1.0]), np.float32([1.0, 1.0]))
    rows = Steps(state[:-1], action, state[1:], np.arange(300) % 50 == 49)
    basis = FourierBasis.of(state, 12, 1.0, 0)
    solution = LeastSquares(basis, box, rows, 0.8, 1e-4, lambda states: box.weights(states / 9.0))
    assert solution.sizes == [12] + 5 * [4]

    def pairs(states, weights):
        """The constant times all 12 features, and others times the last four."""
        features = basis.apply(states).astype(np.float64)
        own = [features * weights[:, :1], *(features[:, 8:] * w[:, None] for w in weights.T[1:])]
        return np.concatenate(own, axis=1)

    now, left = pairs(rows.observation, box.weights(action)), 0.8 * ~rows.terminated[:, None]
    then = left * pairs(rows.next_observation, box.weights(rows.next_observation / 9.0))
    rewards = rng.normal(size=300)
    system = now.T @ (now - then) / 300 + 1e-4 * np.eye(32)
    expected = now @ np.linalg.solve(system, now.T @ rewards / 300)
    values = solution.values(rewards[:, None])[:, :, 0]
    found = np.sum(basis.project(rows.observation, values) * box.weights(action), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    # Where every row ends an episode, fitted Q iteration is a regression on the same features.
    rows = rows._replace(terminated=np.ones(300, bool))
    solution = LeastSquares(basis, box, rows, 0.8, 1e-5, solution.behaviour)
    regression = Improvement(solution).fitted_q_iteration(rewards).parts[0][1]
    np.testing.assert_allclose(regression, solution.values(rewards[:, None])[:, :, 0], atol=1e-3)


def test_ratios_of_visits_are_those_of_the_policy_and_the_rows(model, dense, monkeypatch):
    monkeypatch.setattr(policy_improvement, "_RATIO_RIDGE", 1e-9)
    greedy, rows = Improvement(dense), indices_of(dense.rows.observation)
    values = greedy.fitted_q_iteration(np.sin(dense.rows.next_observation[:, 0]).astype(float))
    policy = greedy.greedy(np.arange(6.0)[:, None], values)
    starts = np.bincount(rows, minlength=6) / len(rows)
    after = starts @ model.measure(policy)[np.arange(6), policy]
    visits = 0.1 * (starts + 0.9 * after * ~model.terminal)
    tried = model.counts.sum(axis=2) / model.counts.sum()
    expected = (dense.rows.action == policy[rows]) * visits[rows] / tried[rows, dense.rows.action]
    np.testing.assert_allclose(greedy.visit_ratios(values), expected, atol=0.02)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_policy_that_leaves_the_data_is_told(leaves):
    # Steps of ±0.1 on a line, rewarded to the right, of which only the left part may be seen.
    rng = np.random.default_rng(0)
    states = rng.uniform(0.0, 0.5 if leaves else 1.0, (3_000, 1)).astype(np.float32)
    actions = rng.integers(2, size=3_000)
    reached = np.clip(states + np.where(actions, 0.1, -0.1)[:, None], 0.0, 1.0).astype(np.float32)
    rows = Steps(states, actions, reached, np.zeros(3_000, bool))
    basis = FourierBasis.of(np.linspace(0.0, 1.0, 200, dtype=np.float32)[:, None], 40, 0.3, 0)
    uniform = functools.partial(np.full, fill_value=0.5, dtype=np.float32)
    solution = LeastSquares(
        basis, ActionBasis(2), rows, 0.95, 1e-6, lambda states: uniform((len(states), 2))
    )
    rewards = reached[:, 0].astype(np.float64)
    improved = Improvement(solution)
    found = describe_departure(improved.visit_ratios(improved.fitted_q_iteration(rewards)))
    assert ("leaves the data" in found) == leaves
    assert leaves or not found


def test_fourier_features_in_single_precision_are_the_same_at_a_large_offset():
    data = np.float32(3e5 + 5.0 * np.random.default_rng(0).normal(size=(200, 2)))
    basis = FourierBasis.of(data, 60, 0.5, 0)
    assert np.abs(basis.mean - np.float32(basis.mean)).max() > 1e-3
    found = np.asarray(basis.program(jnp.asarray(data)))
    np.testing.assert_allclose(found, basis.apply(data), atol=1e-5)
