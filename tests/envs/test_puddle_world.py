"""The dynamics' conventions, the task, and the environment contract."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.envs import (
    ARENAS,
    ArenaError,
    Disc,
    Environment,
    Puddle,
    PuddleWorld,
    PuddleWorldState,
    load_arena,
)

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


def test_overlapping_puddles_compound():
    hydrogen = load_arena("hydrogen")
    origin = jnp.asarray([0.5, 0.5])
    for count, expected in [(0, 0.05), (1, 0.025), (2, 0.0125)]:
        world = dataclasses.replace(hydrogen, puddles=hydrogen.puddles[:count])
        moved = move(world, origin, UP, STILL) - origin
        np.testing.assert_allclose(moved, [0.0, expected], atol=1e-7)
    disc = Puddle(Disc((0.5, 0.5), 0.3), 0.2)
    tripled = PuddleWorld(puddles=(disc, disc, disc))
    np.testing.assert_allclose(
        move(tripled, origin, LEFT, STILL) - origin, [-0.05 * 0.2**3, 0.0], atol=1e-7
    )


def test_a_stretch_inside_costs_one_over_the_multiplier():
    # 0.02 outside, then 0.06 left of the budget: inside at speed 1/3 that is 0.02.
    world = PuddleWorld(puddles=(Puddle(Disc((0.5, 0.5), 0.1), 1 / 3),), step_size=0.08)
    end = move(world, jnp.asarray([0.38, 0.5]), RIGHT, STILL)
    np.testing.assert_allclose(end, [0.42, 0.5], atol=1e-6)
    # 0.02 outside, 0.04 inside costs 0.12, and the remaining 0.06 are free.
    world = PuddleWorld(puddles=(Puddle(Disc((0.5, 0.5), 0.02), 1 / 3),), step_size=0.2)
    end = move(world, jnp.asarray([0.46, 0.5]), RIGHT, STILL)
    np.testing.assert_allclose(end, [0.58, 0.5], atol=1e-6)


def test_moves_are_clipped_to_the_square_before_puddles_shorten_them():
    # Clipped to 0.02, then halved. The other way round: 0.05 halved, then clipped to 0.02.
    world = PuddleWorld(puddles=(Puddle(Disc((1.0, 0.5), 0.2), 0.5),))
    end = move(world, jnp.asarray([0.98, 0.5]), RIGHT, STILL)
    np.testing.assert_allclose(end, [0.99, 0.5], atol=1e-7)


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


def test_a_step_is_a_move_with_one_normal_draw_from_its_key():
    world = load_arena("sutton")
    key, state = jax.random.key(3), at(0.4, 0.7, steps=5)
    taken = world.step(key, state, LEFT)
    expected = world.move(state.position, LEFT, jax.random.normal(key, (2,)))
    np.testing.assert_array_equal(taken.state.position, expected)
    np.testing.assert_array_equal(taken.observation, expected)
    assert int(taken.state.steps) == 6


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
    only_second = dataclasses.replace(world, puddles=world.puddles[1:])
    taken = step(only_second, KEY, at(0.4, 0.75), LEFT)
    np.testing.assert_allclose(taken.reward, -1.0 - 400.0 * (0.1 - 0.075), atol=1e-3)


def test_each_part_of_the_task_can_be_switched_on_alone():
    deep, corner = at(0.2, 0.75), at(0.97, 0.97)

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
    assert outcome(corner, step_penalty=True) == (-1.0, False)


def test_episodes_are_truncated_after_max_steps():
    world = PuddleWorld(max_steps=3)
    state, flags = at(0.5, 0.5), []
    for _ in range(3):
        taken = step(world, KEY, state, UP)
        state = taken.state
        flags.append((bool(taken.terminated), bool(taken.truncated)))
    assert flags == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize(
    "name",
    [
        "sutton",
        "two_room",
        *(
            pytest.param(name, marks=pytest.mark.integration)
            for name in ("empty", "hydrogen", "two_room_slow")
        ),
    ],
)
def test_an_arena_meets_the_contract_under_jit_vmap_and_as_an_argument(name):
    world = load_arena(name).with_task()
    assert isinstance(world, Environment)
    assert world.num_actions == 4
    keys = jax.random.split(jax.random.key(7), 64)
    states = jax.jit(jax.vmap(world.reset))(keys)
    actions = jnp.arange(64, dtype=jnp.int32) % 4
    closed_over = jax.jit(world.step)
    passed = jax.jit(lambda w, *a: jax.vmap(w.step)(*a))(world, keys, states, actions)
    for i in range(0, 64, 8):
        one = closed_over(*jax.tree.map(lambda leaf, i=i: leaf[i], (keys, states, actions)))
        assert one.observation.shape == (2,)
        assert one.reward.shape == one.terminated.shape == one.truncated.shape == ()
        np.testing.assert_array_equal(world.observe(one.state), one.observation)
        got = jax.tree.map(lambda leaf, i=i: leaf[i], passed)
        for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(got), strict=True):
            assert left.dtype == right.dtype
            # The penalty multiplies a position's rounding by 400.
            np.testing.assert_allclose(left, right, atol=1e-6 if left.ndim else 2e-4)


@jax.jit
def plain_move(world, position, action, noise):
    """A move without walls, by the formula alone."""
    signed = (1 - (action & 2)).astype(position.dtype) * world.step_size
    right = (action & 1).astype(position.dtype) * signed
    direction = jnp.stack([right, signed - right])
    displacement = jnp.clip(position + direction + world.noise * noise, 0.0, 1.0) - position
    budget = jnp.ones_like(displacement[0])
    for puddle in world.puddles:
        enter, leave = puddle.shape.interval(position, displacement)
        entered = jnp.minimum(enter, budget)
        inside = jnp.maximum(jnp.minimum(leave, budget) - entered, 0.0)
        cost = (1.0 - puddle.multiplier) / jnp.maximum(puddle.multiplier, 1e-18)
        slowed = entered + puddle.multiplier * (budget - entered)
        budget = jnp.maximum(slowed, budget - inside * cost)
    return jnp.clip(position + budget * displacement, 0.0, 1.0)


@pytest.mark.parametrize("name", ["empty", "sutton"])
def test_moves_without_walls_are_the_plain_formulas_bit_for_bit(name):
    world = load_arena(name)
    assert not any(puddle.may_be_wall for puddle in world.puddles)
    keys = jax.random.split(KEY, 3)
    # Beyond the square, too: on its edges nothing is left of a margin.
    positions = jnp.clip(jax.random.uniform(keys[0], (5000, 2), minval=-0.1, maxval=1.1), 0.0, 1.0)
    noise, actions = jax.random.normal(keys[1], (5000, 2)), jax.random.randint(keys[2], 5000, 0, 4)
    expected = jax.jit(jax.vmap(plain_move, in_axes=(None, 0, 0, 0)))(
        world, positions, actions, noise
    )
    found = move_many(world, positions, actions, noise)
    np.testing.assert_array_equal(found, expected)
    assert {0.0, 1.0} <= set(np.asarray(found).ravel().tolist())


def test_a_second_world_of_the_same_structure_does_not_compile_again():
    calls = []

    @jax.jit
    def end(world, position):
        calls.append(None)
        return world.move(position, UP, STILL)

    origin = jnp.asarray([0.5, 0.5])
    fast, slow = (PuddleWorld(puddles=(Puddle(Disc((0.5, 0.5), 0.3), m),)) for m in (1.0, 0.1))
    np.testing.assert_allclose(end(fast, origin), [0.5, 0.55], atol=1e-7)
    np.testing.assert_allclose(end(slow, origin), [0.5, 0.505], atol=1e-7)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ARENAS)
def test_dtypes_are_those_of_the_position(name):
    world = load_arena(name).with_task()
    with jax.enable_x64(True):
        state = jax.eval_shape(world.reset, KEY)
        assert state.position.dtype == jnp.float64
        for dtype in (jnp.float32, jnp.float64):
            start = state._replace(position=jax.ShapeDtypeStruct((2,), dtype))
            taken = jax.eval_shape(world.step, KEY, start, UP)
            assert taken.state.position.dtype == taken.reward.dtype == dtype
            assert taken.state.steps.dtype == jnp.int32
    assert jax.eval_shape(world.reset, KEY).position.dtype == jnp.float32


def test_worlds_with_equal_numbers_are_equal_and_hash_alike():
    assert load_arena("sutton") == load_arena("sutton")
    assert hash(load_arena("sutton")) == hash(load_arena("sutton"))
    assert load_arena("sutton") != load_arena("sutton", noise=0.02)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step_size": 0.0}, "expected step_size to be greater than 0, got 0.0"),
        ({"goal": 1}, r"expected goal to be a bool or a disc \(x, y, radius\), got 1"),
        (
            {"goal": (0.5, 0.5, 0.1), "puddles": (Puddle(Disc((0.5, 0.5), 0.2), 0.0),)},
            r"expected the goal's centre to be .*, outside the walls, got \[0.5, 0.5\]",
        ),
        ({"max_steps": 10**5000}, "None or an int <= 2,147,483,647, got a larger one"),
    ],
)
def test_worlds_that_make_no_sense_say_what_was_expected(fields, message):
    with pytest.raises(ArenaError, match=message):
        PuddleWorld(**fields)


def test_a_puddle_needs_a_shape_and_a_multiplier_from_zero_to_one():
    for multiplier in (-0.1, 1.5, np.nan, True, None):
        with pytest.raises(ArenaError, match="expected multiplier to be"):
            Puddle(Disc((0.5, 0.5), 0.1), multiplier)
    with pytest.raises(ArenaError, match=r"expected a shape \(Capsule, Disc or ConvexPolygon\)"):
        Puddle("disc", 0.5)
