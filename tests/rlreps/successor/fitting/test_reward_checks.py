"""Rewards that belong to other rows are told, and sound ones are not."""

import numpy as np
import pytest

from rlreps.errors import FitWarning, recorded_warnings
from rlreps.successor.fitting.fit import fit
from rlreps.successor.fitting.reward_checks import _Regressions
from rlreps.successor.fitting.transitions import Transitions


@pytest.fixture(scope="module", params=["vectors", "indices"])
def fitted(request):
    """A walk on a ring in episodes of 40 rows, as points or as 20 places; and its rewards."""
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=(100, 40))
    moves = (2 * actions - 1) * rng.integers(1, 3, size=actions.shape)
    places = np.cumsum(np.column_stack([rng.integers(20, size=100), moves]), axis=1) % 20
    if request.param == "vectors":
        angles = places * np.pi / 10.0 + 0.01 * rng.normal(size=places.shape)
        seen = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    else:
        seen = places
    before, after = (some.reshape(-1, *seen.shape[2:]) for some in (seen[:, :-1], seen[:, 1:]))
    cut = np.arange(1, 4_001) % 40 == 0
    data = Transitions(
        observation=before,
        action=actions.reshape(-1),
        next_observation=after,
        terminated=np.zeros(4_000, bool),
        truncated=cut,
    )
    table = np.cos(np.arange(20) * 3.0 * np.pi / 10.0)
    rewards = {
        name: table[each.reshape(-1)]
        for name, each in (("start", places[:, :-1]), ("next", places[:, 1:]))
    }
    rewards["action"] = rewards["next"] + 0.5 * actions.reshape(-1)
    options = {"width": 0.3, "max_features": 100} if request.param == "vectors" else {}
    return fit(data, num_features=4, discount=0.9, **options), data, rewards


@pytest.mark.parametrize(("shift", "row"), [(-1, "after"), (1, "before")])
def test_rewards_of_the_row_beside_are_told(fitted, shift, row):
    rep, data, rewards = fitted
    for name in ("next", "action"):
        with pytest.warns(FitWarning, match=f"seem to be those of the rows {row}"):
            rep.task(data.next_observation, np.roll(rewards[name], shift))


def test_rewards_of_arriving_that_are_given_with_starts_are_told(fitted):
    rep, data, rewards = fitted
    with pytest.warns(FitWarning) as told:
        rep.task(data.observation, rewards["next"])
    assert any("give transitions.next_observation" in str(each.message) for each in told)


def test_nothing_is_said_of_rewards_of_their_rows(fitted):
    rep, data, rewards = fitted  # Warnings are errors here.
    bonus = rewards["next"] + 3.0 * (np.arange(4_000) % 40 == 0)  # No rows before decide it.
    for found in (*rewards.values(), bonus):
        rep.task(data.next_observation, found)
    rep.task(data.observation, rewards["start"])


def test_rewards_of_other_rows_are_told(fitted):
    rep, data, rewards = fitted
    for name in ("next", "action"):
        told = 0
        for seed in range(10):
            shuffled = np.random.default_rng(seed).permutation(rewards[name])
            with recorded_warnings() as said:
                rep.task(data.next_observation, shuffled)
            told += any("nothing measurable of the rewards" in each for each in said)
        assert told >= 7  # More than nine in ten are expected.


def test_rewards_of_indices_that_never_recur_are_not_judged():
    states = np.random.default_rng(0).permutation(1_101)
    flags = np.arange(1, 1_101) % 50 == 0
    data = Transitions(
        observation=states[:-1],
        action=np.arange(1_100) % 2,
        next_observation=states[1:],
        terminated=flags & False,
        truncated=flags,
    )
    with recorded_warnings() as said:
        fit(data, num_features=2, discount=0.5).task(data.next_observation, states[1:] / 1_100.0)
    assert not any("nothing measurable of the rewards" in each for each in said)


def test_rewards_of_narrow_stripes_belong_to_their_rows(fitted):
    rep, data, _ = fitted
    stripes = data.next_observation % 2
    if rep.observed.num_states is None:
        stripes = np.sin(190.0 * np.arctan2(*data.next_observation.T)) > 0.0
    with recorded_warnings() as said:
        rep.task(data.next_observation, np.float64(stripes))
    assert not any("nothing measurable of the rewards" in each for each in said)


@pytest.mark.parametrize("indices", [False, True])
def test_late_rewards_of_terminal_states_are_told(indices):
    # A corridor with an end at both sides, of which one pays.
    rng = np.random.default_rng(0)
    before, after = [], []
    place = 10
    for _ in range(20_000):
        before.append(place)
        place = int(np.clip(place + rng.choice([-1, 1]), 0, 20))
        after.append(place)
        place = 10 if place in (0, 20) else place
    before, after = np.array(before), np.array(after)
    rewards = 5.0 * (after == 20) - 0.2 * (after % 2)
    ends = np.isin(after, (0, 20))
    seen = [states if indices else states[:, None] / 20.0 for states in (before, after)]
    data = Transitions(
        observation=seen[0],
        action=(after > before).astype(int),
        next_observation=seen[1],
        terminated=ends,
        truncated=ends & False,
    )
    options = {} if indices else {"width": 0.3, "max_features": 100}
    rep = fit(data, num_features=4, discount=0.9, **options)
    rep.task(data.next_observation, rewards)
    with pytest.warns(FitWarning, match="seem to be those of the rows before"):
        rep.task(data.next_observation, np.roll(rewards, 1))


@pytest.mark.parametrize("length", [1, 2, 3_000])
def test_a_row_does_not_predict_its_own_reward(length):
    # Each of 400 states has few rows; rewards are noise, in episodes of any length.
    rng = np.random.default_rng(0)
    states, next_states = rng.integers(400, size=(2, 3_000))
    cut = np.arange(1, 3_001) % length == 0
    next_states[~cut] = np.append(states[1:], 0)[~cut]
    data = Transitions(
        observation=states,
        action=rng.integers(2, size=3_000),
        next_observation=next_states,
        terminated=cut & False,
        truncated=cut,
    )
    with recorded_warnings() as said:
        rep = fit(data, num_features=2, discount=0.5)
        rep.task(data.next_observation, rng.normal(size=3_000))
    told = any("nothing measurable of the rewards" in each for each in said)
    regressions = _Regressions.of(rep.solution, rng.normal(size=3_000))
    assert told
    assert min(regressions.errors()) > 0.9


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_rewards_of_indices_with_a_box_of_actions_are_taken(shape):
    rng = np.random.default_rng(0)
    states = rng.integers(9, size=1_501)
    flags = np.zeros(1_500, bool)
    data = Transitions(
        observation=states[:-1],
        action=rng.uniform(size=(1_500, *shape)),
        next_observation=states[1:],
        terminated=flags,
        truncated=flags,
    )
    with recorded_warnings():
        rep = fit(data, method="td", num_features=4, discount=0.5, steps=2)
    assert len(rep.task(data.next_observation, rng.normal(size=1_500)).rewards) == 1_500
