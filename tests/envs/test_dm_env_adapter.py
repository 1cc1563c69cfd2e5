"""dm_env's own conformance tests, and what they leave out."""

import unittest

import dm_env
import numpy as np
import pytest
from dm_env import test_utils

from rlreps.envs import (
    ArenaError,
    BouncingBallsDmEnv,
    FourRoomsDmEnv,
    PuddleWorldDmEnv,
    SpiralDmEnv,
    load_arena,
    render_frame,
)


class TestShortEpisodes(test_utils.EnvironmentTestMixin, unittest.TestCase):
    def make_object_under_test(self):
        return PuddleWorldDmEnv("sutton", max_steps=7)


@pytest.mark.integration
class TestEpisodesThatReachTheGoal(test_utils.EnvironmentTestMixin, unittest.TestCase):
    def make_object_under_test(self):
        return PuddleWorldDmEnv("empty")

    def make_action_sequence(self):
        for step in range(80):
            yield step % 2  # up, right, up, ...


@pytest.mark.integration
class TestCodesInAMaze(test_utils.EnvironmentTestMixin, unittest.TestCase):
    def make_object_under_test(self):
        return SpiralDmEnv(observation="code", max_steps=9)


@pytest.mark.integration
class TestImagesInAMaze(test_utils.EnvironmentTestMixin, unittest.TestCase):
    def make_object_under_test(self):
        return FourRoomsDmEnv(observation="image", max_steps=9, goal=(0.9, 0.1, 0.05))


@pytest.mark.integration
class TestShortVideos(test_utils.EnvironmentTestMixin, unittest.TestCase):
    def make_object_under_test(self):
        return BouncingBallsDmEnv(max_steps=4, frame_size=16)


def video(seed=0):
    return BouncingBallsDmEnv(seed=seed, frame_size=16)


def play(environment, actions):
    return [environment.reset(), *(environment.step(action) for action in actions)]


def test_time_limits_keep_the_discount_and_goals_do_not():
    steps = play(PuddleWorldDmEnv("sutton", max_steps=7), [2] * 7)
    assert [step.last() for step in steps] == [False] * 7 + [True]
    assert steps[-1].discount == 1.0
    steps = play(PuddleWorldDmEnv(load_arena("empty", noise=0.0)), [0, 1] * 40)
    last = next(step for step in steps if step.last())
    assert last.discount == 0.0
    assert last.reward == -1.0
    assert last.observation.sum() >= 1.9 - 1e-6
    assert steps[steps.index(last) + 1].step_type is dm_env.StepType.FIRST


def test_the_seed_decides_everything():
    actions = np.random.default_rng(0).integers(4, size=20)
    paths = [
        np.stack([s.observation for s in play(PuddleWorldDmEnv(max_steps=7, seed=seed), actions)])
        for seed in (3, 3, 4, 2**32 + 3)
    ]
    np.testing.assert_array_equal(paths[0], paths[1])
    assert (paths[0] != paths[2]).any()
    assert (paths[0] != paths[3]).any()
    with pytest.raises(ArenaError, match="expected seeds >= 0, got -1"):
        PuddleWorldDmEnv(seed=-1)


def test_videos_are_decided_by_their_seed_and_have_one_action():
    videos = [
        np.stack([step.observation for step in play(video(seed=seed), [0] * 5)])
        for seed in (3, 3, 4)
    ]
    assert videos[0].shape == (6, 16, 16, 1)
    np.testing.assert_array_equal(videos[0], videos[1])
    assert (videos[0] != videos[2]).any()
    environment = video()
    environment.reset()
    with pytest.raises(ArenaError, match=r"expected an action in \{0\}, got 1"):
        environment.step(1)


def test_unknown_actions_and_arenas_are_refused():
    environment = PuddleWorldDmEnv(max_steps=7)
    environment.reset()
    with pytest.raises(ArenaError, match=r"expected an action in \{0, 1, 2, 3\}, got 4"):
        environment.step(4)
    with pytest.raises(ArenaError, match="expected an arena"):
        PuddleWorldDmEnv("moon")


def test_pictures_show_where_the_agent_is_before_during_and_after_an_episode():
    environment = PuddleWorldDmEnv("sutton", max_steps=7)
    world = environment.environment
    np.testing.assert_array_equal(environment.render(), render_frame(world))
    for step in play(environment, [1, 1]):
        last = step.observation
    np.testing.assert_array_equal(environment.render(), render_frame(world, last))
    film = video()
    film.reset()
    assert film.render().shape == (16, 16, 3)
