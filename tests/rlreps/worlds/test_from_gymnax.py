"""gymnax's environments behind the contract, against Gymnasium's."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import AgentConfig, gymnax_environment
from rlreps.agents.config import make_torso
from rlreps.encoders import Convolutional
from rlreps.envs import Environment
from rlreps.errors import InputError

pytest.importorskip("gymnax")
pytestmark = pytest.mark.usefixtures("users_promotion")


def test_episodes_of_cartpole_are_those_of_gymnasium():
    world = gymnax_environment("gymnax:CartPole-v1")
    assert isinstance(world, Environment)
    other = gymnasium.make("CartPole-v1").unwrapped
    other.reset()
    state, step = jax.jit(world.reset)(jax.random.key(0)), jax.jit(world.step)
    other.state = np.array([getattr(state.inner, n) for n in ("x", "x_dot", "theta", "theta_dot")])
    width = np.where(np.abs(other.observation_space.high) < 1e6, other.observation_space.high, 0.5)
    for count in range(100):
        action = count // 3 % 2
        taken = step(jax.random.key(count), state, jnp.int32(action))
        seen, reward, terminated, _, _ = other.step(action)
        state = taken.state
        # Positions and angles are bounded, and scaled to [0, 1]; speeds are not.
        expected = np.where(width == 0.5, seen, (seen / width + 1.0) / 2.0)
        np.testing.assert_allclose(taken.observation, expected, atol=1e-4)
        np.testing.assert_array_equal(taken.observation, world.observe(state))
        assert (float(taken.reward), bool(taken.terminated)) == (reward, terminated)
        if terminated:
            break
    assert terminated


def test_options_are_parameters_or_arguments_and_the_limit_truncates():
    name = "gymnax:FourRooms-misc:use_visual_obs=true,max_steps_in_episode=3,fail_prob=0"
    world = gymnax_environment(name)
    assert (world.num_actions, world.max_steps) == (4, 3)
    state = world.reset(jax.random.key(0))
    assert state.observation.shape == (13, 13, 2)
    ends = []
    for count in range(3):
        taken = jax.jit(world.step)(jax.random.key(count), state, jnp.int32(0))
        state = taken.state
        ends.append((bool(taken.terminated), bool(taken.truncated)))
    assert ends == [(False, False), (False, False), (False, True)]


def test_options_take_the_types_of_their_defaults():
    # The default number of steps is a float, and branches of the step do not mix types.
    bandit = gymnax_environment("gymnax:BernoulliBandit-misc:max_steps_in_episode=1")
    taken = bandit.step(jax.random.key(1), bandit.reset(jax.random.key(0)), jnp.int32(0))
    assert bool(taken.truncated)


def test_indices_are_unit_vectors_and_tables_are_pictures_of_one_channel():
    world = gymnax_environment("gymnax:FrozenLake-misc")
    start = world.reset(jax.random.key(0))
    np.testing.assert_array_equal(start.observation, np.eye(16)[0])
    taken = world.step(jax.random.key(1), start, jnp.int32(0))
    assert (taken.observation.shape, float(taken.observation.sum())) == ((16,), 1.0)
    encoder = Convolutional(channels=(2,), hidden=4)
    config = AgentConfig(environment="gymnax:Catch-bsuite", encoder=encoder, num_features=3)
    torso = make_torso(config, (10, 5))
    params, boards = torso.init(jax.random.key(0)), np.float32(np.eye(10, 5))[None]
    flat = torso.apply(params, boards)
    np.testing.assert_array_equal(flat, torso.apply(params, boards[..., None]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gymnax:CartPole-v7", "an environment of gymnax .*, got 'CartPole-v7'"),
        ("gymnax:CartPole-v1:gravity=strong", "JSON in gravity, got Expecting value"),
        ('gymnax:CartPole-v1:gravity="strong"', "a finite number or bool as gravity, got 'strong'"),
        ("gymnax:CartPole-v1:gravity=true", "gravity of type float, got True"),
        ("gymnax:CartPole-v1:max_steps_in_episode=2.5", "steps_in_episode of type int, got 2.5"),
        ("gymnax:BernoulliBandit-misc:max_steps_in_episode=2.5", "a whole number as max_steps"),
        (
            "gymnax:CartPole-v1:max_steps_in_episode=Infinity",
            "a finite number or bool as max_",
        ),
        ("gymnax:CartPole-v1:weight=1", "unexpected keyword argument 'weight'"),
        ("gymnax:Pendulum-v1", "discrete actions, got Box"),
    ],
)
def test_names_that_cannot_be_made_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        gymnax_environment(name)
