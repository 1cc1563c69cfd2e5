"""Environments on the host: Gymnasium's and dm_env's behind one interface."""

import dataclasses
import sys

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rlreps.agents import AgentConfig, DQNConfig, make_program
from rlreps.agents.host_environments import HostEnvironments
from rlreps.agents.host_observations import map_observations
from rlreps.agents.program import warn_of_ranges
from rlreps.encoders import MLP
from rlreps.errors import InputError


class Corridor(gymnasium.Env):
    """Episodes of two steps, or three if the first action is 1; the second kind is cut, not ended.

    Observations count the steps of the episode and the episodes so far.
    """

    observation_space = spaces.Box(np.float32([0.0, -np.inf]), np.float32([4.0, np.inf]))
    action_space = spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes = 1 if seed is not None else self.episodes + 1
        self.time, self.long = 0, False
        return self.observe(), {}

    def step(self, action):
        assert action in (5, 6)
        self.long = action == 6 if self.time == 0 else self.long
        self.time += 1
        ended = self.time == (3 if self.long else 2)
        return self.observe(), 10.0 * self.time, ended and not self.long, ended and self.long, {}

    def observe(self):
        return np.array([self.time, self.episodes], np.float32)


class AsDmEnv(dm_env.Environment):
    """An environment of Gymnasium as one of dm_env."""

    def __init__(self, inner, observations, first_action, seed=None):
        self.inner, self.observations = inner, observations
        self.first_action, self.seed = first_action, seed

    def reset(self):
        observation, _ = self.inner.reset(seed=self.seed)
        self.seed = None
        return dm_env.restart(observation)

    def step(self, action):
        chosen = action + self.first_action
        observation, reward, terminated, truncated, _ = self.inner.step(chosen)
        if terminated:
            return dm_env.termination(reward, observation)
        if truncated:
            return dm_env.truncation(reward, observation)
        return dm_env.transition(reward, observation)

    def observation_spec(self):
        return self.observations

    def action_spec(self):
        return specs.DiscreteArray(2)


class CorridorDmEnv(AsDmEnv):
    """The same, for dm_env."""

    def __init__(self, seed=0):
        seen = specs.BoundedArray((2,), np.float32, [0.0, -np.inf], [4.0, np.inf])
        super().__init__(Corridor(), seen, 5, seed)


class CorridorVector(gymnasium.vector.VectorEnv):
    """A vector entry point that resets within the step, which makes it unfit."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs):
        pass


class Featureless(gymnasium.Env):
    """Any spaces; never ends."""

    def __init__(self, observation_space, action_space=None, value=None, reward=0.0):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.value, self.reward = value, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.value if self.value is not None else self.observation_space.sample(), {}

    def step(self, action):
        return self.reset()[0], self.reward, False, False, {}


def make_in_vain():
    raise RuntimeError("no licence")


@pytest.fixture
def register():
    """Registers environments for one test."""
    names = set()

    def add(name, entry_point, **settings):
        gymnasium.registry.pop(name, None)
        gymnasium.register(id=name, entry_point=entry_point, **settings)
        names.add(name)
        return name

    yield add
    for name in names:
        del gymnasium.registry[name]


@pytest.fixture(params=["gymnasium", "unfit_vector_entry", "dm_env"])
def corridor(request, register, monkeypatch):
    """The name of the corridor in each kind of environment."""
    if request.param == "dm_env":
        return name_of(CorridorDmEnv, monkeypatch)
    unfit = {"vector_entry_point": CorridorVector}
    return register("Corridor-v0", Corridor, **(unfit if "vector" in request.param else {}))


def name_of(maker, monkeypatch):
    """The name of a dm_env environment that is made by a function of this file."""
    monkeypatch.setitem(sys.modules, "of_this_test", sys.modules[__name__])
    return f"dm_env:of_this_test:{maker.__name__}"


def test_the_step_after_an_episodes_end_starts_the_next_and_ignores_its_action(corridor):
    environments = HostEnvironments(corridor, 2)
    assert (environments.num_envs, environments.num_actions) == (2, 2)
    first = environments.reset([3, 4])
    np.testing.assert_array_equal(first, [[0.0, 1.0], [0.0, 1.0]])
    # Copy 0 takes the short way, copy 1 the long one.
    ways = [[0, 1], [0, 0], [1, 0], [1, 0], [1, 1]]
    steps = [environments.step(np.array(actions, np.int32)) for actions in ways]
    seen = np.stack([step.observation for step in steps])
    # Time, a quarter of a unit each as its bound is 4; episodes, which have no bound.
    np.testing.assert_array_equal(4 * seen[:, 0, 0], [1, 2, 0, 1, 2])
    np.testing.assert_array_equal(seen[:, 0, 1], [1, 1, 2, 2, 2])
    np.testing.assert_array_equal(4 * seen[:, 1, 0], [1, 2, 3, 0, 1])
    np.testing.assert_array_equal(seen[:, 1, 1], [1, 1, 1, 2, 2])
    rewards = np.stack([step.reward for step in steps])
    np.testing.assert_array_equal(rewards.T, [[10, 20, 0, 10, 20], [10, 20, 30, 0, 10]])
    terminated = np.stack([step.terminated for step in steps])
    np.testing.assert_array_equal(terminated.T, [[0, 1, 0, 0, 0], [0] * 5])
    truncated = np.stack([step.truncated for step in steps])
    np.testing.assert_array_equal(truncated.T, [[0] * 5, [0, 0, 1, 0, 0]])
    # A reset starts over in the midst of episodes; results were not overwritten by later steps.
    np.testing.assert_array_equal(environments.reset([3, 4]), first)
    np.testing.assert_array_equal(first, [[0.0, 1.0], [0.0, 1.0]])
    environments.close()


def test_a_limit_cuts_episodes_of_environments_that_name_none(corridor):
    environments = HostEnvironments(corridor, 1, max_episode_steps=2)
    environments.reset([0])
    steps = [environments.step(np.array([1])) for _ in range(6)]
    assert [step.truncated[0] for step in steps] == [False, True, False] * 2
    assert not any(step.terminated[0] for step in steps)
    environments.step(np.array([0]))
    assert environments.step(np.array([0])).terminated[0]
    environments.close()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "shape", "num_actions"),
    [
        ("CartPole-v1", (4,), 2),
        ("LunarLander-v3", (8,), 4),
        ("FrozenLake-v1", (16,), 4),
        ("rlreps.envs:rlreps/PuddleWorld-v0", (2,), 4),
        ("dm_env:rlreps.envs:PuddleWorldDmEnv", (2,), 4),
        ("ALE/Pong-v5", (84, 84, 4), 6),
    ],
)
def test_a_copy_of_what_people_know_is_decided_by_its_own_seed_alone(name, shape, num_actions):
    dtype = np.uint8 if len(shape) == 3 else np.float32
    found = HostEnvironments(name, 1)
    seen = (found.observation_shape, found.observation_dtype)
    assert (found.num_actions, *seen) == (num_actions, shape, dtype)
    seeds, actions = [8, 3, 90], np.random.default_rng(0).integers(num_actions, size=(100, 3))
    together = HostEnvironments(name, 3, max_episode_steps=40)
    alone = HostEnvironments(name, 1, max_episode_steps=40)

    def played(environments, copies, shift=0):
        seen = [environments.reset([seeds[copy] + shift for copy in copies])]
        steps = [environments.step(row[copies]) for row in actions]
        rewards = np.stack([step.reward for step in steps])
        return np.stack([*seen, *(step.observation for step in steps)]), rewards

    first, again, other = (played(together, [0, 1, 2], shift) for shift in (0, 0, 1))
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert np.any(first[0] != other[0])
    assert np.any(first[0][:, 0] != first[0][:, 1])
    # Batched and single code may round differently.
    for one, single in zip(first, played(alone, [2]), strict=True):
        np.testing.assert_allclose(one[:, 2], single[:, 0], atol=1e-5)
    together.close()
    alone.close()


class CounterVector(gymnasium.vector.VectorEnv):
    """Copies that see their seeds, then how many steps they took."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    takes = list
    single_observation_space = spaces.Box(-np.inf, np.inf, (1,))
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs, max_episode_steps=None):
        self.num_envs = num_envs

    def reset(self, *, seed=None, options=None):
        if not isinstance(seed, self.takes):
            raise TypeError("no such seeds")
        self.seed, self.time = seed, 0
        return np.float32(seed)[:, np.newaxis], {}

    def step(self, actions):
        self.time += 1
        nothing = np.zeros(self.num_envs, np.bool_)
        return np.full((self.num_envs, 1), self.time), np.zeros(self.num_envs), nothing, nothing, {}


@pytest.mark.parametrize(
    ("takes", "limit", "used"),
    [(list, 30, True), (np.ndarray, 30, True), (int, 2, False), (list, None, False)],
)
def test_a_vector_entry_point_is_used_if_it_takes_a_limit_and_a_seed_for_each_copy(
    takes, limit, used, register, monkeypatch
):
    """Else copies, which see zeros, are made one by one and cut at the limit."""
    monkeypatch.setattr(CounterVector, "takes", takes)
    space = CounterVector.single_observation_space
    name = register(
        "Counter-v0",
        lambda: Featureless(space, value=np.zeros(1, np.float32)),
        vector_entry_point=CounterVector,
        max_episode_steps=limit,
    )
    environments = HostEnvironments(name, 2, max_episode_steps=3)
    assert environments.max_episode_steps == (limit or 3)
    np.testing.assert_array_equal(environments.reset([7, 4])[:, 0], [7, 4] if used else [0, 0])
    steps = [environments.step(np.array([0, 0])) for _ in range(limit or 3)]
    counted = np.arange(1, len(steps) + 1)
    assert [step.observation[1, 0] for step in steps] == (counted * used).tolist()
    if not used:
        assert [step.truncated[1] for step in steps] == [False] * (len(steps) - 1) + [True]


@pytest.mark.parametrize(
    ("given", "reward", "what"),
    [
        (1e300, 0.0, "observations, got inf"),  # As a float32.
        (0.0, np.nan, "rewards, got nan"),
    ],
)
def test_what_is_no_number_is_refused(given, reward, what, register):
    space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    name = register("Featureless-v0", lambda: Featureless(space, None, np.array([given]), reward))
    environments = HostEnvironments(name, 1, max_episode_steps=5)

    def play():
        environments.reset([0])
        environments.step(np.array([0]))

    with pytest.raises(InputError, match=f"expected {name} to give finite numbers as {what}"):
        play()


def test_small_steps_at_a_large_offset_need_bounds():
    near, far = np.array([[0.0], [0.01]]), np.array([[5e6], [5e6 + 0.01]])
    space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    encode = map_observations(space, "Far-v0").encode
    encode(far[:1])
    with pytest.raises(InputError, match=r"Far-v0 to have .* got 5000000\.01 .* give bounds"):
        encode(far[1:])
    # Steps that single precision holds, and those between bounds or near zero.
    encode(far[:1] + 1.0)
    between = spaces.Box(5e6, 5e6 + 1.0, (1,), np.float64)
    for given, seen in ((space, near), (between, far)):
        np.testing.assert_allclose(map_observations(given, "").encode(seen), near, atol=1e-8)


def test_an_index_outside_its_space_is_refused():
    encode = map_observations(spaces.Discrete(3, start=-1), "Places-v0").encode
    for place in (-2, 2):
        with pytest.raises(
            InputError, match=rf"Places-v0 to have .* in \[-1, 2\), got \[{place}\]"
        ):
            encode(np.array([0, place]))


LOW = np.array([-2.0, -np.inf, 0.0, -1e7, 3.0, 0.0], np.float32)
HIGH = np.array([6.0, np.inf, np.inf, 1e7, 3.0, 1.0], np.float32)
MIXED = np.array([4.0, -7.0, 8.0, 5e6, 3.0, 0.3], np.float32)
LARGEST = np.full(1, np.finfo(np.float64).max)
LEAST, MOST = np.random.default_rng(0).uniform([[-3.0], [1.0]], [[0.0], [9.0]], (2, 50))
WIDE = spaces.Box(LEAST, MOST, dtype=np.float64)
COUNTED = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        # Coordinates with two bounds are scaled and no others.
        (spaces.Box(LOW, HIGH), MIXED, [0.75, -7.0, 8.0, 5e6, 3.0, 0.3]),
        # Bounds themselves become 0 and 1 in single precision; larger ones are none.
        (WIDE, MOST, np.ones(50)),
        (WIDE, LEAST, np.zeros(50)),
        (spaces.Box(-LARGEST, LARGEST, dtype=np.float64), np.array([2.0]), [2.0]),
        # Single precision would round 0.2 at this offset to 0.
        (spaces.Box(5e6, 5e6 + 1.0, (1,), np.float64), np.array([5e6 + 0.2]), [0.2]),
        (spaces.Box(0, 1, (3,), np.bool_), np.array([True, False, True]), [1.0, 0.0, 1.0]),
        # Numbers become unit vectors, whatever the first is.
        (spaces.Discrete(3, start=-1), 1, [0.0, 0.0, 1.0]),
        # Arrays with one long axis are vectors.
        (spaces.Box(-np.inf, np.inf, (3, 1, 1)), COUNTED.reshape(3, 1, 1), [0.0, 1.0, 2.0]),
        # Bytes that are no image are scaled.
        (spaces.Box(0, 255, (3,), np.uint8), np.uint8([0, 51, 255]), [0.0, 0.2, 1.0]),
    ],
)
def test_observations_that_are_no_images_become_vectors(space, value, expected, register):
    name = register("Featureless-v0", lambda: Featureless(space, value=value))
    environments = HostEnvironments(name, 1)
    seen = environments.reset([0])[0]
    np.testing.assert_array_equal(seen, np.float32(expected))
    assert seen.dtype == environments.observation_dtype == np.float32
    assert seen.shape == environments.observation_shape


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((6, 5, 3), (6, 5, 3)), ((6, 5), (6, 5, 1)), ((4, 6, 5), (6, 5, 4)), ((6, 5, 9), (6, 5, 9))],
)
def test_images_of_bytes_stay_bytes_with_channels_last(shape, expected, register):
    value = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    space = spaces.Box(0, 255, shape, np.uint8)
    name = register("Featureless-v0", lambda: Featureless(space, value=value))
    environments = HostEnvironments(name, 1)
    seen = environments.reset([0])[0]
    assert seen.dtype == environments.observation_dtype == np.uint8
    assert seen.shape == environments.observation_shape == expected
    oriented = (np.moveaxis(value, 0, -1) if shape[0] == 4 else value).reshape(expected)
    np.testing.assert_array_equal(seen, oriented)


@pytest.mark.parametrize(("largest", "said"), [(0.005, "0.005"), (2e3, r"2e\+03"), (1.0, None)])
def test_ranges_from_which_networks_hardly_learn_are_warned_of(largest, said):
    seen = np.zeros((1, 32, 2, 2), np.float32)
    seen[0, ::2, :, 0] = largest
    seen[0, 20:] = 1e9  # Not yet filled.
    if said is None:
        warn_of_ranges(seen, 20)  # Warnings are errors.
        return
    with pytest.warns(UserWarning, match=f"coordinate 0 of what agents see has a range of {said}"):
        warn_of_ranges(seen, 20)


def test_ranges_are_looked_at_once_after_the_warm_up(register):
    space = spaces.Box(-200.0, 200.0, (2,), np.float32)

    class Narrow(gymnasium.Wrapper):
        observation_space = space

        def reset(self, **options):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.array([2.0 * (action == 6), 0.0], np.float32), 0.0, True, False, {}

    name = register("Narrow-v0", lambda: Narrow(Corridor()))
    dqn = DQNConfig(warmup=64)
    config = AgentConfig(environment=name, encoder=MLP(hidden=(4,)), num_features=2, dqn=dqn)
    program = make_program(dataclasses.replace(config, steps=128, evaluate_every=64))
    with pytest.warns(UserWarning, match="range of 0.005"):
        state, _ = program.advance(program.init(), 0, 64)
    program.advance(state, 64, 64)  # Warnings are errors.


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            None,
            "observations in a Box or .* got Dict.* gymnasium.wrappers.FlattenObservation",
        ),
        (spaces.Discrete(2), spaces.MultiDiscrete([2, 3]), "discrete actions, got MultiDiscrete"),
    ],
)
def test_spaces_that_do_not_fit_are_refused(observations, actions, message, register):
    name = register("Featureless-v0", lambda: Featureless(observations, actions))
    with pytest.raises(InputError, match=f"expected Featureless-v0 to have {message}"):
        HostEnvironments(name, 1)


ONE_ARRAY = "to have observations in one array of numbers, got"


@pytest.mark.parametrize(
    ("method", "spec", "message"),
    [
        (
            "action_spec",
            specs.BoundedArray((2,), np.float32, -1.0, 1.0),
            "to have discrete actions, got Box",
        ),
        ("observation_spec", specs.StringArray((2,)), f"{ONE_ARRAY} StringArray"),
        ("observation_spec", {"a": specs.Array((2,), np.float32)}, f"{ONE_ARRAY} {{'a': Array"),
        ("reward_spec", specs.Array((3,), np.float32), "to have scalar rewards, got Array"),
    ],
)
def test_environments_of_dm_env_that_do_not_fit_are_refused(method, spec, message, monkeypatch):
    monkeypatch.setattr(CorridorDmEnv, method, lambda self: spec, raising=False)
    name = name_of(CorridorDmEnv, monkeypatch)
    with pytest.raises(InputError, match=f"expected {name} {message}"):
        HostEnvironments(name, 1)


def make_number_observer():
    return AsDmEnv(Featureless(spaces.Discrete(4), value=np.int32(2)), specs.DiscreteArray(4), 0)


def test_numbers_of_dm_env_are_seen(monkeypatch):
    numbers = HostEnvironments(name_of(make_number_observer, monkeypatch), 2)
    np.testing.assert_array_equal(numbers.reset([0, 1]), [[0, 0, 1, 0]] * 2)


class Misbehaved(CorridorDmEnv):
    """Goes wrong in its first step."""

    def step(self, action):
        if self.wrong == "raises":
            raise KeyError("motor")
        if self.wrong == "ends the process":
            sys.exit(0)
        return None if self.wrong is None else dm_env.transition(0.0, np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "to return a TimeStep, got None"),
        ("another shape", r"to give observations of shape \(2,\), got \(3,\)"),
        ("raises", "to take a step, got KeyError: 'motor'"),
        ("ends the process", "to take a step, got SystemExit: 0"),
    ],
)
def test_steps_that_go_wrong_are_refused_in_one_line(wrong, message, monkeypatch):
    environments = HostEnvironments(name_of(Misbehaved, monkeypatch), 1)
    environments.reset([0])
    monkeypatch.setattr(Misbehaved, "wrong", wrong, raising=False)
    with pytest.raises(InputError, match=f"^expected dm_env:of_this_test:Misbehaved {message}$"):
        environments.step(np.array([0]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nope-v0", "made from 'Nope-v0', got .*doesn't exist"),
        ("os.path.:Bar-v0", "a module's name before the environment's"),
        ("dm_env:of_this_test:make_in_vain", "RuntimeError: no licence"),
        ("dm_env:rlreps.envs:A:B", "expected dm_env:MODULE:FUNCTION"),
    ],
)
def test_names_that_stand_for_nothing_are_refused_in_one_line(name, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "of_this_test", sys.modules[__name__])
    with pytest.raises(InputError, match=message) as caught:
        HostEnvironments(name, 1)
    assert "\n" not in str(caught.value)


def test_an_unfit_vector_entry_point_without_a_single_environment_is_refused(register):
    name = register("Corridor-v0", None, vector_entry_point=CorridorVector)
    with pytest.raises(InputError, match="no copies with next-step autoreset"):
        HostEnvironments(name, 1)


def test_pictures_of_what_cannot_be_drawn_are_refused_at_once(corridor):
    with pytest.raises(InputError, match="expected an environment that draws itself"):
        HostEnvironments(corridor, 1, render=True)
