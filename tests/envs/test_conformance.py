"""One suite for every environment and every interface to one."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlreps.envs import Environment, PuddleWorldDmEnv, ShapedEnvironment, load_arena

KEY = jax.random.key(7)
LIMIT = 3
INTEGRATION = pytest.mark.integration
ENVIRONMENTS = {
    "puddles": load_arena("sutton", max_steps=LIMIT).with_task(),
    "images": load_arena("four_rooms", observation="image", max_steps=LIMIT).with_task(),
    "shaped": ShapedEnvironment(
        load_arena("empty", max_steps=LIMIT), lambda state: state.position[0], 0.5
    ),
}
each_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def close(one, other):
    """Equal up to rounding, which images, penalties and slopes of pictures magnify."""
    assert one.dtype == other.dtype
    atol = 1 if one.dtype == np.uint8 else 2e-4 if one.ndim in (0, 3) else 1e-6
    np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), atol=atol)


@each_environment
def test_an_environment_meets_the_contract_under_jit_vmap_and_as_an_argument(name):
    world = ENVIRONMENTS[name]
    assert isinstance(world, Environment)
    keys = jax.random.split(KEY, 16)
    states = jax.jit(jax.vmap(world.reset))(keys)
    actions = jnp.arange(16, dtype=jnp.int32) % world.num_actions
    together = jax.jit(lambda world, *rest: jax.vmap(world.step)(*rest))
    alone, observe, reset = map(jax.jit, (world.step, world.observe, world.reset))
    for index in (0, 5, 11):
        key, state, action = jax.tree.map(lambda leaf, i=index: leaf[i], (keys, states, actions))
        jax.tree.map(close, reset(key), state)
        taken = alone(key, state, action)
        close(observe(taken.state), taken.observation)
        assert taken.reward.shape == taken.terminated.shape == taken.truncated.shape == ()
        passed = together(world, keys, states, actions)
        jax.tree.map(close, taken, jax.tree.map(lambda leaf, i=index: leaf[i], passed))
    for count in range(1, LIMIT + 1):
        taken = together(world, keys, states, actions)
        states = taken.state
        np.testing.assert_array_equal(taken.truncated, count == LIMIT)
    endless = dataclasses.replace(getattr(world, "environment", world), max_steps=None)
    assert not jax.jit(endless.step)(KEY, state, action).truncated


@each_environment
def test_numbers_have_the_precision_that_jax_is_set_to(name):
    world, action = ENVIRONMENTS[name], jnp.zeros((), jnp.int32)
    for wide, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(wide):
            state = jax.eval_shape(world.reset, KEY)
            taken = jax.eval_shape(world.step, KEY, state, action)
            for each in (state, taken.state):
                kinds = {leaf.dtype for leaf in jax.tree.leaves(each)}
                assert kinds == {jnp.dtype(dtype), jnp.dtype(jnp.int32)}
            assert taken.reward.dtype == dtype


PUDDLES = "rlreps/PuddleWorld-v0"
INTERFACES = {
    "puddles": {},
    "images": {"arena": "spiral", "observation": "image"},
}


@pytest.mark.parametrize("name", ["puddles", pytest.param("images", marks=INTEGRATION)])
def test_copies_of_a_batch_and_other_interfaces_do_what_their_seeds_say(name):
    """A batch restarts in the step after an episode's end; seeds may have any size."""
    settings, limit, seeds = INTERFACES[name], 6, [40, 2**32 - 1, 2**64 + 40]
    batch = gymnasium.make_vec(PUDDLES, num_envs=3, max_episode_steps=limit, **settings)
    singles = [gymnasium.make(PUDDLES, max_episode_steps=limit, **settings) for _ in seeds]
    others = [PuddleWorldDmEnv(seed=seed, max_steps=limit, **settings) for seed in seeds]
    observations, _ = batch.reset(seed=np.array(seeds, object))
    assert len(np.unique(observations.reshape(3, -1), axis=0)) == 3
    for copy, (single, other) in enumerate(zip(singles, others, strict=True)):
        np.testing.assert_array_equal(observations[copy], single.reset(seed=seeds[copy])[0])
        np.testing.assert_array_equal(observations[copy], other.reset().observation)
    ended, resets = np.zeros(3, bool), 0
    choose = np.random.default_rng(1)
    for _ in range(20):
        actions = choose.integers(0, min(2, batch.single_action_space.n), 3)  # towards the goal
        observations, rewards, terminated, truncated, _ = batch.step(actions)
        for copy, (single, other) in enumerate(zip(singles, others, strict=True)):
            taken = other.step(actions[copy])
            if ended[copy]:
                want, resets = (single.reset()[0], 0.0, False, False), resets + 1
                assert taken.first()
            else:
                want = single.step(actions[copy])[:4]
                assert taken.last() == (want[2] or want[3])
                assert (taken.reward, taken.discount) == (want[1], 0.0 if want[2] else 1.0)
            np.testing.assert_array_equal(taken.observation, want[0])
            close(observations[copy], want[0])
            assert rewards[copy] == pytest.approx(want[1], abs=1e-2)
            assert (terminated[copy], truncated[copy]) == want[2:4]
        ended = terminated | truncated
    assert resets >= 6
    continued = batch.reset()[0]
    assert not np.array_equal(continued, batch.reset(seed=np.array(seeds, object))[0])


@INTEGRATION
@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        *((PUDDLES, {"arena": arena}) for arena in ("empty", "sutton", "two_room")),
        *((PUDDLES, {"arena": "spiral", "observation": name}) for name in ("code", "image")),
        ("rlreps/FourRooms-v0", {"observation": {"name": "image", "size": 40}}),
        ("rlreps/FiveCorridors-v0", {"goal": [0.1, 0.1, 0.05], "observation": "code"}),
    ],
)
def test_gymnasiums_own_check_passes_without_a_warning(env_id, settings):
    check_env(gymnasium.make(env_id, render_mode="rgb_array", **settings).unwrapped)
