"""Steps to goals of few states, with known answers."""

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.ours.tabular import TabularModel


def corridor(slip):
    """Five states in a row: actions left and right, which fail with a probability."""
    to = np.zeros((2, 5, 5))
    for state in range(5):
        for action, ahead in enumerate((max(state - 1, 0), min(state + 1, 4))):
            to[action, state, ahead] += 1.0 - slip
            to[action, state, state] += slip
    return TabularModel(to)


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_steps_in_a_corridor_are_states_to_pass_divided_by_the_chance_to_move(slip):
    goals = np.array([[0, 0, 0, 0, 1], [1, 1, 1, 0, 0]]).T
    found = corridor(slip).least_steps(goals)
    expected = np.array([[4, 3, 2, 1, 0], [0, 0, 0, 1, 2]]).T / (1.0 - slip)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(corridor(slip).steps_within(goals[:, 0], 2_000), expected[:, 0])


def test_steps_are_counted_up_to_the_cap():
    found = corridor(0.0).steps_within(np.arange(5) == 4, 2)
    np.testing.assert_array_equal(found, [2, 2, 2, 1, 0])


def test_goals_out_of_reach_are_refused():
    model = corridor(0.0)
    model.to[:, 0] = np.eye(5)[0]
    with pytest.raises(InputError, match="goals that can be reached from every state"):
        model.least_steps(np.arange(5)[:, None] == 4)
