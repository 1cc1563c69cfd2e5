"""Quality of a fit: figures against exact enumeration, warnings of bad fits and of no good one."""

import dataclasses
import re

import gymnasium
import numpy as np
import pytest
import scipy

from rlreps.errors import FitWarning
from rlreps.successor import fit
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import UnitVectors
from rlreps.successor.fitting.factors import Factors, decompose
from rlreps.successor.fitting.held_out import (
    Split,
    compare_sums,
    discounted_sums,
    measure_quality,
    random_cumulants,
)
from rlreps.successor.fitting.held_out import _mean_sum as mean_sum
from rlreps.successor.fitting.least_squares import COUNTED_RIDGE, LeastSquares, Steps
from rlreps.successor.fitting.transitions import Transitions, as_transitions

GAMMA = 0.9


def random_chain(seed, states, actions, branches, stay=0.0):
    """Return transition probabilities, [n, A, n]."""
    rng = np.random.default_rng(seed)
    moves = np.zeros((states, actions, states))
    for pair in np.ndindex(states, actions):
        reached = rng.choice(states, branches, replace=False)
        moves[*pair, reached] = rng.dirichlet(np.ones(branches))
    return (1.0 - stay) * moves + stay * np.eye(states)[:, None]


def steps_of(moves, steps, seed, *, over=0.0, limit=None):
    """Act uniformly; every step terminates with probability ``over``, ``limit`` steps are a cut."""
    rng = np.random.default_rng(seed)
    states, actions, _ = moves.shape
    ladder = moves.cumsum(axis=-1)
    taken, draws = rng.integers(actions, size=steps), rng.random(steps)
    ended = rng.random(steps) < over
    cut = np.zeros(steps, np.bool_)
    before, after, state, time = [], [], 0, 0
    for i in range(steps):
        before.append(state)
        state = min(int((ladder[state, taken[i]] < draws[i]).sum()), states - 1)
        after.append(state)
        time += 1
        cut[i] = not ended[i] and time == limit
        if ended[i] or cut[i]:
            state, time = 0, 0
    data = as_transitions([np.array(before), taken, np.array(after), ended, cut])
    return dataclasses.replace(data, num_states=states)


def measured(data, *, gamma=GAMMA, ridge=None, rank=8):
    split = Split.of(data, 0.2, 0)
    actions = ActionBasis(data.num_actions)
    average = actions.weights(data.action).mean(axis=0)
    solution = LeastSquares(
        UnitVectors(data.num_states),
        actions,
        Steps.of(split.fitted),
        gamma,
        COUNTED_RIDGE / len(data) if ridge is None else ridge,
        lambda states: np.tile(average, (len(states), 1)),
    )
    return measure_quality(split, solution, decompose(solution, rank), 0)


def test_figures_are_those_of_the_exact_chain():
    moves = random_chain(0, states=6, actions=2, branches=6, stay=0.9)
    data = steps_of(moves, 60_000, seed=1)
    found = measured(data, rank=4)
    chain = moves.mean(axis=1)
    kernel = np.repeat(moves.reshape(12, 6), 2, axis=1) / 2  # (s, a) → (s', a').
    cumulants = random_cumulants(data, np.random.default_rng(0))(np.arange(6)).astype(np.float64)
    reward = moves.reshape(12, 6) @ cumulants
    values = np.linalg.solve(np.eye(12) - GAMMA * kernel, reward)
    eigenvalues, vectors = np.linalg.eig(chain.T)
    stationary = np.real(vectors[:, np.argmax(eigenvalues.real)])
    weights = np.repeat(stationary / stationary.sum(), 2) / 2
    # What follows a pair, (s', a'), gives c(s') + γ Q(s', a').
    following = np.repeat(cumulants, 2, axis=0) + GAMMA * values
    noise = weights @ (kernel @ following**2 - (kernel @ following) ** 2) / (1 - GAMMA**2)
    signal = weights @ values**2 - (weights @ values) ** 2
    exact = signal.sum() / (signal + noise).sum()
    assert 0.3 < exact < 0.9
    np.testing.assert_allclose([found.r_squared, found.attainable], exact, atol=0.04)
    assert found.missed == 0.0
    assert abs(found.overfit) < 0.03
    assert found.row_sum_error < 2e-3
    assert found.warnings() == []


def test_overfit_of_single_steps_is_relative_to_the_variance_of_their_rewards():
    rng, shape = np.random.default_rng(2), (5, 2)
    states, taken = (rng.integers(count, size=150) for count in shape)
    reached, ends = rng.integers(5, size=150), np.ones(150, np.bool_)
    data = dataclasses.replace(as_transitions([states, taken, reached, ends]), num_states=5)
    held = data.held_out(0.2, 0)
    rewards = random_cumulants(data, np.random.default_rng(0))(reached).astype(np.float64)
    pair = 2 * states + taken
    means = np.stack([rewards[~held & (pair == place)].mean(axis=0) for place in range(10)])
    squares = np.square(rewards - means[pair])
    excess = squares[held].mean() - squares[~held].mean()
    variance = np.square(rewards[held] - rewards[~held].mean(axis=0)).mean()
    found = measured(data, rank=2)
    np.testing.assert_allclose(found.overfit, excess / variance, rtol=1e-4)
    assert 0.05 < found.overfit < 0.3


def test_starts_are_chosen_by_their_time_alone():
    moves = random_chain(0, states=4, actions=2, branches=4, stay=0.995)
    data = steps_of(moves, 40_000, seed=0, over=0.01, limit=120)
    found = measured(data, gamma=0.97)
    # 99 steps are complete at 0.97. From step 21 on, they are so only where episodes terminate.
    count = data.held_out(0.2, 0).sum()
    assert 0.2 < found.starts / count < 0.4
    assert found.missed == 0.0


def test_without_complete_sums_the_discount_is_smaller():
    chain = random_chain(0, 5, 2, 2)
    found = measured(steps_of(chain, 2_000, seed=0, limit=10))
    # Sums from the first five rows of ten lack 5 %.
    assert found.discount == pytest.approx(0.05 ** (1 / 5))
    assert 150 < found.starts <= 240
    assert 0.2 < found.r_squared < 0.6
    assert found.warnings() == []
    same = measured(steps_of(chain, 2_000, seed=0, limit=10), gamma=found.discount)
    assert (found.starts, found.r_squared) == (same.starts, pytest.approx(same.r_squared))
    found = measured(steps_of(chain, 2_000, seed=0, limit=2))
    assert (found.starts, found.r_squared, found.attainable) == (0, None, None)


def test_states_without_rows_are_counted_unless_they_ended_episodes():
    before = np.tile([0, 1, 2, 0], 100)
    after = np.tile([1, 2, 3, 4], 100)  # 3 ends episodes, nothing starts from 4.
    data = as_transitions([before, np.zeros(400, int), after, after == 3, after == 4])
    found = measured(dataclasses.replace(data, num_states=7))
    assert found.unvisited == pytest.approx(1 / 4)
    assert found.row_sum_error is None
    assert any("no row starts in 25% of the states" in said for said in found.warnings())


def test_equations_at_another_discount_ask_for_the_policy_once():
    asked = []

    def behaviour(states):
        asked.append(len(states))
        return np.ones((len(states), 1))

    steps = Steps.of(steps_of(np.full((4, 1, 4), 0.25), 100, seed=0))
    given = (UnitVectors(4), ActionBasis(1), steps)
    solution = LeastSquares(*given, GAMMA, 1e-9, behaviour)
    cumulants = np.eye(4)[steps.next_observation]
    solution.values(cumulants)
    found = solution.with_discount(0.5).values(cumulants)
    assert asked == [100]
    other = LeastSquares(*given, 0.5, 1e-9, behaviour)
    np.testing.assert_array_equal(found, other.values(cumulants))


def test_effective_rows_of_components():
    data = steps_of(np.full((4, 1, 4), 0.25), 4_000, seed=0)
    split = Split.of(data, 0.2, 0)
    rows = Steps.of(split.fitted)
    solution = LeastSquares(
        UnitVectors(4), ActionBasis(1), rows, GAMMA, 1e-9, lambda s: np.ones((len(s), 1))
    )
    # The constant, the indicator of a state, and a component beyond the rank.
    forward = np.float32([[3, 0, 1], [3, 2, 1], [3, 0, 1], [3, 0, 1]])[:, None]
    factors = Factors(forward, forward[:, 0], np.float32([5.0, 1.0, 0.0]))
    found = measure_quality(split, solution, factors, 0)
    expected = len(rows.action), (rows.observation == 1).sum(), 0
    np.testing.assert_allclose(found.effective_rows, expected, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(1.0, 1.02), (1.0, 1.3, 0.9, 1.1, 1.0)])
def test_the_interval_of_the_excess_is_student_s_over_stretches(sizes):
    rng = np.random.default_rng(0)
    squares = np.repeat(sizes, 40)[:, None]
    values = 2.0 * rng.normal(size=(len(squares), 3))
    offsets = np.sqrt(squares) * rng.choice([-1.0, 1.0], size=values.shape)
    stretch = np.repeat(np.arange(len(sizes)), 40)
    centre = np.array([0.5, 0.0, -0.5])
    bounds = {"noise": np.zeros_like(values)}
    found = compare_sums(values, offsets, bounds, stretch, centre, 1.0, rng)
    means = np.array(sizes) / np.square(values + offsets - centre).mean()
    freedom, error = len(sizes) - 1, scipy.stats.sem(means)
    low, _ = scipy.stats.t.interval(0.95, freedom, means.mean(), error)
    assert found["missed"] == pytest.approx(low)


@pytest.mark.parametrize("ending", ["cut", "terminated"])
def test_the_mean_of_cut_sums_lacks_nothing(ending):
    # Complete sums lack up to 5 % of their terms, here 3 to 5 %.
    data = steps_of(random_chain(0, 3, 2, 3), 4_000, seed=0, limit=320)
    if ending == "terminated":
        none = np.zeros(len(data), np.bool_)
        with pytest.warns(FitWarning, match="12 episodes terminate after exactly 320 rows"):
            data = dataclasses.replace(data, terminated=data.truncated, truncated=none)
    found = mean_sum(data, lambda s: np.ones((len(s), 2)), 0.99)
    left = np.minimum(np.arange(len(data), 0, -1), 320 - np.arange(len(data)) % 320)
    exact = {"cut": 100.0, "terminated": (100.0 * (1.0 - 0.99**left)).mean()}
    np.testing.assert_allclose(found, exact[ending], rtol=1e-5)


def test_stretches_of_one_start_do_not_narrow_the_interval_of_the_excess():
    rng, stretch = np.random.default_rng(0), np.repeat(np.arange(4), [40, 1, 40, 1])
    zero, alarms = np.zeros((82, 2)), 0
    for _ in range(400):
        squares = rng.uniform(0.5, 1.5, size=4)[stretch, None]
        offsets = np.sqrt(squares) * rng.choice([-1.0, 1.0], size=zero.shape)
        # The mean square is 1 in the long run, and the noise explains all of it.
        found = compare_sums(zero, offsets, {"noise": zero + 1.0}, stretch, zero[0], 1.0, rng)
        alarms += found["missed"] > 0.0
    assert alarms <= 24  # 2.5 % and a little for a distribution that is not normal.


@pytest.mark.parametrize(("stretches", "expected"), [(2, 0.0), (20, 1.0 - 1.0 / 0.7)])
def test_noise_exceeds_the_variance_of_sums_only_beyond_chance(stretches, expected):
    rng, stretch = np.random.default_rng(0), np.repeat(np.arange(stretches), 40)
    offsets = np.sqrt(np.where(stretch % 2, 0.5, 0.9))[:, None] * np.ones(2)
    zero = np.zeros_like(offsets)
    found = compare_sums(zero, offsets, {"noise": zero + 1.0}, stretch, zero[0], 1.0, rng)
    assert found["attainable"] == pytest.approx(expected)


# --- Bad fits and good ones -----------------------------------------------------------------------


def random_mdp(steps, seed):
    return steps_of(random_chain(seed, states=200, actions=4, branches=5), steps, seed=seed + 100)


def steady(over=0.0):
    return steps_of(random_chain(0, 20, 2, 3, stay=0.5), 10_000, seed=0, over=over)


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        (lambda: random_mdp(600, 0), {}, "too few rows for the states"),
        (lambda: random_mdp(5_000, 0), {}, "too few rows for the states"),
        (steady, {"ridge": 10.0}, "values are far off.* row sums are 100% from"),
        (lambda: steady(over=0.05), {"ridge": 10.0}, "values are far off(?!.* row sums)"),
    ],
)
def test_bad_fits_are_warned_of(data, options, expected):
    assert re.search(expected, " ".join(measured(data(), **options).warnings()))


@pytest.mark.parametrize("together", [True, False])
def test_counts_of_several_policies_are_advised_to_fit_each(together):
    # On a ring, half of the episodes go on to the left and half to the right, or turn at any time.
    rng = np.random.default_rng(0)
    actions = np.repeat(rng.integers(2, size=(400, 1)), 50, axis=1)
    if not together:
        actions = rng.integers(2, size=(400, 50))
    moves = np.cumsum(2 * actions - 1, axis=1)
    start = rng.integers(10, size=(400, 1))
    after = (start + moves) % 10
    before = np.column_stack([start, after[:, :-1]])
    ends = np.tile(np.arange(50) == 49, 400)
    data = as_transitions([before.ravel(), actions.ravel(), after.ravel(), ends & False, ends])
    assert ("several policies" in " ".join(measured(data).warnings())) == together


def test_excess_errors_of_vectors_may_be_larger_than_those_of_counts():
    found = dataclasses.replace(measured(steady()), overfit=0.5)
    assert "too few rows" in found.warnings()[0]
    assert dataclasses.replace(found, unvisited=None).warnings() == []
    assert "too few rows" in dataclasses.replace(found, unvisited=None, overfit=1.5).warnings()[0]


def test_exact_values_of_one_record_are_not_called_bad():
    # Sums overlap: those of the two blocks held out vary by chance around a mean of their own.
    for seed in range(5):
        moves = random_chain(seed, states=3, actions=3, branches=3)
        found = measured(steps_of(moves, 4_000, seed=seed), gamma=0.99, rank=2)
        assert [line for line in found.warnings() if not line.startswith("records are")] == []


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_records_that_complete_no_sum_are_told(limit):
    data = steps_of(random_chain(0, 20, 2, 3), 2_000, seed=0, limit=limit)
    found = measured(data, gamma=0.99)
    assert (found.starts, found.horizon_share) == (0, 0.0)
    assert any("cut before returns are complete" in line for line in found.warnings())


def test_codes_as_floats_are_compared_with_counts():
    rng, n, count = np.random.default_rng(0), 20, 3_000
    actions, slips = rng.integers(3, size=count), rng.random(count) < 0.2
    places = np.append(0, np.cumsum(actions - 1 + slips)) % n
    circle = 2.0 * np.pi * places / n
    given = {"num_features": 2, "discount": 0.9, "max_features": 60, "regularisation": 1e-6}

    def fitted(seen):
        return fit([seen[:-1], actions, seen[1:], np.zeros(count, bool)], width=1.0, **given)

    codes = rng.permutation(n)[places] + 0.5  # Whole numbers are warned of.
    with pytest.warns(FitWarning, match=r"values are far off the returns: .*numbered\(\)"):
        found = fitted(codes).quality
    assert found.r_squared < 0.5 * found.attainable
    # Warnings are errors, for the same states in a meaningful order.
    fitted(np.column_stack([np.cos(circle), np.sin(circle)]))


def test_a_fit_that_predicts_nothing_is_unknown_if_its_errors_pass_for_noise():
    found = dataclasses.replace(measured(steady()), unvisited=None)
    for r_squared, attainable in ((-0.05, 0.1), (0.05, -0.4), (-0.05, -0.05)):
        other = dataclasses.replace(found, r_squared=r_squared, attainable=attainable)
        assert other.warnings() == []
    bad = dataclasses.replace(found, r_squared=-0.05, attainable=-0.4)
    assert re.search(r"the quality of the fit is unknown: R² .* is -0.05", bad.warnings()[0])
    assert "-0.050; noise allows an unknown part" in bad.lines()[0]
    assert re.search(
        r"R² .* is -0.25, and TD errors", *dataclasses.replace(bad, r_squared=-0.25).warnings()
    )
    few = dataclasses.replace(found, r_squared=-0.7, attainable=0.0)
    assert re.search("unknown: R² .* is -0.70, of too few returns to tell", *few.warnings())
    low = dataclasses.replace(found, r_squared=0.1, attainable=0.5)
    assert dataclasses.replace(low, predictable=0.0).warnings() == []
    low = dataclasses.replace(low, predictable=0.2)
    assert re.search("unknown: R² .* is 0.10, of too few returns to tell", *low.warnings())
    # A fit that is known to be bad is not unknown.
    assert "worse than their mean" in dataclasses.replace(few, worse=0.1).warnings()[0]
    assert "values are far off" in dataclasses.replace(bad, r_squared=-1.2).warnings()[0]


def test_sums_that_hardly_vary_are_compared_with_their_size():
    # State 0 is left once in 5,000 steps: sums are 10 c(0) nearly everywhere.
    moves = np.full((4, 2, 4), 0.0002 / 3)
    moves[:, :, 0] = 0.9998
    data = steps_of(moves, 5_000, seed=0)
    # Shrunk by a thousandth, values are exact enough, and far from their tiny variance.
    found = measured(data, ridge=3e-4, rank=1)
    assert (found.r_squared, found.attainable, found.warnings()) == (None, None, [])
    assert found.lines()[0] == "R² on held-out episodes: unknown, sums hardly vary"
    assert 0.0 < found.missed < 1e-3
    bad = measured(data, ridge=10.0, rank=1).warnings()
    assert re.search(
        r"values are far off the returns: errors on held-out episodes are 9\d%", bad[0]
    )


@pytest.mark.integration
def test_good_fits_are_not_warned_of():
    # Warnings are errors.
    fit(random_mdp(40_000, 0))
    for slippery in (False, True):
        lake = gymnasium.make("FrozenLake-v1", is_slippery=slippery)
        fit(Transitions.collect(lake, steps=20_000))
    # Fewer features than the default for time alone.
    cart_pole = Transitions.collect(gymnasium.make("CartPole-v1"), steps=20_000, seed=0)
    fit(cart_pole, max_features=200)


def test_records_that_are_cut_after_a_few_steps_do_not_judge_a_long_horizon():
    rng, rows = np.random.default_rng(0), 2_000
    cut = np.arange(rows) % 5 == 4
    states = rng.integers(4, size=rows)
    after = np.append(states[1:], 0)
    after[cut] = rng.integers(4, size=cut.sum())
    data = as_transitions([states, np.zeros(rows, int), after, np.zeros(rows, bool), cut])
    with pytest.warns(FitWarning, match="too short to judge the fit.* discount of 0.22;"):
        rep = fit(data, num_features=2, discount=0.98)
    assert rep.quality.horizon_share == pytest.approx(0.02 / (1.0 - 0.05**0.5))


def test_sums_along_episodes_end_with_them():
    cumulants = np.random.default_rng(0).normal(size=(7, 2))
    found = discounted_sums(cumulants, np.array([0, 0, 1, 1, 0, 0, 1], bool), 0.7)
    for row, last in enumerate([2, 2, 2, 3, 6, 6, 6]):
        powers = 0.7 ** np.arange(last + 1 - row)
        np.testing.assert_allclose(found[row], powers @ cumulants[row : last + 1], atol=1e-12)
    whole = discounted_sums(np.array([[0], [0], [1]]), np.array([False, False, True]), 0.9)
    np.testing.assert_allclose(whole[:, 0], [0.81, 0.9, 1.0])
