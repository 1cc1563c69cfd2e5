"""Worlds read from the tables of toy texts, entry by entry; bad tables are refused."""

import gymnasium
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.worlds import World
from rlreps.worlds.named import newest

TOYS = {
    "FrozenLake": {"map_name": "4x4"},
    "FrozenLake8x8": {},
    "CliffWalking": {},
    "CliffWalkingSlippery": {},
    "Taxi": {"is_rainy": True},
}


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_text_is_its_table_entry_by_entry(name):
    env = gymnasium.make(newest(name), **TOYS[name])
    world, inner = World.from_gymnasium_table(env), env.unwrapped
    states = np.asarray(world.about["states"])
    compared = 0
    for number, state in enumerate(states):
        if world.terminal[number]:
            continue
        for action, outcomes in inner.P[state].items():
            expected, paid = np.zeros(len(inner.P)), 0.0
            for chance, after, reward, _ in outcomes:
                expected[after] += chance
                paid += chance * reward
            row = world.transitions[[number * world.num_actions + action]].toarray()[0]
            found = np.bincount(states, row, minlength=len(inner.P))
            np.testing.assert_allclose(found, expected, atol=1e-12)
            assert world.rewards[number, action] == pytest.approx(paid, abs=1e-12)
            compared += 1
    assert compared == (~world.terminal).sum() * world.num_actions > 0
    first = np.bincount(states, world.start, minlength=len(inner.P))
    np.testing.assert_allclose(first, inner.initial_state_distrib)


def test_rows_of_toy_texts_count_downwards():
    world = World.from_gymnasium_table(gymnasium.make(newest("FrozenLake"), map_name="8x8"))
    goal = np.flatnonzero(np.asarray(world.about["states"]) == 63)
    np.testing.assert_array_equal(world.coordinates[goal], [[7.0, 7.0]])
    grid, cells = world.places()
    # The first cells are those at the bottom of a map.
    assert cells[goal] == 7
    assert grid.names[1] == "row"


def test_an_environment_without_a_table_is_refused():
    with pytest.raises(InputError, match="a table P of transitions, got 'CartPoleEnv'"):
        World.from_gymnasium_table(gymnasium.make("CartPole-v1"))


def test_a_table_is_refused_where_wrappers_or_steps_say_otherwise():
    lake = gymnasium.make("FrozenLake-v1")
    paid = gymnasium.wrappers.TransformReward(lake, lambda reward: 10.0 * reward)
    for changed in (paid, gymnasium.wrappers.StickyAction(lake, 0.5)):
        with pytest.raises(
            InputError, match=f"without a wrapper .*, got '{type(changed).__name__}'"
        ):
            World.from_gymnasium_table(changed)
    counted = gymnasium.wrappers.RecordEpisodeStatistics(lake)
    assert World.from_gymnasium_table(counted).num_states == 16
    fickle = gymnasium.make(newest("Taxi"), fickle_passenger=True, fickle_probability=0.3)
    with pytest.raises(InputError, match=r"steps that P\[\d+\]\[\d\] lists"):
        World.from_gymnasium_table(fickle)


class Listed(gymnasium.Env):
    """A table of two states: action 0 stays, action 1 goes to the other state."""

    def __init__(self, **parts):
        self.P = {
            state: {action: [(1.0, (state + action) % 2, 0.0, False)] for action in range(2)}
            for state in range(2)
        }
        self.initial_state_distrib = np.array([1.0, 0.0])
        vars(self).update(parts)

    def with_entry(self, state, action, outcomes):
        self.P[state][action] = outcomes
        return self


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([(0.5, 1, 0.0, False)], r"probabilities in P\[1\]\[0\] that sum to 1, got 0.5"),
        ([], r"probabilities in P\[1\]\[0\] that sum to 1, got 0"),
        ([(1.0, 7, 0.0, False)], r"a next state in P\[1\]\[0\] that is in P, got 7"),
        ([(1.0, 1, float("nan"), False)], r"finite rewards in P\[1\]\[0\], got nan"),
        ([(1.0, 1, 0.0)], r"outcomes \(probability, .* in P\[1\]\[0\], got ValueError"),
        (None, r"outcomes \(probability, .* in P\[1\]\[0\], got TypeError"),
    ],
)
def test_an_entry_of_a_table_that_is_none_is_named(outcomes, said):
    with pytest.raises(InputError, match=said):
        World.from_gymnasium_table(Listed().with_entry(1, 0, outcomes))


def test_states_of_a_table_have_the_same_actions():
    for given in ({0: [(1.0, 0, 0.0, False)]}, {0: [], 1: [], 2: []}):
        env = Listed()
        env.P[1] = given
        with pytest.raises(InputError, match=r"2 actions in P\[1\]"):
            World.from_gymnasium_table(env)
