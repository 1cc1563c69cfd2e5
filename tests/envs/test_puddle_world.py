"""The dynamics' conventions, the task, and the environment contract."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.envs import Disc, Puddle, PuddleWorld, PuddleWorldState, load_arena
from rlreps.errors import InputError

UP, RIGHT, DOWN, LEFT = (jnp.asarray(action, jnp.int32) for action in range(4))
STILL, KEY = jnp.zeros(2), jax.random.key(0)

step, move = jax.jit(PuddleWorld.step), jax.jit(PuddleWorld.move)
move_many = jax.jit(jax.vmap(PuddleWorld.move, in_axes=(None, 0, 0, 0)))


def at(x, y, steps=0):
    return PuddleWorldState(jnp.asarray([x, y], jnp.float32), jnp.asarray(steps, jnp.int32))


def test_actions_move_up_right_down_left():
    for action, expected in (
        (UP, (0.5, 0.55)),
        (RIGHT, (0.55, 0.5)),
        (DOWN, (0.5, 0.45)),
        (LEFT, (0.45, 0.5)),
    ):
        end = move(PuddleWorld(), jnp.asarray([0.5, 0.5]), action, STILL)
        np.testing.assert_allclose(end, expected, atol=1e-7)
        taken = PuddleWorld(noise=0.0).step(jax.random.key(0), at(0.5, 0.5), int(action))
        np.testing.assert_allclose(taken.state.position, expected, atol=1e-7)


def test_noise_has_the_stated_standard_deviation_on_both_axes():
    world = PuddleWorld(noise=0.02)
    keys = jax.random.split(jax.random.key(4), 20_000)
    taken = jax.jit(jax.vmap(world.step, in_axes=(0, None, None)))(keys, at(0.5, 0.5), UP)
    offsets = np.asarray(taken.observation) - [0.5, 0.55]
    error = 0.02 / np.sqrt(20_000)
    np.testing.assert_allclose(offsets.mean(axis=0), 0.0, atol=4.0 * error)
    np.testing.assert_allclose(offsets.std(axis=0), 0.02, atol=4.0 * error / np.sqrt(2.0))
    assert abs(np.corrcoef(offsets.T)[0, 1]) < 4.0 / np.sqrt(20_000)


def test_the_task_costs_one_a_step_and_400_times_the_greatest_depth():
    world = load_arena("sutton", noise=0.0).with_task()
    assert float(step(world, KEY, at(0.9, 0.2), UP).reward) == -1.0
    # In both capsules, 0.0125 from (0.4, 0.75): 0.1 deep in the first, about 0.05 in the second.
    taken = step(world, KEY, at(0.4, 0.75), LEFT)
    x = 0.4 - 0.05 / 4.0
    np.testing.assert_allclose(taken.observation, [x, 0.75], atol=1e-6)
    np.testing.assert_allclose(taken.reward, -1.0 - 400.0 * 0.1, atol=1e-3)


def test_each_part_of_the_task_can_be_switched_on_alone():
    deep = at(0.2, 0.75)

    def outcome(state, arena="sutton", **parts):
        taken = step(load_arena(arena, noise=0.0, **parts), KEY, state, UP)
        assert not taken.truncated
        return float(taken.reward), bool(taken.terminated)

    assert outcome(at(0.97, 0.97, steps=10**6)) == (0.0, False)
    assert outcome(at(0.5, 0.8), "two_room", puddle_penalty=True) == (0.0, False)  # A wall's.
    assert outcome(deep, step_penalty=True) == (-1.0, False)
    reward, ended = outcome(deep, puddle_penalty=True)
    assert (reward, ended) == (pytest.approx(-400.0 * 0.075, abs=1e-3), False)
    # The goal is the corner where x + y reaches 1.9.
    assert outcome(at(0.95, 0.91), goal=True) == (0.0, True)
    assert outcome(at(0.95, 0.89), goal=True) == (0.0, False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"goal": 1}, r"expected goal to be a bool or a disc \(x, y, radius\), got 1"),
        (
            {"goal": (0.5, 0.5, 0.1), "puddles": (Puddle(Disc((0.5, 0.5), 0.2), 0.0),)},
            r"expected the goal's centre to be .*, outside the walls, got \[0.5, 0.5\]",
        ),
        ({"max_steps": 0}, "expected max_steps >= 1, got 0"),
    ],
)
def test_worlds_that_make_no_sense_say_what_was_expected(fields, message):
    with pytest.raises(InputError, match=message):
        PuddleWorld(**fields)


def test_a_puddle_needs_a_shape_and_a_multiplier_from_zero_to_one():
    with pytest.raises(InputError, match=r"expected multiplier in \[0, 1\]"):
        Puddle(Disc((0.5, 0.5), 0.1), 1.5)
    with pytest.raises(InputError, match=r"expected a shape \(Capsule, Disc or ConvexPolygon\)"):
        Puddle("disc", 0.5)


def test_no_multiplier_makes_a_position_that_is_not_in_the_square():
    rng = np.random.default_rng(0)
    starts = jnp.asarray(rng.uniform(size=(2000, 2)), jnp.float32)
    noise = jnp.asarray(rng.standard_normal((2000, 2)), jnp.float32)
    actions = jnp.asarray(np.arange(2000) % 4, jnp.int32)
    for multiplier in (0.0, 1e-30, 1e-6, 0.5, 1.0):
        world = PuddleWorld(puddles=(Puddle(Disc((0.5, 0.5), 0.3), multiplier),), noise=1.0)
        ends = np.asarray(move_many(world, starts, actions, noise))
        assert ((ends >= 0.0) & (ends <= 1.0)).all()
    free = move_many(PuddleWorld(noise=1.0), starts, actions, noise)
    np.testing.assert_allclose(ends, free, atol=2e-7)
