"""Rollouts of Gymnasium's saved states, against tables of the same games."""

import dataclasses
import itertools
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from shlex import split as words

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import rlreps
from rlreps.app.main import main
from rlreps.config import with_sizes
from rlreps.cumulants import RandomFourier
from rlreps.envs import PuddleWorld
from rlreps.errors import InputError
from rlreps.worlds import StateSampling, World, sample_to_store, sampled
from rlreps.worlds.copies import digest_of_key
from rlreps.worlds.rollouts import SavedStates

SMALL = StateSampling(
    states=10,
    visits=60,
    tasks=40,
    rollouts=100,
    horizon=40,
    discount=0.8,
    seed=1,
    cumulants=RandomFourier(length_scale=1.0),
)
LAKE = 16


class OneHot(gymnasium.ObservationWrapper):
    """Places of FrozenLake as unit vectors."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (LAKE,), np.float32)

    def observation(self, observation):
        return np.eye(LAKE, dtype=np.float32)[observation]


class Lake(OneHot):
    """FrozenLake, whose ice is slippery, without the memory of the last action."""

    def __init__(self, **options):
        super().__init__(gymnasium.make("FrozenLake-v1", **options))

    def step(self, action):
        taken = super().step(action)
        self.unwrapped.lastaction = None
        return taken


CHANCES = np.array([0.1, 0.4, 0.4, 0.1])


def mostly_down_and_right(observation, generator):
    return int(generator.choice(4, p=CHANCES))


def exact_sums(found):
    """Return the discounted sums of the sampled states in FrozenLake's own table."""
    world = World.from_gymnasium_table(gymnasium.make("FrozenLake-v1").unwrapped)
    places = np.asarray(world.about["states"])
    policy = np.tile(CHANCES, (world.num_states, 1))
    psi = world.successor(policy, discount=SMALL.discount).matrix
    family = with_sizes(SMALL.cumulants, num_inputs=LAKE)
    params = sampled._draw_cumulants(family, SMALL, jnp.asarray(found.observations))
    values = np.asarray(family.apply(params, jnp.eye(LAKE)[places]))
    seen = np.argmax(found.observations, axis=1)
    acting = {int(place): row for row, place in enumerate(places) if not world.terminal[row]}
    return (psi @ values)[[acting[int(place)] for place in seen]], seen


def test_sums_are_those_of_the_game_s_table_within_the_stated_error(sample):
    found = sample(Lake(), SMALL, policy=mostly_down_and_right)
    exact, seen = exact_sums(found)
    assert len({*seen}) == 10
    rows, half = found.estimates
    assert np.square(rows - exact).mean() == pytest.approx(np.square(half).mean(), rel=0.5)
    assert np.sqrt(np.square(half).mean()) < 0.15 * exact.std()
    assert found.truth.num_states == 10


def test_sampling_again_gives_the_same_bits_and_other_rollouts_are_others(sample):
    few = dataclasses.replace(SMALL, rollouts=4)
    one, other = (sample(Lake(), few).estimates for _ in range(2))
    assert one.rows.tobytes() == other.rows.tobytes()
    assert np.abs(one.half_difference).min() > 0.0
    later = dataclasses.replace(few, count_start=False)
    again = sample(Lake(), later)
    first = with_sizes(few.cumulants, num_inputs=LAKE)
    params = sampled._draw_cumulants(first, few, jnp.asarray(again.observations))
    start = np.asarray(first.apply(params, jnp.asarray(again.observations)))
    # 39 of its 40 terms are those of the sum with the start.
    np.testing.assert_allclose(start + 0.8 * again.estimates.rows, one.rows, atol=0.01)


def test_workers_that_make_the_environment_compute_the_same_bits(monkeypatch, sample):
    monkeypatch.setattr(sampled, "_BLOCK_ROWS", 3)
    few = dataclasses.replace(SMALL, rollouts=4)
    alone = sample(Lake(), few, policy=mostly_down_and_right).estimates
    with ThreadPoolExecutor(2) as workers:
        found = sample(Lake, few, policy=mostly_down_and_right, executor=workers).estimates
    assert found.rows.tobytes() == alone.rows.tobytes()
    assert found.half_difference.tobytes() == alone.half_difference.tobytes()


def test_an_environment_may_be_callable_and_work_must_be_sent(sample, tmp_path):
    class Callable(Lake):
        def __call__(self):
            raise AssertionError

    few = dataclasses.replace(SMALL, states=3, rollouts=2, horizon=2)
    assert len(sample(Callable(), few).observations) == 3
    with ThreadPoolExecutor(1) as workers:
        lock = threading.Lock()
        own = {"policy": lambda seen, generator: int(lock is None), "executor": workers}
        with pytest.raises(InputError, match="work that cloudpickle can send to another process"):
            sample_to_store(tmp_path / "unsent", Lake, few, **own)
        with pytest.raises(InputError, match="a function that makes an environment of Gymnasium"):
            sample_to_store(tmp_path / "compiled", PuddleWorld, few, executor=workers)


class Walk(gymnasium.Env):
    """A walk on seven places whose luck comes from a generator of its own."""

    observation_space = gymnasium.spaces.Box(0.0, 6.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    luck = property(lambda self: self.generator.random())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.generator = self.of_seed(seed)
        self.place = 3
        return np.array([self.place], np.float32), {}

    def step(self, action):
        del action
        self.place = int(np.clip(self.place + (1 if self.luck < 0.5 else -1), 0, 6))
        return np.array([self.place], np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("of_seed", [random.Random, np.random.RandomState, np.random.default_rng])
def test_a_generator_of_the_environment_s_own_is_no_part_of_its_state(sample, of_seed):
    class Own(Walk):
        pass

    Own.of_seed = staticmethod(of_seed)
    found = sample(Own(), dataclasses.replace(SMALL, states=7, rollouts=20))
    assert sorted(found.observations[:, 0]) == [*range(7)]
    # With copied generators, rollouts of a state would be one another's copies.
    assert (np.abs(found.estimates.half_difference).max(axis=1) > 0.01).all()


def test_states_are_drawn_from_all_visits(sample):
    class Far(Walk):
        """Goes on to places that it has not visited."""

        of_seed = staticmethod(np.random.default_rng)

        def step(self, action):
            taken = super().step(action)
            self.place = self.went = getattr(self, "went", 0) + 1
            return (np.array([self.place], np.float32), *taken[1:])

    found = sample(Far(), dataclasses.replace(SMALL, states=50, rollouts=2, horizon=2))
    visits = 16 * 50
    assert found.observations.mean() == pytest.approx(visits / 2, abs=4 * visits / np.sqrt(12 * 50))


class Luck:
    """A part of a game that shares the environment's generator."""

    def __init__(self, generator):
        self.generator = generator


class Sharing(Walk):
    of_seed = staticmethod(np.random.default_rng)
    luck = property(lambda self: self.part.generator.random())

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self.part = Luck(self.np_random)
        return found


@pytest.mark.parametrize("of_seed", [None, random.Random, np.random.RandomState])
def test_a_rollout_has_the_same_bits_whatever_rollouts_came_before(of_seed):
    class Own(Sharing if of_seed is None else Walk):
        pass

    if of_seed is not None:
        Own.of_seed = staticmethod(of_seed)
    states = SavedStates(Own(), StateSampling(states=3, visits=70))
    first, other = (np.array(states.rollout(1, number, 30)) for number in (0, 1))
    assert not np.array_equal(first, other)
    states.rollout(2, 0, 5)
    np.testing.assert_array_equal(states.rollout(1, 0, 30), first)


def test_states_of_minus_one_and_minus_two_are_two():
    assert digest_of_key(((0, "place"), -1)) != digest_of_key(((0, "place"), -2))
    assert digest_of_key(((0, "place"), -1)) == digest_of_key(((0, "place"), -1.0))
    assert digest_of_key((True, 0.0)) == digest_of_key((1, -0.0))
    assert digest_of_key((1, (2,))) != digest_of_key((1, 2))


class Clocked(Walk):
    """Goes round five places with a clock, by steps that are counted in an attribute."""

    of_seed = staticmethod(np.random.default_rng)

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self.time = self.place = 0
        return np.zeros(1, np.float32), found[1]

    def step(self, action):
        self.time += 1
        self.place = self.time % 5
        return np.array([self.place], np.float32), 0.0, False, False, {}


def test_an_attribute_that_tells_no_states_apart_is_restored(sample):
    few = dataclasses.replace(SMALL, states=5, rollouts=2, horizon=3)
    found = sample(Clocked(), few)
    starts = found.observations[:, 0].astype(int)
    assert sorted(starts) == [*range(5)]
    family = with_sizes(few.cumulants, num_inputs=1)
    params = sampled._draw_cumulants(family, few, jnp.asarray(found.observations))
    values = np.asarray(family.apply(params, jnp.arange(5, dtype=jnp.float32)[:, None]))
    expected = sum(few.discount**time * values[(starts + time) % 5] for time in range(3))
    np.testing.assert_allclose(found.estimates.rows, expected, atol=1e-5)


class Emulator:
    """An emulator that cannot be pickled and clones its state."""

    def __init__(self):
        self.place, self.held = 3, (each for each in ())

    def cloneState(self, *, include_rng=False):  # noqa: N802
        return (self.place,)

    def restoreState(self, state):  # noqa: N802
        (self.place,) = state


class Emulated(Walk):
    of_seed = staticmethod(np.random.default_rng)
    place = property(
        lambda self: self.emulator.place, lambda self, place: setattr(self.emulator, "place", place)
    )

    def __init__(self):
        self.emulator = Emulator()


def test_an_emulator_s_clones_are_states(sample):
    few = dataclasses.replace(SMALL, states=7, rollouts=60)
    found, plain = sample(Emulated(), few), Walk()
    plain.of_seed = np.random.default_rng
    expected = sample(plain, few)
    order, other = (np.argsort(each.observations[:, 0]) for each in (found, expected))
    error = np.sqrt(np.square(expected.estimates.half_difference).mean())
    apart = found.estimates.rows[order] - expected.estimates.rows[other]
    assert np.sqrt(np.square(apart).mean()) < 2.5 * error
    assert expected.estimates.rows.std(axis=0).mean() > 5.0 * error


class Elsewhere(Walk):
    """Keeps its place in an attribute of its class."""

    of_seed = staticmethod(np.random.default_rng)
    luck = property(lambda self: self.np_random.random())
    kept = Emulator()
    place = property(
        lambda self: Elsewhere.kept.place,
        lambda self, place: setattr(Elsewhere.kept, "place", place),
    )

    def step(self, action):
        self.tick = getattr(self, "tick", 0) + 1
        return super().step(action)


def test_a_warning_tells_that_copies_do_not_reach_the_state(sample, tmp_path):
    few = dataclasses.replace(SMALL, rollouts=2, horizon=2)
    with pytest.warns(UserWarning, match=r"steps from only \d of 16 saved states lead") as told:
        sample_to_store(tmp_path, Elsewhere(), few)
    assert told[0].filename == __file__
    given = {
        "save": lambda env: env.unwrapped.place,
        "restore": lambda env, place: setattr(env.unwrapped, "place", place),
    }
    assert len(sample(Elsewhere(), dataclasses.replace(few, states=7), **given).observations)


class Made(Walk):
    """Starts in another place each time that it is made."""

    of_seed = staticmethod(np.random.default_rng)
    made = itertools.count()

    def __init__(self):
        self.first = next(Made.made)

    def reset(self, **options):
        super().reset(**options)
        self.place = 3 + self.first % 2
        return np.array([self.place], np.float32), {}


class Refusing(Walk):
    of_seed = staticmethod(np.random.default_rng)

    def __init__(self):
        self.held = (each for each in ())


@pytest.mark.parametrize(
    ("environment", "changes", "options", "said"),
    [
        (Lake, {"states": 12}, {}, r"12 distinct states among 720 visits, got 11; ask for fewer"),
        (Lake, {"states": 10**9}, {}, "saved states in .* of memory"),
        (Refusing, {}, {}, "whose state can be copied, or functions save and restore, got TypeE"),
        (Lake, {}, {"save": lambda env: 0}, "both save and restore"),
        (Lake, {}, {"policy": lambda seen: 0}, "an environment and a policy that take steps"),
        (
            lambda: gymnasium.make("CartPole-v1", max_episode_steps=5),
            {"horizon": 7},
            {},
            "runs for 6 steps from every state, got one that is truncated after 5",
        ),
        (lambda: gymnasium.make("Blackjack-v1"), {}, {}, "FlattenObservation.*got 'a tuple'"),
        (Lake, {}, {"executor": True}, "a function that makes an environment of Gymnasium"),
        (
            lambda: Made,
            {"states": 5},
            {"executor": True},
            "an environment that visits the same states in each worker",
        ),
    ],
    ids=["states", "memory", "copies", "save", "policy", "limit", "tuple", "made", "workers"],
)
def test_sampling_refuses_what_does_not_fit(tmp_path, environment, changes, options, said):
    sampling = dataclasses.replace(SMALL, rollouts=2, **changes)
    with ThreadPoolExecutor(1) as workers:
        given = {**options, "executor": workers} if "executor" in options else options
        with pytest.raises(InputError, match=said):
            sample_to_store(tmp_path, environment(), sampling, **given)


@pytest.mark.integration
def test_worlds_sample_takes_games_of_gymnasium_and_an_agent_s_policy(tmp_path, capsys):
    run = tmp_path / "run"
    few = "--steps 1500 --evaluate-every 500 --evaluation-episodes 2"
    main(words(f"agent train --env CartPole-v1 --out {run} {few}"))
    capsys.readouterr()
    lake = (
        f"worlds sample --env FrozenLake-v1 --states 5 --tasks 8 --rollouts 2 --out {tmp_path}/lake"
    )
    main(words(lake))
    told = json.loads(capsys.readouterr().out)
    assert (told["states"], told["transitions"]) == (5, None)
    few, stores = "--states 60 --tasks 4 --rollouts 2 --horizon 5", []
    for jobs in (1, 2):
        stores.append(tmp_path / f"{jobs}-jobs")
        main(words(f"worlds sample --env CartPole-v1 --out {stores[-1]} {few} --jobs {jobs}"))
    alone, shared = (np.asarray(rlreps.successor.load(store).matrix) for store in stores)
    assert alone.tobytes() == shared.tobytes(), "three blocks"
    capsys.readouterr()
    for policy in ("uniform", run):
        out = tmp_path / f"store-{policy == run}"
        small = "--states 20 --tasks 16 --rollouts 8 --horizon 10"
        main(words(f"worlds sample --env CartPole-v1 --policy {policy} --out {out} {small}"))
        told = json.loads(capsys.readouterr().out)
        assert (told["states"], told["aliased"]) == (20, 0)
        observations = rlreps.successor.load(out).observations
        # As an agent sees them: bounded numbers are between 0 and 1.
        assert observations.shape == (20, 4)
        assert 0.0 < observations[:, 0].min() < observations[:, 0].max() < 1.0
