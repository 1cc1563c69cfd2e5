"""Elastic balls: closed forms, what mechanics conserves, the stationary law, and the picture."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rlreps.experiments.pfau_2019.video import BouncingBalls, BouncingBallsState

COPIES = 4096


def balls_at(positions, velocities, dtype=jnp.float32):
    return BouncingBallsState(jnp.asarray(positions, dtype), jnp.asarray(velocities, dtype))


@functools.partial(jax.jit, static_argnames="frames")
def play(world, state, frames):
    """The state after so many frames; positions and velocities [frames, balls, 2] of each."""

    def one(state, _):
        after = world.move(state)
        return after, after

    return jax.lax.scan(one, state, None, length=frames)


@functools.partial(jax.jit, static_argnames="frames")
def play_many(world, states, frames):
    return jax.vmap(lambda state: play(world, state, frames))(states)


reset_many = jax.jit(jax.vmap(BouncingBalls.reset, in_axes=(None, 0)))


def many_starts(world, count, seed=0):
    starts = reset_many(world, jax.random.split(jax.random.key(seed), COPIES))
    return jax.tree.map(lambda leaf: leaf[:count], starts)


def least_gaps(positions):
    """Smallest distance between two centres, for each of [..., balls, 2]."""
    first, second = np.triu_indices(positions.shape[-2], 1)
    gaps = positions[..., first, :] - positions[..., second, :]
    return np.linalg.norm(gaps, axis=-1).min(axis=-1)


@pytest.mark.parametrize(
    ("radius", "velocity"),
    [(0.12, (0.03, -0.017)), (0.25, (0.7, 0.9)), (0.1, (0.05, 0.05))],
    ids=["slow", "several_bounces_a_frame", "into_the_corner"],
)
def test_a_single_ball_follows_the_triangle_wave(radius, velocity):
    world, start, frames = BouncingBalls(num_balls=1, radius=radius), np.array([0.4, 0.4]), 300
    with jax.enable_x64(True):
        _, (x, _) = play(world, balls_at([start], [velocity], jnp.float64), frames)
    room = 1.0 - 2.0 * radius
    unfolded = start - radius + np.arange(1, frames + 1)[:, None] * np.asarray(velocity)
    expected = radius + room - np.abs(unfolded % (2.0 * room) - room)
    np.testing.assert_allclose(np.asarray(x)[:, 0], expected, atol=1e-10)


def test_a_glancing_blow_sends_the_resting_ball_along_the_line_of_centres():
    radius, offset, speed = 0.1, 0.12, 0.04
    world = BouncingBalls(num_balls=2, radius=radius)
    state = balls_at([[0.2, 0.4], [0.5, 0.4 + offset]], [[speed, 0.0], [0.0, 0.0]])
    _, (_, v) = play(world, state, 5)
    sine = offset / (2.0 * radius)
    cosine = np.sqrt(1.0 - sine**2)
    struck = speed * cosine * np.array([cosine, sine])
    np.testing.assert_allclose(v[-1], [[speed, 0.0] - struck, struck], atol=1e-7)


def test_two_balls_that_hit_a_third_at_once_keep_the_energy():
    world = BouncingBalls(radius=0.1)
    state = balls_at([[0.2, 0.5], [0.5, 0.5], [0.8, 0.5]], [[0.05, 0.0], [0.0, 0.0], [-0.05, 0.0]])
    _, (_, v) = play(world, state, 3)
    np.testing.assert_allclose(v[-1], [[-0.05, 0.0], [0.0, 0.0], [0.05, 0.0]], atol=1e-7)


@pytest.mark.parametrize("speed", [0.03, 0.5])
def test_energy_is_kept_and_balls_stay_inside_and_apart(speed):
    world = BouncingBalls(speed=speed)
    states = many_starts(world, 64)
    energy = np.sum(np.square(states.velocities), axis=(1, 2)) / 2.0
    np.testing.assert_allclose(energy, 3 * speed**2 / 2.0, rtol=1e-6)
    _, (x, v) = play_many(world, states, 500)
    later = np.sum(np.square(v), axis=(2, 3)) / 2.0
    np.testing.assert_allclose(later, np.broadcast_to(energy[:, None], later.shape), rtol=2e-5)
    # Rounding of float32 positions of order 1.
    assert least_gaps(np.asarray(x)).min() > 2 * world.radius - 1e-6
    assert np.min(x) >= world.radius - 1e-7
    assert np.max(x) <= 1.0 - world.radius + 1e-7


def test_the_film_runs_backwards_when_velocities_are_reversed():
    world, frames = BouncingBalls(), 80
    with jax.enable_x64(True):
        starts = many_starts(world, 32)
        forth = play_many(world, starts, frames)[0]
        assert np.abs(forth.positions - starts.positions).max(axis=(1, 2)).min() > 0.05
        turned = forth._replace(velocities=-forth.velocities)
        back = play_many(world, turned, frames)[0]
        # Each collision magnifies rounding a few times.
        np.testing.assert_allclose(back.positions, starts.positions, atol=1e-6)
        np.testing.assert_allclose(-back.velocities, starts.velocities, atol=1e-6)


def rejection_sample(world, count, seed):
    """Positions [count, balls, 2], uniform over those without overlaps, by NumPy."""
    generator = np.random.default_rng(seed)
    low, high = world.radius, 1.0 - world.radius
    draws = generator.uniform(low, high, size=(8 * count, world.num_balls, 2))
    apart = least_gaps(draws) >= 2.0 * world.radius
    assert apart.sum() >= count
    return draws[apart][:count]


def test_the_law_of_reset_is_the_stated_one():
    # Copies are independent, so each test is exact; seeded, and at 1e-3 a chance of 1 % in all.
    world = BouncingBalls()
    states = many_starts(world, COPIES, seed=5)
    x, v = np.asarray(states.positions), np.asarray(states.velocities)
    expected = rejection_sample(world, COPIES, seed=6)

    def spread(positions):
        return np.linalg.norm(positions[:, 0] - positions[:, 1], axis=1)

    assert stats.ks_2samp(x[:, 2, 1], expected[:, 2, 1]).pvalue > 1e-3
    assert stats.ks_2samp(spread(x), spread(expected)).pvalue > 1e-3
    # Of a uniform direction in 6 dimensions, one squared component is Beta(1/2, 5/2), a ball's
    # share of the energy Beta(1, 2).
    share = np.square(v.astype(np.float64)) / (3 * world.speed**2)
    assert stats.kstest(share[:, 1, 0], stats.beta(0.5, 2.5).cdf).pvalue > 1e-3
    assert stats.kstest(share[:, 0].sum(axis=1), stats.beta(1.0, 2.0).cdf).pvalue > 1e-3
    error = world.speed / np.sqrt(2.0 * COPIES)
    np.testing.assert_allclose(v.mean(axis=0), 0.0, atol=4.5 * error)


@pytest.mark.parametrize("size", [16, 100])
def test_a_pixel_is_as_bright_as_the_discs_cover_it(size):
    world = BouncingBalls(num_balls=2, frame_size=size)
    centre = np.array([[0.31, 0.72], [0.31 + 0.24, 0.72]])  # touching, in the upper half
    fine = (np.arange(size * 16) + 0.5) / (size * 16)
    gaps = np.hypot(
        fine[None, None, :] - centre[:, 0, None, None],
        (1.0 - fine)[None, :, None] - centre[:, 1, None, None],
    )
    covered = (gaps < world.radius).any(axis=0).reshape(size, 16, size, 16).mean(axis=(1, 3))
    frame = jax.jit(world.render)(balls_at(centre, np.zeros((2, 2))))
    np.testing.assert_allclose(frame, covered, atol=0.12)
    perimeter = 2 * 2.0 * np.pi * world.radius * size
    assert np.abs(frame - covered).sum() < 0.05 * perimeter
