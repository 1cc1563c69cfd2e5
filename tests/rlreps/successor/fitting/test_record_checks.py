"""Records whose rows do not belong together are told, and sound ones are not."""

import dataclasses

import numpy as np
import pytest

from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import FourierBasis, UnitVectors
from rlreps.successor.fitting.observed import Observed
from rlreps.successor.fitting.record_checks import describe_record
from rlreps.successor.fitting.transitions import Transitions

ROWS = 4_000


def ring(follow=0.0, turned=None):
    """A ring of 12 states; actions move by one step, and by chance by two.

    A share of actions follows from the state. From row ``turned`` on, actions change places.
    """
    rng, states = np.random.default_rng(0), [0]
    drawn = rng.integers(2, size=ROWS)
    for row in range(ROWS):
        if rng.random() < follow:
            drawn[row] = states[-1] % 2
        action = 1 - drawn[row] if turned is not None and row >= turned else drawn[row]
        states.append((states[-1] + (1 + (rng.random() < 0.3)) * (2 * action - 1)) % 12)
    return np.array(states), drawn


def mass(turned=None):
    """A mass on a line with friction: position and speed, and a force of either sign."""
    rng, states = np.random.default_rng(0), [np.zeros(2)]
    drawn = rng.integers(2, size=ROWS)
    for row in range(ROWS):
        force = 2 * drawn[row] - 1 if turned is None or row < turned else 1 - 2 * drawn[row]
        place, speed = states[-1]
        speed = 0.9 * speed + 0.1 * force + 0.01 * rng.normal()
        states.append(np.array([0.95 * place + 0.1 * speed, speed]))
    return np.array(states, np.float32), drawn


def record(states, actions, every=50):
    cut = np.arange(1, len(actions) + 1) % every == 0
    return Transitions(
        observation=states[:-1],
        action=actions,
        next_observation=states[1:],
        terminated=np.zeros(len(actions), bool),
        truncated=cut,
    )


def describe(data, actions=2):
    vectors = data.num_states is None
    basis = (
        FourierBasis.of(data.observation, 50, 1.0, 0) if vectors else UnitVectors(data.num_states)
    )
    return describe_record(data, basis, ActionBasis(actions), 0)


@pytest.mark.parametrize("world", [ring, mass])
@pytest.mark.parametrize(("shift", "said"), [(1, "row after"), (-1, "row before")])
def test_actions_of_other_rows_are_told(world, shift, said):
    states, actions = world()
    assert said in describe(record(states, np.roll(actions, shift)))


@pytest.mark.parametrize("world", [ring, mass])
def test_a_world_that_changes_is_told(world):
    assert "two halves" in describe(record(*world(turned=ROWS // 2)))


@pytest.mark.parametrize("data", [ring(), ring(follow=0.5), ring(follow=1.0), mass()])
def test_nothing_is_said_of_sound_records(data):
    assert describe(record(*data)) == ""


def test_a_policy_that_follows_the_state_does_not_make_actions_look_late():
    rng = np.random.default_rng(0)
    states = rng.integers(12, size=ROWS + 1)  # Actions have no effect, and tell the state.
    assert describe(record(states, states[:-1] % 2)) == ""


@pytest.mark.parametrize("follow", [0.5, 0.7])
def test_a_policy_that_often_follows_the_state_does_not_make_weak_actions_look_late(follow):
    rng, states = np.random.default_rng(0), [0]  # A queue of at most three, served a bit faster.
    actions = []
    for _ in range(2 * ROWS):
        action = int(states[-1] > 1) if rng.random() < follow else int(rng.integers(2))
        arrived, served = rng.random() < 0.5, rng.random() < 0.5 + 0.1 * action
        states.append(int(np.clip(states[-1] + arrived - served, 0, 3)))
        actions.append(action)
    # So many rows hardly show the effect.
    told = describe(record(np.array(states), np.array(actions)))
    assert told == "" or "tell nothing measurable" in told


@pytest.mark.parametrize("world", [ring, mass])
def test_actions_that_tell_nothing_are_told(world):
    states, actions = world()
    told = [
        "actions tell nothing"
        in describe(record(states, np.random.default_rng(s).permutation(actions)))
        for s in range(10)
    ]
    assert sum(told) >= 5  # Four in five are expected.


def test_actions_that_follow_from_the_state_are_not_judged():
    # The action is a linear function of the state, and moves it.
    rng, states = np.random.default_rng(0), [np.zeros(2)]
    for _ in range(ROWS):
        place, speed = states[-1]
        push = -0.5 * place - 0.8 * speed
        states.append(
            np.array([place + 0.1 * speed, speed + 0.1 * push]) + 0.1 * rng.normal(size=2)
        )
    states = np.array(states, np.float32)
    data = record(states, states[:-1] @ np.float32([[-0.5], [-0.8]]))
    basis = FourierBasis.of(data.observation, 50, 1.0, 0)
    assert describe_record(data, basis, Observed.of(data).actions, 0) == ""


def test_a_noisy_world_that_changes_is_told_and_one_that_does_not_is_not():
    # Actions go their way half of the time, and change places half way.
    rng = np.random.default_rng(0)
    actions = rng.integers(4, size=3 * ROWS)
    for turned in (False, True):
        meant = np.where(
            np.arange(len(actions)) > len(actions) // 2, (actions + turned) % 4, actions
        )
        taken = np.where(rng.random(len(actions)) < 0.5, meant, rng.integers(4, size=len(actions)))
        states = np.cumsum(np.append(0, np.array([1, -1, 5, -5])[taken])) % 30
        assert ("two halves" in describe(record(states, actions), 4)) == turned


@pytest.mark.parametrize("indices", [False, True])
def test_states_that_wander_are_no_change(indices):
    # A walk on 60 x 60 cells whose moves depend on the place; later, episodes start elsewhere.
    rng, rows, place = np.random.default_rng(0), [], np.array([5, 30])
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    for row in range(4 * ROWS):
        action = int(rng.integers(4))
        turned = (action + place[0] // 15) % 4 if rng.random() < 0.8 else rng.integers(4)
        rows.append((place, action))
        place = np.clip(place + moves[turned], 0, 59)
        if (row + 1) % 50 == 0:
            place = np.array([5 + 50 * (row > 2 * ROWS), rng.integers(60)])
    states = np.array([seen for seen, _ in rows] + [place])
    actions = np.array([action for _, action in rows])
    seen = 60 * states[:, 0] + states[:, 1] if indices else np.float32(states / 60.0)
    ends = np.arange(1, 4 * ROWS + 1) % 50 == 0
    after = seen[1:].copy()
    after[ends] = seen[:-1][ends]
    data = Transitions(
        observation=seen[:-1],
        action=actions,
        next_observation=after,
        terminated=ends & False,
        truncated=ends,
    )
    assert "two halves" not in describe(data, 4)


@pytest.mark.parametrize("indices", [False, True])
def test_bandits_of_one_step_say_nothing_of_actions(indices):
    rng = np.random.default_rng(0)
    before, after = rng.integers(5, size=(2, 3_000))
    if not indices:
        before, after = rng.normal(size=(2, 3_000, 3))
    every = np.ones(3_000, bool)
    data = Transitions(
        observation=before,
        action=rng.integers(2, size=3_000),
        next_observation=after,
        terminated=every,
        truncated=every & False,
    )
    assert describe(data) == ""


def test_actions_of_small_effect_that_change_are_told_and_a_changing_policy_is_not():
    # Three forces on a mass whose place springs back, beside noise; a policy that learns to push.
    rng = np.random.default_rng(0)
    late = np.arange(2 * ROWS) >= ROWS
    for turned in (False, True):
        actions = rng.integers(3, size=2 * ROWS)
        if not turned:
            actions = np.where(late & (rng.random(2 * ROWS) < 0.5), 2, actions)
        meant, states = np.where(late, (actions + turned) % 3, actions), [np.zeros(2)]
        for force in meant - 1:
            place, speed = states[-1]
            speed = 0.9 * speed - 0.1 * np.sin(place) + 0.05 * force + 0.05 * rng.normal()
            states.append(np.array([place + 0.1 * speed, speed]))
        told = describe(record(np.array(states, np.float32), actions), 3)
        assert ("two halves" in told) == turned


def test_few_rows_in_an_episode_do_not_hide_shuffled_actions():
    states, actions = ring()
    assert describe(record(states, actions, every=2)) == ""
    shuffled = np.random.default_rng(0).permutation(actions)
    assert "tell nothing" in describe(record(states, shuffled, every=2))


def test_a_stretch_that_chance_cannot_repeat_is_a_copy_in_a_small_world():
    once = record(*ring())
    columns = ("observation", "action", "next_observation", "terminated", "truncated")
    twice = {name: np.concatenate([getattr(once, name)] * 2) for name in columns}
    assert describe(dataclasses.replace(once, **twice)).startswith("100% of the rows")
    cycle = np.arange(ROWS + 1) % 12  # A policy that walks round and round.
    assert describe(record(cycle, np.zeros(ROWS, int))) == ""


def test_nothing_is_said_of_few_rows_with_many_actions():
    rng = np.random.default_rng(0)
    actions = rng.integers(50, size=1_100)
    steps = 0.1 * rng.normal(size=(1_100, 6)) + 0.05 * (actions[:, None] % 3)
    states = np.cumsum(steps, axis=0, dtype=np.float32)
    data = record(states, actions[1:])
    basis = FourierBasis.of(data.observation, 50, 1.0, 0)
    assert describe_record(data, basis, ActionBasis(50), 0) == ""


def test_records_in_which_every_change_is_the_same_are_not_judged():
    clock = np.arange(ROWS + 1.0)[:, None]
    actions = np.random.default_rng(0).integers(2, size=ROWS)
    assert describe(record(clock / 8.0, actions)) == ""  # Warnings are errors here.


def test_constant_and_turning_coordinates_do_not_look_like_hidden_state():
    # A clock changes by one, and a vector that turns is not linear; actions have six features.
    rng = np.random.default_rng(0)
    push = rng.uniform(-1.0, 1.0, size=(2_000, 2))
    angles = np.cumsum(np.concatenate([np.zeros((1, 2)), 0.5 * push]), axis=0)
    clock = np.tile(np.arange(26.0), 80)[: len(angles)]
    states = np.column_stack([np.cos(angles), np.sin(angles), clock]).astype(np.float32)
    data = record(states, push.astype(np.float32), every=25)
    basis = FourierBasis.of(data.observation, 50, 1.0, 0)
    assert describe_record(data, basis, Observed.of(data).actions, 0) == ""


@pytest.mark.parametrize(("seen", "hidden"), [([0, 1], False), ([0], True)])
def test_a_state_is_hidden_if_the_row_before_predicts_what_the_row_does_not(seen, hidden):
    states, actions = mass()
    assert ("lack a part" in describe(record(states[:, seen], actions))) == hidden


@pytest.mark.parametrize("rows", [250, ROWS])
@pytest.mark.parametrize("indices", [False, True])
def test_rows_that_were_joined_twice_are_told(indices, rows):
    states, actions = mass()
    states = np.arange(len(states)) if indices else states
    once = record(states[: rows + 1], actions[:rows])
    columns = ("observation", "action", "next_observation", "terminated", "truncated")
    twice = {name: np.concatenate([getattr(once, name)] * 2) for name in columns}
    assert describe(dataclasses.replace(once, **twice)).startswith("100% of the rows")


def test_episodes_that_happen_to_be_equal_are_no_copies():
    # A policy that walks ten steps to an end, from one of two starts.
    states = np.concatenate([np.arange(start, start + 11) for start in (0, 20) * 300])
    last = np.arange(1, len(states) + 1) % 11 == 0
    data = Transitions(
        observation=states[~last],
        action=np.zeros((~last).sum(), int),
        next_observation=states[1:][~last[:-1]],
        terminated=np.roll(last, -1)[~last],
        truncated=None,
    )
    assert describe(data) == ""
