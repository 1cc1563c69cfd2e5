"""dm_env's own conformance tests, and what they leave out."""

import unittest

import dm_env
import numpy as np
import pytest
from dm_env import test_utils

from rlreps.envs import (
    ArenaError,
    FourRoomsDmEnv,
    PuddleWorldDmEnv,
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
class TestImagesInAMaze(test_utils.EnvironmentTestMixin, unittest.TestCase):
    def make_object_under_test(self):
        return FourRoomsDmEnv(observation="image", max_steps=9, goal=(0.9, 0.1, 0.05))


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


def test_unknown_actions_and_arenas_are_refused():
    environment = PuddleWorldDmEnv()
    environment.reset()
    with pytest.raises(ArenaError, match=r"an action in \{0, 1, 2, 3\}, got 4"):
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
