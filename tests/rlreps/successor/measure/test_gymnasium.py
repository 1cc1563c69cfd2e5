"""Gymnasium environments, rolled out by the host, against exact successor measures."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from rlreps.errors import InputError
from rlreps.successor.measure.grids import BoxGrid
from rlreps.successor.measure.gymnasium import GymnasiumRowSampler, state_attribute
from rlreps.successor.measure.settings import RolloutSettings

SIZE = 8


class Walk(gymnasium.Env):
    """Ring of states; action 0 goes one back, 1 two ahead; it slips and stays with chance 0.3.

    States are numbered from ``first``. With ``last_ends``, the last state is terminal.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, *, first=0, last_ends=False):
        self.first, self.last_ends = first, last_ends
        self.observation_space = spaces.Discrete(SIZE, start=first)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.first + int(self.np_random.integers(SIZE - 1))
        return self.state, {}

    def step(self, action):
        place = self.state - self.first
        if self.np_random.random() > 0.3:
            place = (place + (2 if action else -1)) % SIZE
        self.state = self.first + place
        return self.state, 0.0, self.last_ends and place == SIZE - 1, False, {}


def walk_transitions(*, last_ends=False, ahead=0.5):
    """P [SIZE, SIZE] if action 1 is taken with probability ``ahead``; terminal states absorb."""
    matrix = np.zeros((SIZE, SIZE))
    for state in range(SIZE):
        matrix[state, state] += 0.3
        matrix[state, (state - 1) % SIZE] += 0.7 * (1 - ahead)
        matrix[state, (state + 2) % SIZE] += 0.7 * ahead
    if last_ends:
        matrix[-1] = np.eye(SIZE)[-1]
    return matrix


def exact_measure(transitions, settings):
    """The expectation of every entry, and the variance of one rollout's, [SIZE, SIZE] each."""
    first = 0 if settings.count_start else 1
    powers = [np.linalg.matrix_power(transitions, t) for t in range(settings.horizon + 1)]
    mean, square = np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE))
    for t in range(settings.horizon):
        mean += settings.discount**t * powers[t + first]
        square += settings.discount ** (2 * t) * powers[t + first]
        for later in range(t + 1, settings.horizon):
            again = np.diag(powers[later - t])
            square += 2 * settings.discount ** (t + later) * powers[t + first] * again
    return mean, square - mean**2


def set_walk_state(environment, state):
    environment.unwrapped.state = int(state)
    return state


SETTINGS = RolloutSettings(rollouts=200, horizon=9, discount=0.8, seed=3)


def row_sampler(environment, *, set_state=set_walk_state, settings=SETTINGS, **options):
    return GymnasiumRowSampler(environment, set_state=set_state, settings=settings, **options)


def changed(**changes):
    return dataclasses.replace(SETTINGS, **changes)


def assert_errors_match(estimates, transitions, settings):
    """Errors and half differences look like draws of the exact standard deviations.

    None lies beyond five deviations, and their size is right.
    """
    mean, variance = exact_measure(transitions, settings)
    rows = len(estimates.rows)
    deviations = np.sqrt(np.maximum(variance, 0.0) / settings.rollouts)[:rows]
    for errors in (estimates.rows - mean[:rows], estimates.half_difference):
        scores = np.divide(errors, deviations, where=deviations > 1e-7, out=np.zeros_like(errors))
        assert np.abs(errors[deviations <= 1e-7]).max(initial=0.0) < 1e-6
        assert np.abs(scores).max() < 5
        assert 0.6 < np.mean(scores[deviations > 1e-7] ** 2) < 1.6


@pytest.mark.parametrize("count_start", [True, False])
def test_rows_and_half_differences_lie_within_the_exact_standard_error(count_start):
    settings = changed(count_start=count_start)
    sampler = row_sampler(Walk(last_ends=True), settings=settings)
    estimates = next(sampler.row_blocks([range(SIZE - 1)]))
    assert_errors_match(estimates, walk_transitions(last_ends=True), settings)
    np.testing.assert_allclose(estimates.rows.sum(axis=1), settings.row_sum, rtol=1e-6)
    np.testing.assert_allclose(estimates.half_difference.sum(axis=1), 0.0, atol=1e-6)


def test_rows_have_the_same_bits_in_any_blocks_and_order_and_for_a_used_environment():
    sampler = row_sampler(Walk(), settings=changed(rollouts=20))
    whole = sampler.rows(range(SIZE))
    blocks = list(sampler.row_blocks([[5, 2], [], [7]]))
    np.testing.assert_array_equal(blocks[0].rows, whole[[5, 2]])
    assert blocks[1].rows.shape == (0, SIZE)
    np.testing.assert_array_equal(blocks[2].rows, whole[[7]])


def test_a_policy_decides_the_actions():
    def timid(state, generator):
        return int(generator.random() < (0.9 if state < 4 else 0.2))

    sampler = row_sampler(Walk(), policy=timid)
    transitions = walk_transitions(ahead=0.9)
    transitions[4:] = walk_transitions(ahead=0.2)[4:]
    assert_errors_match(sampler.estimates(), transitions, SETTINGS)


def test_a_state_that_makes_no_difference_to_the_next_step_is_warned_of():
    sampler = row_sampler(Walk(), set_state=lambda _, state: state)
    with pytest.warns(UserWarning, match="set_state made no difference to the next step"):
        sampler.estimates()


def test_discrete_observations_are_cells_without_a_grid_wherever_they_start():
    settings = RolloutSettings(rollouts=32, horizon=5, discount=0.5)
    reference = row_sampler(Walk(), settings=settings, cell=lambda states: states, num_cells=SIZE)
    for environment in (Walk(), Walk(first=1)):
        found = GymnasiumRowSampler(environment, settings=settings).estimates()
        np.testing.assert_array_equal(found.rows, reference.estimates().rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": changed(rollouts=3)}, "even number of rollouts"),
        ({"environment": TimeLimit(Walk(), 7)}, "runs for 8 steps, got one that is truncated"),
        ({"cell": lambda states: states + 1, "num_cells": SIZE}, r"cells in \[0, 8\)"),
        (
            {"set_state": lambda _, state: (state + 1) % SIZE},
            r"set_state\(7\) to start in cell 7 of 8, got 'cell 0, observation 0'",
        ),
        ({"set_state": lambda _, state: None}, "as reset returns it, got None"),
        ({"set_state": state_attribute("s")}, "attribute 's'"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(InputError, match=message):
        row_sampler(**{"environment": Walk(), **options}).rows([SIZE - 1])


def test_an_environment_of_your_own_is_seen_through_a_grid():
    def set_state(environment, state):
        return set_walk_state(environment, round(state[0]))

    sampler = GymnasiumRowSampler(
        Walk(last_ends=True),
        settings=SETTINGS,
        grid=BoxGrid((-0.5,), (SIZE - 1.5,), (SIZE - 1,), ("state",)),
        cell=lambda states: np.asarray(states),
        num_cells=SIZE,
        set_state=set_state,
    )
    estimates = sampler.estimates()
    assert_errors_match(estimates, walk_transitions(last_ends=True), SETTINGS)
