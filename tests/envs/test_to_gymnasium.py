"""Gymnasium: registration, its own checks, and batches against single environments."""

import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.envs import (
    Disc,
    PuddleWorldEnv,
    PuddleWorldVectorEnv,
    load_arena,
    render_frame,
)
from rlreps.envs.registration import MAZES
from rlreps.envs.to_gymnasium import _observation_space
from rlreps.errors import InputError
from rlreps.worlds import World

ENV_ID = "rlreps/PuddleWorld-v0"


def make_vec(**settings):
    return gymnasium.make_vec(ENV_ID, **settings)


def test_seeds_of_resets_are_those_of_gymnasium_s_own_copies():
    # Every episode has ended when the next reset comes, which may leave it to the next step.
    short = {"num_envs": 3, "max_episode_steps": 3}
    ours, others = make_vec(**short), make_vec(**short, vectorization_mode="sync")
    for action, seed in enumerate([7, [1, None, 3], None]):
        expected, _ = others.reset(seed=seed)
        found, _ = ours.reset(seed=seed)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        for _ in range(3):
            taken = [each.step(np.full(3, action))[0] for each in (ours, others)]
            np.testing.assert_allclose(*taken, atol=1e-6)
    np.testing.assert_array_equal(ours.reset(seed=np.int64(7))[0], ours.reset(seed=7)[0])


def test_importing_the_package_registers_and_leaves_jax_alone():
    script = (
        "import sys, gymnasium, rlreps.envs\n"
        f"assert {ENV_ID!r} in gymnasium.registry\n"
        "assert 'jax' not in sys.modules\n"
        f"before = gymnasium.registry[{ENV_ID!r}]\n"
        "rlreps.envs.register()\n"
        f"assert gymnasium.registry[{ENV_ID!r}] is before\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_an_episode_of_one_environment_follows_the_core_dynamics():
    world = load_arena("sutton", noise=0.0)
    step = jax.jit(world.with_task().step)
    environment = PuddleWorldEnv(world)
    environment.reset(seed=1)
    for action in np.random.default_rng(0).integers(4, size=30):
        expected = step(jax.random.key(0), environment._state, np.int32(action))
        observation, reward, terminated, _, _ = environment.step(action)
        np.testing.assert_allclose(observation, expected.observation, atol=1e-6)
        assert reward == pytest.approx(float(expected.reward), abs=1e-3)
        assert terminated == bool(expected.terminated)
        if terminated:
            environment.reset()


def test_the_task_is_on_unless_switched_off():
    assert PuddleWorldEnv("sutton").environment == load_arena("sutton").with_task()
    assert PuddleWorldEnv("sutton", task=False).environment == load_arena("sutton")
    assert PuddleWorldVectorEnv(2, arena="sutton", task=False).environment == load_arena("sutton")


def test_mazes_have_ids_of_their_own_and_episodes_of_300_steps():
    for name, arena in MAZES.items():
        spec = gymnasium.spec(f"rlreps/{name}-v0")
        assert spec.max_episode_steps == 300
        batch = gymnasium.make_vec(spec.id, num_envs=2, goal=(0.3, 0.9, 0.05))
        goal = Disc((0.3, 0.9), 0.05)
        world = load_arena(arena, max_steps=300, goal=goal).with_task()
        assert batch.environment == world
        assert gymnasium.make(spec.id).unwrapped.environment == load_arena(arena).with_task()


def test_frames_show_the_agent_and_the_task():
    environment = PuddleWorldEnv(render_mode="rgb_array")
    observation, _ = environment.reset(seed=0)
    np.testing.assert_array_equal(
        environment.render(), render_frame(environment.environment, observation)
    )
    batch = make_vec(num_envs=3, render_mode="rgb_array")
    observations, _ = batch.reset(seed=0)
    for frame, observation in zip(batch.render(), observations, strict=True):
        np.testing.assert_array_equal(frame, render_frame(batch.environment, observation))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: PuddleWorldEnv("moon"), "expected an arena .*sutton.*, got 'moon'"),
        (lambda: PuddleWorldVectorEnv(2, max_episode_steps=0), "expected max_steps >= 1, got 0"),
        (
            lambda: PuddleWorldVectorEnv(2).step(np.array([0, 4])),
            r"expected 2 actions in \[0, 4\), got \[0, 4\]",
        ),
        (lambda: PuddleWorldVectorEnv(3).reset(seed=[1, 2]), "expected 3 seeds, got 2"),
        (
            lambda: PuddleWorldVectorEnv(2).reset(options={"reset_mask": np.ones(2, bool)}),
            "expected no reset_mask",
        ),
        (lambda: PuddleWorldVectorEnv(0), "expected num_envs >= 1, got 0"),
        (lambda: PuddleWorldEnv().step(0), r"expected reset\(\) before step"),
        (lambda: PuddleWorldEnv().step(4), r"an action in \[0, 4\), got 4"),
    ],
)
def test_bad_arguments_say_what_was_expected(use, message):
    with pytest.raises((InputError, gymnasium.error.ResetNeeded), match=message):
        use()


def test_observations_of_an_environment_of_one_s_own_have_no_bounds_that_they_leave():
    world = World.from_arrays(
        next_states=np.array([[1], [0]]),
        rewards=np.zeros((2, 1)),
        observations=np.array([[-3.0], [5.0]], np.float32),
    )

    class Worlds(PuddleWorldVectorEnv):
        make = staticmethod(lambda world, max_steps: world.environment(max_steps))

    copies = Worlds(num_envs=2, world=world)
    seen, _ = copies.reset(seed=0)
    assert copies.observation_space.contains(seen)
    assert copies.observation_space.contains(copies.step(np.zeros(2, np.int64))[0])


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(bool, 0, 1), (np.uint16, 0, 65_535), (np.float32, -np.inf, np.inf)]
)
def test_an_environment_of_one_s_own_is_bounded_by_its_numbers_type(dtype, low, high):
    class Own:
        num_actions = 2

        def reset(self, key):
            return jnp.zeros(3)

        def observe(self, state):
            return state.astype(dtype)

    space = _observation_space(Own())
    assert (space.low.min(), space.high.max(), space.dtype) == (low, high, dtype)
