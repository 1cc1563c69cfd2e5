"""Gymnasium: registration, its own checks, and batches against single environments."""

import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from rlreps.envs import (
    ArenaError,
    BouncingBallsEnv,
    BouncingBallsVectorEnv,
    Disc,
    PuddleWorldEnv,
    PuddleWorldVectorEnv,
    load_arena,
    render_frame,
    render_video_frame,
)
from rlreps.envs.registration import MAZES

ENV_ID = "rlreps/PuddleWorld-v0"
BALLS_ID = "rlreps/BouncingBalls-v0"


def make_vec(**settings):
    return gymnasium.make_vec(ENV_ID, **settings)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        *((ENV_ID, {"arena": arena}) for arena in ("empty", "sutton", "two_room")),
        *((ENV_ID, {"arena": "spiral", "observation": name}) for name in ("code", "image")),
        ("rlreps/FourRooms-v0", {"observation": {"name": "image", "size": 40}}),
        ("rlreps/FiveCorridors-v0", {"goal": [0.1, 0.1, 0.05], "observation": "code"}),
        (BALLS_ID, {}),
        (BALLS_ID, {"num_balls": 1, "frame_size": 20, "speed": 0.1}),
    ],
)
def test_gymnasiums_own_check_passes_without_a_warning(env_id, settings):
    check_env(gymnasium.make(env_id, render_mode="rgb_array", **settings).unwrapped)


def test_importing_the_package_registers_both_and_leaves_jax_alone():
    script = (
        "import sys, gymnasium, rlreps.envs\n"
        f"assert {{{ENV_ID!r}, {BALLS_ID!r}}} <= set(gymnasium.registry)\n"
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
    observation, info = environment.reset(seed=1)
    assert info == {}
    for action in np.random.default_rng(0).integers(4, size=30):
        expected = step(jax.random.key(0), environment._state, np.int32(action))
        observation, reward, terminated, truncated, _ = environment.step(action)
        np.testing.assert_allclose(observation, expected.observation, atol=1e-6)
        assert reward == pytest.approx(float(expected.reward), abs=1e-3)
        assert terminated == bool(expected.terminated)
        assert truncated is False
        if terminated:
            environment.reset()


def test_the_task_is_on_unless_switched_off():
    world = PuddleWorldEnv("sutton").environment
    assert world.goal
    assert world.step_penalty
    assert world.puddle_penalty
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


def test_make_limits_episodes():
    environment = gymnasium.make(ENV_ID, arena="empty", task=False, max_episode_steps=5)
    environment.reset(seed=0)
    assert [environment.step(0)[3] for _ in range(5)] == [False] * 4 + [True]
    assert gymnasium.spec(ENV_ID).max_episode_steps == 1000
    assert make_vec(num_envs=2).environment.max_steps == 1000


def test_each_copy_in_a_batch_does_what_a_single_environment_with_its_seed_does():
    limit, count = 12, 3
    batch = make_vec(num_envs=count, max_episode_steps=limit)
    singles = [gymnasium.make(ENV_ID, max_episode_steps=limit) for _ in range(count)]
    observations, _ = batch.reset(seed=40)
    expected = [single.reset(seed=40 + i)[0] for i, single in enumerate(singles)]
    np.testing.assert_array_equal(observations, expected)
    ended, resets = np.zeros(count, bool), 0
    for actions in np.random.default_rng(1).integers(0, 2, size=(60, count)):  # towards the goal
        observations, rewards, terminated, truncated, _ = batch.step(actions)
        for i, single in enumerate(singles):
            if ended[i]:
                want, resets = (single.reset()[0], 0.0, False, False), resets + 1
            else:
                want = single.step(actions[i])[:4]
            # Batched and single code may round differently; the penalty magnifies that by 400.
            np.testing.assert_allclose(observations[i], want[0], atol=1e-5)
            assert rewards[i] == pytest.approx(want[1], abs=1e-2)
            assert (terminated[i], truncated[i]) == want[2:4]
        ended = terminated | truncated
    assert resets > count


def test_a_batch_takes_a_seed_for_each_copy():
    seeds = [40, 7, 2**31]
    batch, alone = make_vec(num_envs=3), PuddleWorldEnv()
    moves = np.random.default_rng(1).integers(4, size=(5, 3))
    first = batch.reset(seed=seeds)[0]
    np.testing.assert_array_equal(batch.reset(seed=np.array(seeds))[0], first)
    seen = [first, *(batch.step(move)[0] for move in moves)]
    for copy, seed in enumerate(seeds):
        single = [alone.reset(seed=seed)[0], *(alone.step(move[copy])[0] for move in moves)]
        np.testing.assert_allclose(np.stack(seen)[:, copy], single, atol=1e-5)
    with pytest.raises(ArenaError, match="expected 3 seeds, got 2"):
        batch.reset(seed=[1, 2])


def test_a_batch_resets_on_the_step_after_an_episodes_end():
    batch = PuddleWorldVectorEnv(3, arena="empty", task=False, max_episode_steps=2)
    assert batch.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert PuddleWorldVectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    batch.reset(seed=0)
    up = np.zeros(3, int)
    assert not batch.step(up)[3].any()
    last, _, terminated, truncated, _ = batch.step(up)
    assert truncated.all()
    assert not terminated.any()
    fresh, rewards, terminated, truncated, _ = batch.step(up)
    assert not np.stack([terminated, truncated, rewards]).any()
    assert (np.abs(fresh - last).max(axis=1) > 0.1).any()
    after = batch.step(up)[0]
    np.testing.assert_allclose(after[:, 0], fresh[:, 0], atol=0.06)


def test_a_batch_has_the_shapes_and_dtypes_of_its_spaces():
    batch = make_vec(num_envs=3)
    observations, info = batch.reset(seed=0)
    assert info == {}
    assert batch.observation_space.contains(observations)
    assert batch.single_observation_space == gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    assert batch.single_action_space == gymnasium.spaces.Discrete(4)
    observations, rewards, terminated, truncated, _ = batch.step(batch.action_space.sample())
    assert batch.observation_space.contains(observations)
    assert (rewards.shape, rewards.dtype) == ((3,), np.float64)
    assert (terminated.shape, terminated.dtype) == ((3,), np.bool_)
    assert (truncated.shape, truncated.dtype) == ((3,), np.bool_)


def test_a_batch_is_reproducible_from_its_seed_and_goes_on_without_one():
    def play(batch, seed):
        first = batch.reset(seed=seed)[0]
        return np.stack([first, *(batch.step(np.full(3, 1))[0] for _ in range(5))])

    one, two = make_vec(num_envs=3), make_vec(num_envs=3)
    np.testing.assert_array_equal(play(one, 7), play(two, 7))
    continued = play(one, None)
    np.testing.assert_array_equal(continued, play(two, None))
    assert (continued != play(one, 7)).any()
    # Seeds may be large, and are different ones then.
    seeds = [0, 5, 2**32 - 1, 2**32, 2**32 + 5, 2**64, 2**64 + 5, 2**70]
    starts = [tuple(PuddleWorldEnv().reset(seed=seed)[0]) for seed in seeds]
    assert len(set(starts)) == len(seeds)
    alone = [one.reset(seed=[seed] * 3)[0][0] for seed in seeds]
    np.testing.assert_array_equal(alone, starts)
    np.testing.assert_array_equal(one.reset(seed=2**32 - 1)[0][:2], [starts[2], starts[3]])


def test_frames_show_the_agent_and_the_task():
    environment = PuddleWorldEnv(render_mode="rgb_array")
    observation, _ = environment.reset(seed=0)
    np.testing.assert_array_equal(
        environment.render(), render_frame(environment.environment, observation)
    )
    batch = make_vec(num_envs=3, render_mode="rgb_array")
    observations, _ = batch.reset(seed=0)
    frames = batch.render()
    assert isinstance(frames, tuple)
    for frame, observation in zip(frames, observations, strict=True):
        np.testing.assert_array_equal(frame, render_frame(batch.environment, observation))
    assert PuddleWorldEnv().render() is None
    assert make_vec(num_envs=2).render() is None


def test_a_video_shows_its_observations():
    environment = BouncingBallsEnv(render_mode="rgb_array", frame_size=32)
    np.testing.assert_array_equal(environment.render(), np.zeros((32, 32, 3), np.uint8))
    environment.reset(seed=3)
    observation = environment.step(0)[0]
    assert environment.observation_space.contains(observation)
    assert environment.render().dtype == np.uint8
    # Half a level of grey, and the rounding of batched code.
    np.testing.assert_allclose(
        environment.render(), np.repeat(observation * 255.0, 3, axis=2), atol=0.51
    )
    state = environment._state
    np.testing.assert_array_equal(
        environment.render(), render_video_frame(environment.environment, state)
    )
    batch = BouncingBallsVectorEnv(2, render_mode="rgb_array", frame_size=32, max_episode_steps=3)
    assert [frame.max() for frame in batch.render()] == [0, 0]
    observations, _ = batch.reset(seed=3)
    for frame, seen in zip(batch.render(), observations, strict=True):
        np.testing.assert_allclose(frame, np.repeat(seen * 255.0, 3, axis=2), atol=0.51)
    assert BouncingBallsEnv().render() is None


def test_a_batch_of_videos_does_what_single_ones_do_and_restarts_at_the_limit():
    settings = {"max_episode_steps": 3, "frame_size": 32}
    batch = gymnasium.make_vec(BALLS_ID, num_envs=2, **settings)
    singles = [gymnasium.make(BALLS_ID, **settings) for _ in range(2)]
    assert batch.single_observation_space == gymnasium.spaces.Box(0.0, 1.0, (32, 32, 1), np.float32)
    assert batch.single_action_space == gymnasium.spaces.Discrete(1)
    videos = [batch.reset(seed=11)[0]]
    expected = [[single.reset(seed=11 + i)[0] for i, single in enumerate(singles)]]
    ends = []
    for frame in range(1, 8):
        frames, rewards, terminated, truncated, _ = batch.step(np.zeros(2, int))
        assert not np.any([rewards, terminated])
        restarts = frame % 4 == 0
        videos.append(frames)
        expected.append([one.reset()[0] if restarts else one.step(0)[0] for one in singles])
        ends.append(truncated.tolist())
    # Rounding of a position, times a slope of 1 a pixel and 32 pixels in the frame.
    np.testing.assert_allclose(videos, expected, atol=1e-4)
    assert ends == [[frame % 4 == 3] * 2 for frame in range(1, 8)]
    assert gymnasium.spec(BALLS_ID).max_episode_steps == 1000


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: PuddleWorldEnv("moon"), "expected an arena .*sutton.*, got 'moon'"),
        (lambda: PuddleWorldVectorEnv(2, max_episode_steps=0), "expected max_steps to be None or"),
        (
            lambda: BouncingBallsVectorEnv(2).step(np.array([0, 1])),
            r"expected 2 actions in \{0\}, got \[0 1\]",
        ),
        (lambda: PuddleWorldEnv().step(0), r"expected reset\(\) before step"),
    ],
)
def test_bad_arguments_say_what_was_expected(use, message):
    with pytest.raises((ArenaError, gymnasium.error.ResetNeeded), match=message):
        use()
