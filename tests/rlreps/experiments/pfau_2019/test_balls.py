import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import FunctionEncoder
from rlreps.experiments.pfau_2019.balls import (
    BallClips,
    ball_responses,
    make_position_functions,
    make_velocity_functions,
    pooled_pixels,
)
from rlreps.experiments.pfau_2019.video import BouncingBalls, BouncingBallsState

VIDEO = BouncingBalls(frame_size=16)
KEY = jax.random.key(3)


def clips(frames=1, clip_frames=2, num_clips=None, as_positions=False):
    return BallClips(VIDEO, frames, clip_frames, num_clips, jax.random.key(9), as_positions)


def test_the_second_state_of_a_pair_is_the_first_one_frame_later():
    pairs = jax.jit(lambda key: clips(as_positions=True).sample(key, 2000, 1))(KEY)
    centres = np.concatenate(pairs.pair)
    moved = np.linalg.norm(centres[2000:] - centres[:2000], axis=2)
    # Where no ball touches a wall or another ball, the three move by the video's root mean square.
    inside = (centres > VIDEO.radius + 0.06) & (centres < 1.0 - VIDEO.radius - 0.06)
    gaps = np.linalg.norm(centres[:, :, None] - centres[:, None], axis=3) + 9.0 * np.eye(3)
    free = (inside.all(axis=(1, 2)) & (gaps.min(axis=(1, 2)) > 2.0 * VIDEO.radius + 0.11))[:2000]
    assert free.sum() > 20
    assert np.all(moved <= VIDEO.speed * 3**0.5 + 1e-6)
    assert np.all(moved.sum(axis=1) > 0.0)
    speeds = np.sqrt(np.mean(np.square(moved[free]), axis=1))
    np.testing.assert_allclose(speeds, VIDEO.speed, rtol=1e-4)


def test_inputs_of_a_clip_are_consecutive_frames_each_a_frame_after_the_one_before():
    # Clips of five frames, two an input: inputs 01 12 23 34, once each.
    draw = jax.jit(lambda key: [clips(2, 5, 40, each).sample(key, 6, 1) for each in (False, True)])
    frames, centres = (np.asarray(batch.inputs.joined()) for batch in draw(KEY))
    assert (frames.shape, centres.shape) == ((24, 16, 16, 2), (24, 3, 2))
    inputs = frames.reshape(4, 6, 16, 16, 2)
    np.testing.assert_array_equal(inputs[:-1, ..., 1], inputs[1:, ..., 0])
    assert np.all(np.abs(inputs[..., 0] - inputs[..., 1]).max(axis=(2, 3)) > 0.01)
    assert len(np.unique(centres, axis=0)) == 24
    # Centres are the mean over both frames: that of the brightness of their mean.
    brightness, ticks = frames.mean(axis=-1), (np.arange(16) + 0.5) / 16
    across = (brightness.sum(axis=1) * ticks).sum(axis=1) / brightness.sum(axis=(1, 2))
    np.testing.assert_allclose(across, centres[..., 0].mean(axis=1), atol=0.01)


@pytest.mark.integration
def test_a_video_has_as_many_clips_as_it_says_and_fresh_ones_never_come_twice():
    def starts(num_clips):
        draw = jax.jit(lambda key: clips(1, 3, num_clips, True).sample(key, 100, 1).inputs)
        return np.concatenate([draw(jax.random.key(seed)).states[0] for seed in (0, 1)])

    # Two draws of a hundred from seven: all of them and nothing else.
    assert len(np.unique(starts(7), axis=0)) == 7
    assert len(np.unique(starts(None), axis=0)) == 200


def test_pixels_are_means_over_squares():
    frames = np.random.default_rng(0).uniform(size=(2, 16, 16, 2)).astype(np.float32)
    found = pooled_pixels(16, 4)(frames)
    np.testing.assert_allclose(found[1, 13], frames[1, 4:8, 8:12, 1].mean(), rtol=1e-5)


def test_functions_of_positions_do_not_tell_balls_apart_and_are_the_cosines_stated():
    function, bodies = make_position_functions(VIDEO, 2)
    # Degrees 1 and 2 of one ball, products of two waves of degree 1.
    np.testing.assert_array_equal(np.bincount(bodies), [0, 5, 3])
    centres = np.random.default_rng(0).uniform(0.12, 0.88, size=(4, 3, 2)).astype(np.float32)
    both = np.concatenate([centres, centres[:, [2, 0, 1]]])
    found, again = np.split(np.asarray(jax.jit(function)(both)), 2)
    np.testing.assert_allclose(again, found, rtol=1e-4, atol=1e-5)
    sums = np.cos(np.pi * (centres - 0.12) / 0.76).sum(axis=1)
    for expected in (sums[:, 0], sums[:, 1], sums[:, 0] * sums[:, 1], sums[:, 0] ** 2):
        assert np.abs(found - expected[:, None]).max(axis=0).min() < 1e-5


def test_functions_of_velocities_are_the_sums_over_balls_stated():
    rng = np.random.default_rng(0)
    centres = rng.uniform(0.12, 0.88, size=(4, 3, 2)).astype(np.float32)
    speeds = rng.normal(size=(4, 3, 2)).astype(np.float32)
    found = np.asarray(jax.jit(make_velocity_functions(VIDEO))(centres, speeds))
    assert found.shape == (4, 30)
    (x, y), wave = np.moveaxis(speeds / VIDEO.speed, -1, 0), np.cos(np.pi * (centres - 0.12) / 0.76)
    for expected in (x, x * y, y**2 * wave[..., 0], x * wave[..., 0] * wave[..., 1]):
        gaps = np.abs(found - expected.sum(axis=1, keepdims=True)).max(axis=0)
        assert gaps.min() < 1e-3 * np.abs(expected).max()


def test_responses_follow_the_balls_and_exciting_frames_are_those_of_extreme_values():
    def centre_of_brightness(frames):
        """Minus the balls' mean x, its squared distance from the middle, its change."""
        ticks = (jnp.arange(16, dtype=jnp.float32) + 0.5) / 16
        totals = frames.sum(axis=(1, 2))
        x = jnp.sum(frames.sum(axis=1) * ticks[None, :, None], axis=1) / totals
        middle = x.mean(axis=1)
        return jnp.stack([-2.0 * middle, (middle - 0.5) ** 2, x[:, 1] - x[:, 0]], axis=1)

    encoder = FunctionEncoder(lambda _: (), lambda _, frames: centre_of_brightness(frames))
    keys = jax.random.split(jax.random.key(3), 40)
    found = ball_responses(encoder, (), VIDEO, keys, frames=2, rows=64, bins=5)
    assert found.centres.shape == found.velocities.shape == (40 * 64, 3, 2)
    # Negative everywhere, so the sign is turned: the largest mean response is positive.
    mean_x = found.centres[:, :, 0].mean(axis=1)
    np.testing.assert_allclose(found.values[:, 0], 2.0 * mean_x, atol=0.02)
    assert np.all(np.nanmax(found.maps, axis=0) == np.nanmax(np.abs(found.maps), axis=0))
    shares = found.shares(4)
    assert shares["mean_position"][0] > 0.99
    assert shares["mean_position"][1] < 0.1
    assert shares["one_ball"][1] < 0.8
    assert shares["all_balls"][1] > 0.95
    # Walls and collisions within the frame aside, the change is the mean velocity.
    assert shares["all_balls"][2] < 0.3
    assert shares["velocity"][2] > 0.5
    assert np.abs(shares["velocity"][:2]).max() < 0.05
    frames = found.extreme_frames(2)
    assert frames.shape == (3, 5, 16, 16)
    assert np.isnan(frames[:, 2]).all()
    chosen = np.argsort(found.values[:, 0])[[0, 1, -2, -1]]
    still = BouncingBallsState(found.centres[chosen], 0.0 * found.centres[chosen])
    np.testing.assert_allclose(
        frames[0, [0, 1, 3, 4]], jax.jit(jax.vmap(VIDEO.render))(still), atol=1e-6
    )
