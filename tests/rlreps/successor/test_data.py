"""Transitions from arrays, dictionaries and environments, and everything that is refused."""

import gymnasium
import numpy as np
import pytest

from rlreps.envs import PuddleWorld, PuddleWorldDmEnv
from rlreps.errors import InputError
from rlreps.successor.data import Transitions, as_transitions

ROWS = 6
STATES = np.arange(ROWS + 1, dtype=np.float32)[:, None]


def columns(**changes):
    given = {
        "observation": STATES[:-1],
        "action": np.array([0, 1, 0, 1, 0, 1]),
        "next_observation": STATES[1:],
        "terminated": np.zeros(ROWS, bool),
        "truncated": np.zeros(ROWS, bool),
    }
    return {**given, **changes}


def test_ends_and_steps_left_follow_the_flags():
    flags = np.array([0, 1, 0, 0, 0, 0], bool), np.array([0, 0, 0, 1, 0, 0], bool)
    data = Transitions(**columns(terminated=flags[0], truncated=flags[1]))
    np.testing.assert_array_equal(data.ends, [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(data.steps_left, [2, 1, 2, 1, 2, 1])
    np.testing.assert_array_equal(data.reaches_terminal, [1, 1, 0, 0, 0, 0])
    assert data.truncated[-1], "the end of the record is a cut"
    assert data.num_actions == 2


def test_without_truncations_a_jump_ends_an_episode():
    following = STATES[1:].copy()
    following[2] = 9.0
    data = Transitions(**columns(next_observation=following, truncated=None))
    np.testing.assert_array_equal(data.truncated, [0, 0, 1, 0, 0, 1])
    with pytest.raises(InputError, match=r"expected ends of episodes .* got 'none'"):
        data.require_ends()


NAN = STATES[:-1].copy()
NAN[3] = np.nan
REFUSED = {
    "next observations of shape": {"next_observation": STATES[1:-1]},
    "observations of shape": {"observation": np.float32(3.0)},
    "actions of shape": {"action": np.zeros((ROWS, 1), int)},
    "actions that are integers": {"action": np.zeros(ROWS)},
    r"actions in \[0, 2\), got \(0, 2\)": {
        "action": np.array([0, 1, 2, 0, 0, 0]),
        "num_actions": 2,
    },
    r"actions in \[0, 1\), got \(-1, 0\)": {"action": np.array([0, -1, 0, 0, 0, 0])},
    "finite numbers in observation": {"observation": NAN},
    "terminated of shape": {"terminated": np.zeros(ROWS - 1, bool)},
    "truncated of true and false": {"truncated": np.full(ROWS, 2)},
    "got a jump after row 2 of 6": {"next_observation": np.insert(STATES[1:-1], 2, 9.0, axis=0)},
    "at least two different states": dict.fromkeys(
        ("observation", "next_observation"), np.zeros((ROWS, 1))
    ),
    "observation of numbers": {"observation": np.array([{}] * ROWS)},
}


@pytest.mark.parametrize("expected", REFUSED)
def test_data_that_cannot_be_used_is_refused(expected):
    with pytest.raises(InputError, match=expected) as refusal:
        Transitions(**columns(**REFUSED[expected]))
    assert "\n" not in str(refusal.value)


def test_other_things_are_refused():
    with pytest.raises(InputError, match="expected Transitions, a dictionary"):
        as_transitions("data.npz")
    with pytest.raises(InputError, match="entry 'actions', got observations"):
        as_transitions({"observations": STATES})
    # A misspelt entry would else be data without ends.
    with pytest.raises(InputError, match=r"that tells ends .* actions, dones, obs"):
        as_transitions({"observations": STATES, "actions": np.zeros(6, int), "dones": np.zeros(6)})
    narrow, wide = (
        Transitions(
            **columns(
                truncated=None,
                **{
                    name: np.tile(columns()[name], (1, width))
                    for name in ("observation", "next_observation")
                },
            )
        )
        for width in (1, 2)
    )
    with pytest.raises(InputError, match=r"of one shape in all records, got \[\(1,\), \(2,\)\]"):
        Transitions.concatenate([narrow, wide])
    with pytest.raises(InputError, match="expected an environment of Gymnasium"):
        Transitions.collect(3, steps=1)


def test_dictionaries_of_other_libraries_are_read():
    terminal = np.array([0, 0, 1, 0, 0, 0])
    given = {"observations": STATES[:-1], "actions": columns()["action"], "terminals": terminal}
    full = as_transitions({**given, "next_observations": STATES[1:], "rewards": np.ones(ROWS)})
    np.testing.assert_array_equal(full.terminated, terminal)
    np.testing.assert_array_equal(full.truncated, [0, 0, 0, 0, 0, 1])
    # Without next observations, what the last row of an episode led to is not known.
    short = as_transitions(given)
    np.testing.assert_array_equal(short.observation[:, 0], [0, 1, 3, 4])
    np.testing.assert_array_equal(short.next_observation[:, 0], [1, 2, 4, 5])
    np.testing.assert_array_equal(short.terminated, np.zeros(4))
    np.testing.assert_array_equal(short.truncated, [0, 1, 0, 1])
    # One episode of Minari brings its last observation.
    episode = {**given, "observations": STATES, "terminals": [0] * 5 + [1]}
    whole = as_transitions(episode)
    np.testing.assert_array_equal(whole.next_observation, STATES[1:])
    assert whole.terminated[-1]
    joined = Transitions.concatenate([whole, whole])
    np.testing.assert_array_equal(np.flatnonzero(joined.ends), [5, 11])
    # OGBench: terminals end trajectories, masks are 0 behind terminal states.
    ends = {**given, "next_observations": STATES[1:]}
    cut = Transitions.from_dictionary(ends, terminals="ends")
    np.testing.assert_array_equal(cut.truncated, [0, 0, 1, 0, 0, 1])
    masked = as_transitions({**ends, "masks": 1 - terminal})
    np.testing.assert_array_equal(masked.terminated, terminal)
    index = {**ends, "terminals": [0] * ROWS, "episode": [4, 4, 4, 7, 7, 7]}
    np.testing.assert_array_equal(as_transitions(index).truncated, [0, 0, 1, 0, 0, 1])


class Count(gymnasium.Env):
    """Counts up; action 5 terminates, and the fourth step is the last. Actions are 4 and 5."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(2, start=4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action):
        self.count += 1
        return self.count, 0.0, action == 5, self.count == 4, {}


def test_a_gymnasium_environment_is_collected_from():
    data = Transitions.collect(Count(), steps=9, policy=lambda seen, _: 5 if seen == 2 else 4)
    np.testing.assert_array_equal(data.observation, [0, 1, 2] * 3)
    np.testing.assert_array_equal(data.next_observation, [1, 2, 3] * 3)
    np.testing.assert_array_equal(data.terminated, [0, 0, 1] * 3)
    assert data.num_actions == 2
    cut = Transitions.collect(Count(), steps=6, policy=lambda seen, _: 4)
    np.testing.assert_array_equal(cut.truncated, [0, 0, 0, 1, 0, 1])
    with pytest.raises(InputError, match=r"a policy that gives an integer, got 4\.5"):
        Transitions.collect(Count(), steps=6, policy=lambda seen, _: 4.5)
    with pytest.raises(InputError, match=r"expected actions in \[0, 2\), got -1"):
        Transitions.collect(Count(), steps=6, policy=lambda seen, _: 3)
    same = [Transitions.collect(Count(), steps=50, seed=seed).action for seed in (1, 1, 2)]
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0] != same[2]).any()


def test_dm_env_and_batches_of_puddle_world_are_collected_from():
    environment = PuddleWorldDmEnv("empty", max_steps=3, task=False, seed=1)
    data = Transitions.collect(environment, steps=7)
    np.testing.assert_array_equal(data.truncated, [0, 0, 1, 0, 0, 1, 1])
    world = PuddleWorld(goal=True, max_steps=5, step_size=0.5)
    data = Transitions.collect(world, steps=60, copies=4, seed=3)
    assert len(data) == 60
    assert data.num_actions == 4
    # Copies come one after another, each cut at its end; episodes of at most five rows.
    assert data.ends[14::15].all()
    assert int(data.steps_left.max()) == 5
    np.testing.assert_array_equal(data.terminated, data.next_observation.sum(axis=1) >= 1.9)
    again = Transitions.collect(world, steps=60, copies=4, seed=3)
    np.testing.assert_array_equal(data.observation, again.observation)
    right = Transitions.collect(world, steps=8, copies=2, policy=lambda key, observation: 1)
    assert (right.action == 1).all()
