"""dm_env's own conformance tests, and what they leave out."""

import unittest

import numpy as np
import pytest
from dm_env import test_utils

from rlreps.envs import FourRoomsDmEnv, PuddleWorldDmEnv, load_arena, render_frame
from rlreps.errors import InputError


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


def test_goals_end_the_discount():
    steps = play(PuddleWorldDmEnv(load_arena("empty", noise=0.0)), [0, 1] * 40)
    last = next(step for step in steps if step.last())
    assert (last.discount, last.reward) == (0.0, -1.0)
    assert last.observation.sum() >= 1.9 - 1e-6


def test_unknown_actions_are_refused():
    environment = PuddleWorldDmEnv()
    environment.reset()
    with pytest.raises(InputError, match=r"an action in \[0, 4\), got 4"):
        environment.step(4)


def test_pictures_show_where_the_agent_is_before_and_during_an_episode():
    environment = PuddleWorldDmEnv("sutton", max_steps=7)
    world = environment.environment
    np.testing.assert_array_equal(environment.render(), render_frame(world))
    last = play(environment, [1, 1])[-1].observation
    np.testing.assert_array_equal(environment.render(), render_frame(world, last))
