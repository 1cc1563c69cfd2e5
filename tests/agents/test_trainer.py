"""From the name of an environment to a loop: which one, with which world, and what is refused."""

import dataclasses
from contextlib import closing

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, ReplayConfig
from rlreps.agents.auxiliary import AuxiliaryTask
from rlreps.agents.compiled import CompiledTrainer
from rlreps.agents.host import HostTrainer
from rlreps.agents.trainer import make_trainer, puddle_world_of
from rlreps.encoders import MLP, FunctionEncoder
from rlreps.envs import ArenaError, load_arena
from rlreps.errors import InputError

CONFIG = AgentConfig(
    encoder=MLP(hidden=(16,)),
    num_features=8,
    dqn=DQNConfig(batch_size=8, warmup=48, epsilon_steps=200, target_every=20),
    replay=ReplayConfig(capacity=400),
    num_envs=2,
    max_episode_steps=20,
    steps=200,
    evaluate_every=40,
    checkpoint_every=200,
    evaluation_episodes=3,
    num_seeds=2,
)


def config_for(environment, **changes):
    return dataclasses.replace(CONFIG, environment=environment, **changes)


class Slide(gymnasium.Env):
    """A user's own: to the right end of a line from anywhere on it."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(0.0, 0.9)
        return np.float32([self.place]), {}

    def step(self, action):
        self.place = np.clip(self.place + (0.1 if action else -0.1), 0.0, 1.0)
        return np.float32([self.place]), -0.1, bool(self.place >= 0.99), False, {}


class Film(gymnasium.Env):
    """Images for observations."""

    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = spaces.Discrete(2)


@pytest.fixture(autouse=True)
def environments():
    """Registers this file's environments."""
    own = {"Slide-v0": Slide, "Film-v0": Film}
    for name, kind in own.items():
        gymnasium.register(id=name, entry_point=kind)
    yield
    for name in own:
        del gymnasium.registry[name]


def test_puddle_world_comes_with_its_task_the_arena_and_the_limit():
    assert puddle_world_of(config_for("CartPole-v1")) is None
    assert puddle_world_of(config_for("dm_env:rlreps.envs:PuddleWorldDmEnv")) is None
    for name, arena in (("puddle-world", "sutton"), ("puddle-world:two_room", "two_room")):
        world = puddle_world_of(config_for(name))
        assert world == dataclasses.replace(load_arena(arena).with_task(), max_steps=20)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ("puddle-world:empty", CompiledTrainer),
        ("Slide-v0", HostTrainer),
        ("dm_env:rlreps.envs:PuddleWorldDmEnv", HostTrainer),
    ],
)
def test_any_environment_has_a_loop_that_learns_and_evaluates(environment, kind):
    with closing(make_trainer(config_for(environment))) as loop:
        assert isinstance(loop, kind)
        state = loop.init()
        before = jax.device_get(state.memory.learner.params)
        state, metrics = loop.advance(state, 0, 120)
        assert np.isfinite(metrics["value_loss"]).all()
        returns = loop.evaluate(state, 120)
        assert returns.shape == (2, 3)
        assert np.all(np.asarray(returns) < 0.0)
        after = jax.device_get(state.memory.learner.params)
        moved = jax.tree.map(lambda one, other: bool(np.any(one != other)), before, after)
        assert all(jax.tree.leaves(moved))


def squares():
    """A torso of a user's own: φ = (w x)², without hidden layers to tell of."""

    def apply(params, observations):
        return (observations @ params["w"]) ** 2

    return FunctionEncoder(lambda key: {"w": jax.random.normal(key, (1, 8))}, apply)


def test_a_torso_and_an_auxiliary_task_of_the_users_own_take_the_configured_ones_places():
    def loss(params, target_params, encode, rows, state, key):
        assert rows.observation.shape[:2] == (4, 3)
        # Features are to be small; the state counts updates.
        return jnp.mean(encode(params, rows.observation[:, 0]) ** 2), (state + 1, {})

    own = AuxiliaryTask(lambda key: jnp.zeros((), jnp.int32), loss, sequences=4, length=3)
    config = config_for("Slide-v0", auxiliary=AuxiliaryConfig(weight=100.0, horizon=3))
    with closing(make_trainer(config, torso=squares(), auxiliary=own)) as loop:
        state = loop.init()
        assert set(state.memory.learner.params["torso"]) == {"w"}
        before = np.abs(np.asarray(state.memory.learner.params["torso"]["w"])).mean()
        state, metrics = loop.advance(state, 0, 200)
        assert state.memory.learner.auxiliary.tolist() == [(200 - 48) // 4] * 2
        assert metrics["auxiliary_loss"].shape == (2,)
        assert np.abs(np.asarray(state.memory.learner.params["torso"]["w"])).mean() < before


def test_an_auxiliary_task_of_the_users_own_has_to_fit_the_memory():
    own = AuxiliaryTask(lambda key: (), lambda *arguments: None, sequences=4, length=9)
    config = config_for("Slide-v0", auxiliary=AuxiliaryConfig(weight=1.0, horizon=8))
    with pytest.raises(InputError, match=r"an auxiliary task of at most 8 rows a sequence .*got 9"):
        make_trainer(config, auxiliary=own)


@pytest.mark.parametrize(
    ("environment", "error", "message"),
    [
        ("puddle-world:nowhere", ArenaError, "expected an arena .*, got 'nowhere'"),
        ("Nowhere-v0", InputError, "expected an environment that can be made, got 'Nowhere-v0'"),
        ("Pendulum-v1", InputError, "expected Pendulum-v1 to have discrete actions, got Box"),
        ("Film-v0", InputError, "expected observations that are vectors, for the torso mlp; im"),
        ("dm_env:rlreps.envs", InputError, "expected dm_env:MODULE:FUNCTION, got"),
    ],
)
def test_what_agents_cannot_act_in_is_refused(environment, error, message):
    with pytest.raises(error, match=message):
        make_trainer(config_for(environment))
