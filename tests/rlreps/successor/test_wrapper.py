"""Features in place of observations: one environment against a vector, and what it costs."""

import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlreps.errors import InputError
from rlreps.successor import (
    RepresentationObservation,
    RepresentationVectorObservation,
    wrapper,
)


class Waves:
    """Features cos(x w), of indices as of vectors, and how often they were asked for."""

    num_features = 3

    def __init__(self, size=1, most=None):
        self.weights = np.random.default_rng(0).normal(size=(size, 3))
        self.most, self.calls = most, []

    def features(self, observations, *, scaling="singular"):
        self.calls.append(len(observations))
        if self.most is not None and np.max(observations) > self.most:
            raise InputError(f"expected states up to {self.most}")
        scale = {"singular": 1.0, "white": 2.0}[scaling]
        return scale * np.cos(observations.reshape(len(observations), -1) @ self.weights)


class Late(gymnasium.Env):
    """Numbers 3, 4, ... of states, of which 7 ends the episode."""

    observation_space = gymnasium.spaces.Discrete(5, start=3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 3 + int(self.np_random.integers(2))
        return self.place, {}

    def step(self, action):
        self.place += int(action)
        return self.place, float(action), self.place == 7, False, {}


def pole():
    return gymnasium.make("CartPole-v1")


@pytest.mark.parametrize(("make", "size"), [(Late, 1), (pole, 4)])
def test_a_vector_shows_what_its_copies_would_show(make, size):
    rep = Waves(size)

    def shown():
        return RepresentationObservation(make(), rep, scaling="white")

    copies = SyncVectorEnv([shown] * 3)
    vector = RepresentationVectorObservation(SyncVectorEnv([make] * 3), rep, scaling="white")
    assert vector.single_observation_space == copies.single_observation_space
    assert vector.observation_space == copies.observation_space
    np.testing.assert_array_equal(copies.reset(seed=1)[0], vector.reset(seed=1)[0])
    rep.calls.clear()
    ended = 0
    for actions in np.random.default_rng(0).integers(2, size=(40, 3)):
        rep.calls.clear()
        found = vector.step(actions)
        assert rep.calls == ([] if make is Late else [3]), "none from a table, one call otherwise"
        expected = copies.step(actions)
        for one, other in zip(found[:4], expected[:4], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
        assert found[0].dtype == np.float32
        ended += found[2].sum()
    assert ended


def test_features_of_numbered_states_are_computed_once_and_stay_as_they_are():
    rep = Waves()
    expected = rep.features(np.arange(3, 8))
    rep.calls.clear()
    environment = RepresentationObservation(Late(), rep)
    assert rep.calls == [5]
    for state in (3, np.int64(7)):
        shown = environment.observation(state)
        np.testing.assert_allclose(shown, expected[state - 3], rtol=1e-6)
        shown[:] = np.nan
        assert np.isfinite(environment.observation(state)).all(), "a caller's own array"
    assert rep.calls == [5]
    outside = environment.observation(2)
    np.testing.assert_allclose(outside, rep.features(np.array([2]))[0], rtol=1e-6)


@pytest.mark.parametrize("most_cached", [wrapper._MOST_CACHED, 14])
@pytest.mark.parametrize(
    "show",
    [
        lambda rep: RepresentationObservation(Late(), rep),
        lambda rep: RepresentationVectorObservation(SyncVectorEnv([Late]), rep),
    ],
)
def test_a_space_with_states_that_have_no_features_is_refused_at_once(
    show, most_cached, monkeypatch
):
    monkeypatch.setattr(wrapper, "_MOST_CACHED", most_cached)
    show(Waves())
    with pytest.raises(InputError, match="states up to 6"):
        show(Waves(most=6))


def test_spaces_too_large_for_a_table_are_computed_step_by_step(monkeypatch):
    monkeypatch.setattr(wrapper, "_MOST_CACHED", 14)
    rep = Waves()
    expected = rep.features(np.arange(3, 8))
    one = RepresentationObservation(Late(), rep)
    vector = RepresentationVectorObservation(SyncVectorEnv([Late] * 2), rep)
    np.testing.assert_allclose(one.observation(4), expected[1], rtol=1e-6)
    np.testing.assert_allclose(vector.observations([4, 7]), expected[[1, 4]], rtol=1e-6)


def test_a_vector_is_referred_to_its_own_wrapper():
    with pytest.raises(InputError, match="RepresentationVectorObservation takes vectors"):
        RepresentationObservation(SyncVectorEnv([Late]), Waves())
    modes = SyncVectorEnv([Late], autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match="NEXT_STEP or DISABLED"):
        RepresentationVectorObservation(modes, Waves())


@pytest.mark.integration
def test_numbered_states_cost_at_most_a_fifth_of_the_plain_environment():
    def seconds(environment):
        environment.reset(seed=0)
        start = time.perf_counter()
        for _ in range(2000):
            if environment.step(0)[2]:
                environment.reset()
        return time.perf_counter() - start

    plain = gymnasium.make("FrozenLake-v1")
    shown = RepresentationObservation(gymnasium.make("FrozenLake-v1"), Waves())
    times = np.array([[seconds(plain), seconds(shown)] for _ in range(9)])
    best = times.min(axis=0)
    assert best[0] / best[1] > 0.8, times
