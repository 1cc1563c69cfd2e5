"""Steps to goals of few states, with known answers."""

import numpy as np
import pytest
import scipy.optimize

from rlreps.experiments.ours.tabular import least_steps, with_rewards
from rlreps.worlds import World


def corridor(slip):
    """Five states in a row: actions left and right, which fail with a probability."""
    to = np.zeros((2, 5, 5))
    for state in range(5):
        for action, ahead in enumerate((max(state - 1, 0), min(state + 1, 4))):
            to[action, state, ahead] += 1.0 - slip
            to[action, state, state] += slip
    return World.from_arrays(probabilities=to, rewards=np.zeros((5, 2)))


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_steps_in_a_corridor_are_states_to_pass_divided_by_the_chance_to_move(slip):
    goals = np.array([[0, 0, 0, 0, 1], [1, 1, 1, 0, 0]]).T
    found = least_steps(corridor(slip), goals)
    expected = np.array([[4, 3, 2, 1, 0], [0, 0, 0, 1, 2]]).T / (1.0 - slip)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    capped = least_steps(corridor(0.0), goals[:, 0], 2)
    np.testing.assert_array_equal(capped, [2, 2, 2, 1, 0])


def test_optimal_values_of_rewards_on_arrival_solve_the_linear_program():
    rng = np.random.default_rng(0)
    moves, rewards = rng.dirichlet(np.full(5, 0.5), size=(3, 5)), rng.normal(size=5)
    paid = rng.normal(size=moves.shape)  # Replaced.
    world = World.from_arrays(probabilities=moves, transition_rewards=paid)
    game = with_rewards(world, rewards)
    found = game.optimal_action_values(0.9)
    # The least V with V(s) >= Σ P(s' | s, a)(r(s') + γ V(s')) for all s and a.
    program = scipy.optimize.linprog(
        np.ones(5),
        A_ub=np.concatenate([0.9 * to - np.eye(5) for to in moves]),
        b_ub=np.concatenate([-to @ rewards for to in moves]),
        bounds=(None, None),
    )
    np.testing.assert_allclose(found.max(axis=1), program.x, rtol=1e-7)
    greedy = np.eye(3)[found.argmax(axis=1)]
    np.testing.assert_allclose(game.policy_values(greedy, 0.9), program.x, rtol=1e-7)
