"""What pictures of agents show, of agents that have learned nothing yet."""

import dataclasses

import gymnasium
import jax
import numpy as np
import pytest

from rlreps.agents import AgentConfig, DQNConfig
from rlreps.agents.trainer import make_trainer, puddle_world_of
from rlreps.encoders import MLP
from rlreps.envs import render_frame
from rlreps.successor.grids import Grid
from rlreps.workflows import agents as agent_pictures
from rlreps.workflows.agents import Pictures, TrainedAgent, map_of_values

CONFIG = AgentConfig(
    encoder=MLP(hidden=(8,)),
    num_features=4,
    max_episode_steps=12,
    num_seeds=2,
)


def agent_in(environment, number=0, **changes):
    config = dataclasses.replace(CONFIG, environment=environment, **changes)
    loop = make_trainer(config)
    params = loop.init().memory.learner.params
    own = jax.tree.map(lambda leaf: leaf[number], params)
    return TrainedAgent(loop, config, number, own)


def test_values_are_in_the_rewards_unit_and_missing_inside_walls():
    agent = agent_in("puddle-world:two_room", dqn=DQNConfig(reward_scale=0.5))
    found = np.asarray(map_of_values(agent, puddle_world_of(agent.config), 20))
    centres = Grid(20).centres()
    x, y = centres.T
    walls = (x > 0.4) & (x < 0.6) & ((y > 0.6) | (y < 0.4))
    np.testing.assert_array_equal(np.isnan(found), np.tile(walls[:, None], (1, 4)))
    expected = 2.0 * np.asarray(agent.trainer.agent.network.values(agent.params, centres))
    np.testing.assert_allclose(found[~walls], expected[~walls], rtol=1e-5)


def test_puddles_that_are_no_walls_hide_nothing():
    agent = agent_in("puddle-world")
    assert np.isfinite(map_of_values(agent, puddle_world_of(agent.config))).all()


def test_an_episode_is_drawn_from_its_start_to_its_end():
    agent = agent_in("puddle-world:empty", number=1)
    world = puddle_world_of(agent.config)
    frames = list(agent_pictures._puddle_world_frames(agent, world))
    assert 2 <= len(frames) <= 13  # the first one, and one a step
    again = list(agent_pictures._puddle_world_frames(agent, world))
    np.testing.assert_array_equal(frames, again)
    empty = render_frame(world)
    assert all(np.any(frame != empty) for frame in frames)
    other = agent_in("puddle-world:empty", number=0)
    assert np.any(frames[0] != next(agent_pictures._puddle_world_frames(other, world)))


def test_long_episodes_are_cut_with_a_note_and_large_pictures_made_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_pictures, "_MOST_FRAMES", 3)
    agent = agent_in("CartPole-v1")
    pictures = Pictures([], [])
    agent_pictures._draw_episode(agent, None, tmp_path / "episode.gif", pictures)
    agent.trainer.close()
    assert pictures.written == [tmp_path / "episode.gif"]
    assert pictures.notes == ["episode.gif shows the first 3 frames"]


class Unseen(gymnasium.Env):
    """An environment that does not draw itself."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)


class Undrawable(Unseen):
    """One that would with a package that is not there."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def render(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed, run `pip install`")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Unseen, "expected an environment that draws itself or whose observations are images"),
        (Undrawable, "expected a package to draw with, got: pygame is not installed, run `pip"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_a_note(tmp_path, kind, reason):
    gymnasium.register(id="Dark-v0", entry_point=kind)
    try:
        agent = TrainedAgent(None, dataclasses.replace(CONFIG, environment="Dark-v0"), 0, {})
        pictures = Pictures([], [])
        agent_pictures._draw_episode(agent, None, tmp_path / "episode.gif", pictures)
    finally:
        del gymnasium.registry["Dark-v0"]
    assert pictures.written == []
    (note,) = pictures.notes
    assert note.startswith(f"no episode.gif: {reason}")
    assert list(tmp_path.iterdir()) == []


def test_without_a_ground_truth_there_are_no_components(tmp_path):
    agent = agent_in("puddle-world:empty")
    world, pictures = puddle_world_of(agent.config), Pictures([], [])
    agent_pictures._draw_components(agent, world, None, tmp_path / "components.png", pictures)
    assert pictures.written == []
    (note,) = pictures.notes
    assert note.startswith("no components.png: no ground truth comes with puddle-world:empty")


@pytest.mark.parametrize(
    ("shape", "expected"), [((100, 80, 3), (100, 80)), ((800, 400, 3), (320, 160))]
)
def test_pictures_are_at_most_320_pixels_a_side(shape, expected):
    picture = np.full(shape, 7, np.uint8)
    small = agent_pictures._picture(lambda: picture)
    assert small.shape == (*expected, 3)
    assert np.all(small == 7)
