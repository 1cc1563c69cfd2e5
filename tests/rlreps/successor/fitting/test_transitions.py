"""Transitions from arrays, dictionaries and environments, and everything that is refused."""

import dataclasses
import warnings

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from rlreps.envs import PuddleWorld, PuddleWorldDmEnv
from rlreps.errors import FitWarning, InputError
from rlreps.files import read_arrays
from rlreps.successor.fitting.transitions import Transitions, as_transitions

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


PLACES = {"observation": np.arange(ROWS), "next_observation": np.arange(1, ROWS + 1)}
JUMP = np.where(STATES[1:] == 3, np.float32(9.0), STATES[1:])
FALL = np.where(STATES[1:] == 2, np.float32(9.0), STATES[1:])


def test_ends_and_steps_left_follow_the_flags():
    flags = np.array([0, 1, 0, 0, 0, 0], bool), np.array([0, 0, 0, 1, 0, 0], bool)
    given = {"next_observation": FALL, "terminated": flags[0], "truncated": flags[1]}
    data = Transitions(**columns(**given))
    np.testing.assert_array_equal(data.ends, [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(data.steps_left, [2, 1, 2, 1, 2, 1])
    assert data.truncated[-1], "the end of the record is a cut"
    assert (data.num_actions, data.continuous, data.action.shape[1:]) == (2, False, ())


def test_floats_are_actions_of_a_box():
    torque = np.array([0.5, -1.0, 0.0, 2.0, 1.0, -0.5])
    data = Transitions(**columns(action=torque))
    assert (data.num_actions, data.continuous, data.action.shape[1:]) == (None, True, (1,))
    np.testing.assert_array_equal(data.action, torque[:, None].astype(np.float32), strict=True)
    np.testing.assert_array_equal((data.action_low, data.action_high), [[-1.0], [2.0]])
    pairs = np.stack([torque, torque], axis=1)
    boxed = Transitions(**columns(action=pairs, action_low=-3, action_high=np.array([np.inf, 4.0])))
    assert boxed.action.shape[1:] == (2,)
    np.testing.assert_array_equal(boxed.action_low, [-3.0, -3.0])
    np.testing.assert_array_equal(boxed.action_high, [2.0, 4.0])
    # Rounded to single precision, 0.1 is larger: so is the bound.
    Transitions(**columns(action=np.full((ROWS, 1), 0.1), action_high=np.full(1, 0.1)))
    # Single precision may round differences that are small in the box, or that are no differences.
    Transitions(**columns(action=0.1 + 1e-9 * torque, action_low=0.0, action_high=1.0))
    Transitions(**columns(action=0.1 + 1e-16 * torque))


def test_without_truncations_a_jump_ends_an_episode():
    data = recorded("ends unknown")
    np.testing.assert_array_equal(data.truncated, [0, 0, 1, 0, 0, 1])


REFUSED = {
    r"indices of states in \[0, 3\), got 6": {**PLACES, "num_states": 3},
    r"num_states or indices of states in \[0, 100,000\), got 600,000: number labels by np.uni": {
        name: 100_000 * places for name, places in PLACES.items()
    },
    r"observation of numbers in one array \(number labels by np.unique.*\), got 'str32'": {
        "observation": np.array(list("abcdef"))
    },
    "num_states.* got 9.5": {**PLACES, "num_states": 9.5},
    "num_actions.* got 2.7": {"num_actions": 2.7},
    "num_actions.* got '2'": {"num_actions": "2"},
    r"observations of shape \[rows, ...\], at least two rows, got \(\)": {"observation": 1.0},
    "next observations of shape": {"next_observation": STATES[1:-1]},
    "actions that are integers": {"action": np.zeros(ROWS), "num_actions": 2},
    "action_low <= action_high": {"action": np.zeros(ROWS), "action_low": 2.0, "action_high": 1.0},
    r"actions in \[-1.0, 1.5\], got 2.0 as number 0 of row 2; clip": {
        "action": np.array([0.0, -1.0, 2.0, 0.0, 0.0, 0.0]),
        "action_high": 1.5,
    },
    r"actions in \[0, 1\), got \(0, 1\)": {"num_actions": 1},
    "finite numbers in observation": {"observation": np.where(STATES[:-1] == 3, np.nan, 0.0)},
    "truncated of true and false": {"truncated": np.full(ROWS, 2)},
    "got a jump after row 2 of 6": {"next_observation": JUMP},
    r"single precision tells apart, got actions in \[5000000.0, 5000000.05\]: subtract": {
        "action": 5e6 + np.arange(6) / 100.0
    },
    "at least two different states": dict.fromkeys(
        ("observation", "next_observation"), np.zeros((ROWS, 1))
    ),
}
OTHERS = {
    "expected Transitions, a dictionary": lambda: as_transitions("data.npz"),
    # A misspelt entry would else be data without ends.
    r"that marks ends .* actions, finals, obs": lambda: as_transitions(
        {"observations": STATES, "actions": np.zeros(6, int), "finals": np.zeros(6)}
    ),
    r"an action of Discrete\(2, start=4\), got 4\.5": lambda: collected(lambda seen, _: 4.5),
    "an index of an episode in every row, got 'NaN'": lambda: read(episode=[0, 0, np.nan, 1, 1, 1]),
    r"expected observations \[rows, ...\], got \(0,\)": lambda: read(observations=[], actions=[]),
    r"expected observations \[rows, ...\], got \(\)": lambda: read(observations=1.0),
    r"expected actions \[rows, ...\], got \(\)": lambda: read(actions=2),
    "expected autoreset of true and false": lambda: read(autoreset="no"),
    "expected seed to be an integer, got 1.5": lambda: collected(None, seed=1.5),
    "expected seed >= 0, got -1": lambda: collected(None, seed=-1),
    "expected seed to be an integer, got 0.5": lambda: read().split(0.2, seed=0.5),
    "expected share to be a number, got '0.2'": lambda: read().split("0.2", 1),
    "6 or 7 observations, got 5": lambda: read(observations=STATES[:5]),
    "expected one environment": lambda: Transitions.collect(
        gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"), steps=1
    ),
    "the environment to return a TimeStep, got None": lambda: misbehaving(None),
    r"observations of one shape, \(4,\), got \(3,\)": lambda: misbehaving(np.zeros(3)),
    "that take steps, got KeyError: 'motor'": lambda: misbehaving(KeyError("motor")),
    "a MinariDataset .*, got 'dict'": lambda: Transitions.from_minari({}),
    r"alone, or one image, got 'direction': numbers, 'image': an image, 'mission': mission; "
    r"use gymnasium.wrappers.FilterObservation\(env, \['direction'\]\) or .*\(env, \['image'\]\)": (
        lambda: Transitions.collect(MiniGrid(), steps=4)
    ),
    "that take steps, got KeyError: 'picture'": lambda: Transitions.collect(
        Grid(), steps=4, observe=lambda seen: seen["picture"]
    ),
}


def read(**changes):
    given = {"observations": STATES, "actions": columns()["action"], "terminals": np.zeros(6)}
    return Transitions.from_dictionary({**given, **changes})


@pytest.mark.parametrize("expected", [*REFUSED, *OTHERS])
def test_data_that_cannot_be_used_is_refused(expected):
    use = OTHERS.get(expected, lambda: Transitions(**columns(**REFUSED[expected])))
    with pytest.raises(InputError, match=expected) as refusal:
        use()
    assert "\n" not in str(refusal.value)


def misbehaving(result):
    """Collect from an environment that goes wrong in its first step."""
    arm = Arm()

    def step(action):
        if isinstance(result, Exception):
            raise result
        return None if result is None else dm_env.transition(0.0, result)

    arm.step = step
    return Transitions.collect(arm, steps=6)


def collected(policy, steps=6, seed=0):
    return Transitions.collect(Count(), steps=steps, policy=policy, seed=seed)


def test_dictionaries_of_other_libraries_are_read():
    terminal = np.array([0, 0, 1, 0, 0, 0])
    given = {"observations": STATES[:-1], "actions": columns()["action"], "terminals": terminal}
    ends = {**given, "next_observations": JUMP}
    full = as_transitions({**ends, "rewards": np.ones(ROWS)})
    np.testing.assert_array_equal(full.terminated, terminal)
    np.testing.assert_array_equal(full.truncated, [0, 0, 0, 0, 0, 1])
    # One episode of Minari brings its last observation.
    whole = as_transitions({**given, "observations": STATES, "terminals": [0] * 5 + [1]})
    np.testing.assert_array_equal(whole.next_observation, STATES[1:])
    assert whole.terminated[-1]
    # OGBench: terminals end trajectories, masks are 0 behind terminal states.
    jumps = np.where(STATES[1:] == 5, np.float32(9.0), JUMP)
    given = {**ends, "masks": np.array([1, 1, 1, 1, 0, 1]), "next_observations": jumps}
    masked = as_transitions(given)
    np.testing.assert_array_equal(masked.terminated, [0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(masked.truncated, [0, 0, 1, 0, 0, 1])
    index = {**ends, "terminals": [0] * ROWS, "episode": [4, 4, 4, 7, 7, 7]}
    np.testing.assert_array_equal(as_transitions(index).truncated, [0, 0, 1, 0, 0, 1])


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    "ends",
    [
        {"terminals": [0, 0, 1, 0, 1, 0]},
        {"timeouts": [0, 0, 1, 0, 1, 1]},
        {"episode": [4] * 3 + [7] * 2 + [9]},
    ],
)
def test_a_dictionary_without_next_observations_joins_no_episodes(ends, more):
    # Episodes 0 1 2, 5 6 and 8 (9); what 2 and 6 led to was not recorded.
    seen, action = np.array([0, 1, 2, 5, 6, 8, 9]), np.array([3, 4, 5, 6, 7, 8])
    given = {"observations": seen[: 6 + more], "actions": action, "num_states": 10, **ends}
    lost = "2 of 6 rows end an episode, .*: they are left out with their rewards"
    goal = " \\(a goal that ends episodes is never reached\\)" * ("terminals" in ends)
    with pytest.warns(FitWarning, match=f"{lost}{goal}, and their episodes count"):
        data = Transitions.from_dictionary(given)
    last = [(8, 8, 9, False, True)][:more]
    expected = [(0, 3, 1, False, False), (1, 4, 2, False, True), (5, 6, 6, False, True), *last]
    names = ("observation", "action", "next_observation", "terminated", "truncated")
    assert list(zip(*(getattr(data, name).tolist() for name in names), strict=True)) == expected
    # What the record ended in is known.
    whole = (
        as_transitions({**given, **dict.fromkeys(ends, [0] * 5 + [int("episode" not in ends)])})
        if more
        else None
    )
    assert whole is None or whole.terminated[-1] == ("terminals" in ends)


def masked(array):
    return np.ma.masked_array(array, mask=np.arange(len(array)) == 1)


@pytest.mark.parametrize("name", ["observation", "action", "next_observation", "terminated"])
def test_masked_entries_are_refused(name):
    given = columns()
    with pytest.raises(InputError, match=f"{name} without masked entries"):
        Transitions(**{**given, name: masked(given[name])})
    with pytest.raises(InputError, match="terminals without masked entries"):
        read(terminals=masked(np.zeros(ROWS, bool)))


@pytest.mark.parametrize(
    ("known", "other"),
    [
        ({"episode": np.zeros(ROWS)}, "dones"),
        ({"timeouts": np.zeros(ROWS)}, "is_terminal"),
        ({"timeouts": np.zeros(ROWS)}, "terminateds"),
        ({"timeouts": np.zeros(ROWS), "next_observations": STATES[1:]}, "not_done"),
        ({"terminals": np.zeros(ROWS)}, "is_last"),
        ({"terminals": np.zeros(ROWS)}, "dones"),
        ({"masks": np.ones(ROWS)}, "is_last"),
    ],
)
def test_other_names_of_ends_are_not_left_unread(known, other):
    data = {"observations": STATES[:-1], "actions": columns()["action"], **known}
    unread = {**data, other: np.zeros(ROWS)}
    with pytest.raises(InputError, match=f"named terminals .* got '{other}'"):
        Transitions.from_dictionary(unread)
    Transitions.from_dictionary(
        {"terminals": np.zeros(ROWS), "timeouts": np.eye(ROWS)[-1], **unread}
    )
    Transitions.from_dictionary({**data, other: None})
    # Known next observations show where a record was cut.
    if "terminals" in known:
        Transitions.from_dictionary({**unread, "next_observations": STATES[1:]})


@pytest.mark.parametrize("marks", [{"episode": [0, 0, 1, 1, 2, 2]}, {"masks": [1, 0, 1, 0, 1, 0]}])
def test_ends_derived_from_episodes_are_no_cuts_where_they_terminate(marks):
    ends = np.array([0, 1, 0, 1, 0, 1], bool)
    given = columns(next_observation=np.where(ends[:, None], np.float32(9.0), STATES[1:]))
    data = {"observations": given["observation"], "actions": given["action"], "terminals": ends}
    data = {**data, "next_observations": given["next_observation"], **marks}
    read = Transitions.from_dictionary(data)  # Without a warning.
    np.testing.assert_array_equal(read.terminated, ends)
    assert not read.truncated.any()


@pytest.mark.parametrize("final", [0.0, 1.0])
def test_masks_alone_tell_terminal_states_and_leave_cuts_to_observations(final):
    # JUMP leaves after row 2, without a mark, and FALL's row 1 is terminal.
    masks = np.array([1.0, 0.0, 1.0, 1.0, 1.0, final])
    following = np.where(STATES[1:] == 2, FALL, JUMP)
    data = {"observations": STATES[:-1], "actions": columns()["action"], "masks": masks}
    read = Transitions.from_dictionary({**data, "next_observations": following})
    np.testing.assert_array_equal(read.terminated, masks == 0.0)
    np.testing.assert_array_equal(read.truncated, [0, 0, 1, 0, 0, final])


def test_masks_that_hold_time_limits_are_warned_of():
    cut = np.array([0, 1, 0, 1, 0, 0], bool)
    done = cut | (np.arange(6) == 4)
    states = {"observations": STATES[:-1], "next_observations": STATES[1:]}
    for terminals in (None, done):
        with pytest.warns(FitWarning, match="all 2 truncated rows are terminated too"):
            data = read(**states, masks=~done, timeouts=cut, terminals=terminals)
        assert not data.truncated[:-1].any()


@pytest.mark.parametrize("kinds", [("u8", "u8"), ("u8", "i8"), ("u4", "i1")])
def test_unsigned_indices_of_states_are_counted(kinds):
    places = [array.astype(kind) for array, kind in zip(PLACES.values(), kinds, strict=True)]
    data = Transitions(**columns(**dict(zip(PLACES, places, strict=True))))
    assert (data.observation.dtype, data.num_states) == (np.int64, ROWS + 1)


def test_whole_numbers_that_double_precision_blurs_are_refused():
    large = (STATES.astype(np.int64) + 2**60)[:, [0, 0]]
    large[:, 1] = STATES[:, 0]
    given = columns(observation=large[:-1], next_observation=large[1:])
    with pytest.raises(InputError, match=r"tells apart, got a size of 1.15e\+18: subtract"):
        Transitions(**given)
    same = np.full_like(large, 2**60)  # A coordinate that never changes loses nothing.
    same[:, 1] = STATES[:, 0]
    assert len(Transitions(**columns(observation=same[:-1], next_observation=same[1:]))) == ROWS


def test_rows_that_start_in_a_terminal_state_by_right_are_kept():
    # Every step is an episode; a start is drawn.
    single = columns(terminated=np.ones(6, bool), next_observation=np.roll(STATES[:-1], -1, axis=0))
    assert len(Transitions(**single)) == 6
    drawn = np.random.default_rng(0).integers(3, size=(2, 200))
    assert len(as_transitions([drawn[0], drawn[0] % 2, drawn[1], np.ones(200, bool)])) == 200
    # A log that goes on after a cut.
    assert len(Transitions(**columns(truncated=[0, 1, 0, 0, 1, 0]))) == 6


def test_observations_at_a_large_offset_keep_their_differences():
    places = np.random.default_rng(0).normal([5e6, -3e6], size=(3_001, 2))
    rows = np.arange(3_000)
    data = as_transitions([places[:-1], rows % 2, places[1:], rows < 0])
    np.testing.assert_array_equal(data.next_observation, places[1:], strict=True)
    images = STATES.reshape(-1, 1, 1, 1) / 100.0 + np.float64([[[5e6], [5e6 + 0.1]]])
    for far in (images, images[..., 0]):
        data = Transitions(**columns(observation=far[:-1], next_observation=far[1:]))
        np.testing.assert_array_equal(data.observation, far[:-1], strict=True)
    whole = np.arange(7)[:, None] + 10**9
    data = Transitions(**columns(observation=whole[:-1], next_observation=whole[1:]))
    np.testing.assert_array_equal(data.observation[:, 0] - 10**9, np.arange(6.0))
    # Elsewhere single precision is enough, also for a coordinate that hardly changes.
    assert Transitions(**columns(observation=np.float64(STATES[:-1]))).observation.dtype == "f4"
    flag = np.where(STATES == 3, 101.0, 100.0)
    data = Transitions(**columns(observation=flag[:-1], next_observation=flag[1:]))
    assert data.observation.dtype == "f4"
    # Pixels have a common range.
    pixels = np.stack([flag[..., None] + 154.0, 0.0 * flag[..., None]], axis=1) / 255.0
    data = Transitions(**columns(observation=pixels[:-1], next_observation=pixels[1:]))
    assert data.observation.dtype == "f4"


def test_floats_that_look_like_indices_of_actions_are_warned_of():
    counts = np.array([0.0, 2.0, 1.0, 1.0, 0.0, 0.0])
    with pytest.warns(FitWarning, match="all whole numbers"):
        assert Transitions(**columns(action=counts)).continuous
    # Silent: warnings are errors here.
    Transitions(**columns(action=counts, action_low=0.0))
    Transitions(**columns(action=counts / 2.0))


def test_floats_that_look_like_indices_of_states_are_warned_of():
    places = STATES[:, 0]
    with pytest.warns(FitWarning, match="floats that are all whole numbers.*integers for indices"):
        found = Transitions(**columns(observation=places[:-1], next_observation=places[1:]))
    assert found.num_states is None
    Transitions(**columns(observation=places[:-1] / 4.0, next_observation=places[1:] / 4.0))


def test_time_limits_that_all_count_as_terminations_are_warned_of():
    cut = np.array([False, True, False, True, False, False])
    done = cut | np.array([False, False, False, False, True, False])
    with pytest.warns(FitWarning, match="all 2 truncated rows are terminated too"):
        found = Transitions(**columns(terminated=done, truncated=cut))
    assert not found.truncated[:-1].any()
    # A time limit without a termination shows that the two flags differ.
    Transitions(**columns(terminated=done & (np.arange(6) != 1), truncated=cut))


class Count(gymnasium.Env):
    """Counts up from 3; action 5 terminates, the fourth step is the last. Actions are 4 and 5."""

    observation_space = gymnasium.spaces.Discrete(5, start=3)
    action_space = gymnasium.spaces.Discrete(2, start=4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 3
        return 3, {}

    def step(self, action):
        self.count += 1
        return self.count, 0.0, action == 5, self.count == 7, {}


def test_a_gymnasium_environment_is_collected_from():
    data = collected(lambda seen, _: 5 if seen == 5 else 4, steps=9)
    np.testing.assert_array_equal(data.observation, [3, 4, 5] * 3)
    np.testing.assert_array_equal(data.next_observation, [4, 5, 6] * 3)
    np.testing.assert_array_equal(data.terminated, [0, 0, 1] * 3)
    # Indices of states stay the environment's, indices of actions start at 0.
    assert (data.num_actions, data.num_states) == (2, 8)
    cut = collected(lambda seen, _: 4)
    np.testing.assert_array_equal(cut.truncated, [0, 0, 0, 1, 0, 1])
    same = [Transitions.collect(Count(), steps=50, seed=seed).action for seed in (1, 1, 2)]
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0] != same[2]).any()


def test_an_attribute_of_a_wrapper_makes_no_dm_env_environment():
    class Wrapped(gymnasium.Wrapper):
        action_spec = None

    assert len(Transitions.collect(Wrapped(Count()), steps=5)) == 5


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
    right = Transitions.collect(world, steps=8, copies=2, policy=lambda key, observation: 1)
    assert (right.action == 1).all()


def test_actions_of_a_box_are_drawn_uniformly_and_recorded_as_taken():
    data = Transitions.collect(gymnasium.make("Pendulum-v1"), steps=401, seed=5)
    assert data.action.shape[1:] == (1,)
    np.testing.assert_array_equal((data.action_low, data.action_high), [[-2.0], [2.0]])
    ranked = np.sort(data.action[:, 0]) / 4.0 + 0.5
    assert np.abs(ranked - np.linspace(0.0, 1.0, 401)).max() < 1.63 / np.sqrt(401)


class Arm(dm_env.Environment):
    """Adds a 2 x 2 action to its place and forgets what it was; ends for good right of 1."""

    def action_spec(self):
        return specs.BoundedArray((2, 2), np.float32, minimum=[[-1], [0]], maximum=[[0], [3]])

    def observation_spec(self):
        return specs.Array((4,), np.float32)

    def reset(self):
        self.place = np.zeros(4, np.float32)
        return dm_env.restart(self.place)

    def step(self, action):
        self.action_spec().validate(action)
        self.place += action.ravel()
        action[:] = np.nan
        done = self.place[3] > 10.0
        return (dm_env.termination if done else dm_env.transition)(0.0, self.place)


def test_boxes_of_several_axes_and_policies_for_them():
    data = Transitions.collect(Arm(), steps=50, seed=2)
    np.testing.assert_allclose(data.next_observation - data.observation, data.action, atol=1e-5)
    np.testing.assert_array_equal(data.action_low, [-1, -1, 0, 0])
    np.testing.assert_array_equal(data.action_high, [0, 0, 3, 3])
    # The observation that ended an episode is behind 10, every other one is not.
    assert data.terminated.any()
    np.testing.assert_array_equal(data.terminated, data.next_observation[:, 3] > 10.0)
    rising = Transitions.collect(
        Arm(), steps=3, policy=lambda seen, _: [[-0.5, 0.0], [1.0, seen[2] + 1.0]]
    )
    np.testing.assert_array_equal(rising.action[:, 3], [1.0, 2.0, 3.0])


class Grid(gymnasium.Env):
    """Observations as in MiniGrid."""

    observation_space = spaces.Dict(
        direction=spaces.Discrete(4),
        image=spaces.Box(0, 255, (7, 7, 3), np.uint8),
        mission=spaces.Text(20),
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.step(0)[0], {}

    def step(self, action):
        image = self.np_random.integers(256, size=(7, 7, 3), dtype=np.uint8)
        direction = int(image[0, 0, 0]) % 4
        seen = {"image": image, "direction": direction, "mission": "go to the goal"}
        return seen, 0.0, False, False, {}


class MissionSpace(spaces.Space):
    """As in MiniGrid: no text space, and without an answer whether it can be flattened."""


class MiniGrid(Grid):
    observation_space = spaces.Dict({**Grid.observation_space.spaces, "mission": MissionSpace()})


class Places(gymnasium.ObservationWrapper):
    """Numbers, some of them in a dictionary within the dictionary."""

    observation_space = spaces.Dict(
        goal=spaces.Dict(direction=spaces.Discrete(4), near=spaces.MultiBinary(1)),
        place=spaces.Box(-9.0, 9.0, (2, 2), np.float64),
    )

    def observation(self, seen):
        goal = {"direction": seen["direction"], "near": np.int8([seen["direction"] > 1])}
        return {"place": seen["image"][:2, :2, 0] / 50.0, "goal": goal}


@pytest.mark.parametrize("kind", ["dictionary", "tuple"])
def test_numbers_of_dictionaries_and_tuples_are_flattened_as_by_gymnasium(kind, capsys):
    def make():
        return Places(Grid()) if kind == "dictionary" else gymnasium.make("Blackjack-v1")

    data, flat = (
        Transitions.collect(environment, steps=30, seed=3)
        for environment in (make(), gymnasium.wrappers.FlattenObservation(make()))
    )
    assert_equal(data, flat)
    (line,) = capsys.readouterr().err.splitlines()
    sizes = "goal (5), place (4)" if kind == "dictionary" else "0 (32), 1 (11), 2 (2)"
    assert line.endswith(f"in the order of gymnasium.wrappers.FlattenObservation: {sizes}")


def test_one_entry_of_a_dictionary_is_recorded_as_it_is():
    image, direction = (
        Transitions.collect(gymnasium.wrappers.FilterObservation(Grid(), [key]), steps=9, seed=1)
        for key in ("image", "direction")
    )
    # A policy sees what is recorded.
    observed = Transitions.collect(
        Grid(),
        steps=9,
        seed=1,
        policy=lambda image, _: int(image[0, 0, 0] > 99),
        observe=lambda seen: seen["image"],
    )
    np.testing.assert_array_equal(observed.observation, image.observation, strict=True)
    np.testing.assert_array_equal(observed.action, image.observation[:, 0, 0, 0] > 99)
    assert (image.observation.shape, direction.num_states) == ((9, 7, 7, 3), 4)


class Limbs(Arm):
    """Observations in a dictionary, as those of dm_control."""

    pixels = None

    def observation_spec(self):
        spec = {"place": specs.Array((2, 2), np.float32), "done": specs.Array((), bool)}
        return spec if self.pixels is None else {**spec, "image": self.pixels}

    def reset(self):
        return self._told(super().reset())

    def step(self, action):
        return self._told(super().step(action))

    def _told(self, step):
        place = step.observation.reshape(2, 2)
        return step._replace(observation={"place": place, "done": place[1, 1] > 10.0})


def test_dictionaries_of_dm_env_are_flattened_in_the_same_order():
    data, plain = (Transitions.collect(each, steps=50, seed=2) for each in (Limbs(), Arm()))
    np.testing.assert_array_equal(data.observation[:, 1:], plain.observation)
    np.testing.assert_array_equal(data.next_observation[:, 0], data.terminated)
    picture = Limbs()
    picture.pixels = specs.Array((8, 8), np.uint8)
    with pytest.raises(InputError, match="'image': an image, 'place': numbers; use observe="):
        Transitions.collect(picture, steps=4)


def test_numbered_tells_observations_apart_and_returns_them():
    seen = np.float32([[3, 1], [0, 1], [3, 1], [-0.0, 1], [3, 1 + 1e-7], [0, 1], [2, 2]])
    data = Transitions(**columns(observation=seen[:-1], next_observation=seen[1:]))
    numbered, table = data.numbered()
    np.testing.assert_array_equal(numbered.observation, [0, 1, 0, 1, 2, 1])
    np.testing.assert_array_equal(numbered.next_observation, [1, 0, 1, 2, 1, 3])
    np.testing.assert_array_equal(table, seen[[0, 1, 4, 6]], strict=True)
    assert_equal(dataclasses.replace(numbered), numbered)


def recorded(kind):
    """Transitions of every kind."""
    if kind == "ends unknown":
        return Transitions(**columns(next_observation=JUMP, truncated=None))
    if kind == "images":
        pictures = np.random.default_rng(0).integers(0, 256, (ROWS + 1, 4, 4, 3), np.uint8)
        return Transitions(**columns(observation=pictures[:-1], next_observation=pictures[1:]))
    return Transitions.collect(gymnasium.make(kind), steps=450, seed=1)


FIELDS = ("observation", "action", "next_observation", "terminated", "truncated", "num_actions")
FIELDS += ("num_states", "action_low", "action_high", "autoreset")


def assert_equal(found, expected):
    for name in FIELDS:
        got, wanted = getattr(found, name), getattr(expected, name)
        if isinstance(wanted, np.ndarray):
            np.testing.assert_array_equal(got, wanted, strict=True, err_msg=name)
        else:
            assert got == wanted, name


@pytest.mark.parametrize("kind", ["Pendulum-v1", "FrozenLake-v1", "images", "ends unknown"])
def test_a_file_gives_the_same_transitions_again(tmp_path, kind):
    data = recorded(kind)
    path = data.to_npz(tmp_path / "data.npz")
    assert_equal(Transitions.from_dictionary(read_arrays(path)), data)


def keys(data):
    """Rows as sorted bytes, without truncations."""
    columns = (data.observation, data.action, data.next_observation, data.terminated)
    return sorted(b"".join(np.asarray(c[i]).tobytes() for c in columns) for i in range(len(data)))


def test_a_split_takes_whole_episodes():
    data = Transitions.collect(gymnasium.make("CartPole-v1"), steps=2_000, seed=2)
    rest, held_out = data.split(0.2, 2)
    assert sorted(keys(rest) + keys(held_out)) == keys(data)
    assert abs(len(held_out) - 400) <= int(data.steps_left.max()) / 2
    # No episode is cut: their lengths are those of all the data.
    lengths = [np.diff(np.flatnonzero(d.ends), prepend=-1) for d in (rest, held_out, data)]
    np.testing.assert_array_equal(np.sort(np.concatenate(lengths[:2])), np.sort(lengths[2]))
    for one, other in zip((rest, held_out), data.split(0.2, 2), strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_few_long_episodes_are_split_in_blocks(share):
    data = Transitions.collect(gymnasium.make("Pendulum-v1"), steps=1_000, seed=0)
    rest, held_out = data.split(share, 3)
    assert sorted(keys(rest) + keys(held_out)) == keys(data)
    assert abs(len(held_out) - share * 1_000) <= 50
    for part in (rest, held_out):
        # The constructor refuses rows that do not follow each other within an episode.
        assert_equal(dataclasses.replace(part), part)
    assert int(held_out.steps_left.max()) >= min(100, share * 1_000)


@pytest.fixture
def minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari")


def record(minari, environment, name, episodes=12, steps=30):
    """Record random episodes, cut after some steps, as a data set of Minari."""
    with warnings.catch_warnings():
        # Its authors are not named, and it leaves folders to the garbage collector.
        warnings.simplefilter("ignore")
        collector = minari.DataCollector(environment)
        collector.action_space.seed(0)
        for seed in range(episodes):
            collector.reset(seed=seed)
            for _ in range(steps):
                _, _, terminated, truncated, _ = collector.step(collector.action_space.sample())
                if terminated or truncated:
                    break
        dataset = collector.create_dataset(name)
        collector.close()
        del collector
    return dataset


@pytest.mark.integration
@pytest.mark.parametrize(
    ("environment", "first_action", "sizes"),
    [
        ("FrozenLake-v1", 0, (4, 16, None, None)),
        ("CartPole-v1", 0, (2, None, None, None)),
        ("Pendulum-v1", 0, (None, None, [-2.0], [2.0])),
        (Count(), 4, (2, 8, None, None)),
    ],
)
def test_a_data_set_of_minari_gives_what_was_recorded(minari, environment, first_action, sizes):
    made = gymnasium.make(environment) if isinstance(environment, str) else environment
    dataset = record(minari, made, "recorded/random-v0")
    episodes = list(dataset)
    data = Transitions.from_minari(dataset)
    for found, parts in (
        (data.observation, [e.observations[:-1] for e in episodes]),
        (data.action, [e.actions - first_action for e in episodes]),
        (data.next_observation, [e.observations[1:] for e in episodes]),
        (data.terminated, [e.terminations for e in episodes]),
    ):
        np.testing.assert_array_equal(found, np.concatenate(parts).reshape(found.shape))
    last = np.cumsum([len(e.actions) for e in episodes]) - 1
    np.testing.assert_array_equal(np.flatnonzero(data.ends), last)
    assert (data.num_actions, data.num_states, data.action_low, data.action_high) == sizes


@pytest.mark.integration
def test_dictionaries_of_minari_are_flattened_or_observed(minari):
    flat = gymnasium.wrappers.FlattenObservation(Places(Grid()))
    made = {"places/random-v0": Places(Grid()), "flat/random-v0": flat, "grid/random-v0": Grid()}
    places, flat, grid = (record(minari, made[name], name, episodes=3, steps=5) for name in made)
    data = Transitions.from_minari(places)
    assert_equal(data, Transitions.from_minari(flat))
    images = Transitions.from_minari(grid, observe=lambda seen: seen["image"])
    np.testing.assert_allclose(
        images.observation[:, :2, :2, 0].ravel() / 50, data.observation[:, 5:].ravel()
    )
    with pytest.raises(InputError, match="'image': an image, 'mission': text; use observe="):
        Transitions.from_minari(grid)
    with pytest.raises(InputError, match="observe that takes one, got KeyError: 'picture'"):
        Transitions.from_minari(grid, observe=lambda seen: seen["picture"])
