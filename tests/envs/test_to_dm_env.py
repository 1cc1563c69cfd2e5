"""dm_env's own conformance tests, and what they leave out."""

import unittest

import pytest
from dm_env import test_utils

from rlreps.envs import FourRoomsDmEnv, PuddleWorldDmEnv, load_arena


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


def test_goals_end_the_discount():
    environment = PuddleWorldDmEnv(load_arena("empty", noise=0.0))
    steps = [environment.reset(), *(environment.step(action) for action in [0, 1] * 40)]
    last = next(step for step in steps if step.last())
    assert environment.render().shape == (256, 256, 3)
    assert (last.discount, last.reward) == (0.0, -1.0)
    assert last.observation.sum() >= 1.9 - 1e-6
