import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.envs import BouncingBalls
from rlreps.experiments.pfau_2019.bouncing_balls.config import PRESETS
from rlreps.experiments.pfau_2019.bouncing_balls.measuring import (
    extreme_frames,
    mean_responses,
    measure_explained,
    measure_responses,
)

VIDEO = BouncingBalls(frame_size=16)
CONFIG = dataclasses.replace(PRESETS["smoke"], frame_batches=40, map_bins=5)


def centre_of_brightness(frames):
    """Minus the mean x of the balls, twice, and the square of its distance from the middle."""
    ticks = (jnp.arange(16, dtype=jnp.float32) + 0.5) / 16
    total = frames.sum(axis=(1, 2, 3))
    x = (frames[..., 0].sum(axis=1) * ticks[None, :]).sum(axis=1) / total
    return jnp.stack([-2.0 * x, (x - 0.5) ** 2], axis=1)


def test_a_map_is_the_mean_over_states_with_a_ball_in_the_cell():
    centres = np.asarray([[[0.1, 0.1], [0.9, 0.1]], [[0.1, 0.1], [0.1, 0.9]]])
    values = np.asarray([[1.0, 10.0], [3.0, 20.0]])
    maps = mean_responses(centres, values, 2)
    # Cells (row, column) = (y, x): both states have a ball at the bottom left.
    np.testing.assert_array_equal(maps[:, 0], [2.0, 1.0, 3.0, np.nan])
    np.testing.assert_array_equal(maps[:, 1], [15.0, 10.0, 20.0, np.nan])


def test_responses_follow_the_balls_and_their_signs_are_fixed():
    found = measure_responses(centre_of_brightness, VIDEO, jax.random.key(0), CONFIG)
    assert found.centres.shape == (40 * 64, 3, 2)
    mean_x = found.centres[:, :, 0].mean(axis=1)
    # Negative everywhere, so the sign is turned: the largest mean response is positive.
    np.testing.assert_allclose(found.values[:, 0], 2.0 * mean_x, atol=0.02)
    assert np.all(np.nanmax(found.maps, axis=0) == np.nanmax(np.abs(found.maps), axis=0))
    shares = measure_explained(found, VIDEO, CONFIG)
    assert shares.mean_position[0] > 0.99
    assert shares.mean_position[1] < 0.1
    assert shares.one_ball[1] < 0.8
    assert shares.all_balls[1] > 0.95


def test_the_exciting_frames_are_those_of_the_extreme_values():
    found = measure_responses(centre_of_brightness, VIDEO, jax.random.key(0), CONFIG)
    frames = extreme_frames(found, VIDEO, 2)
    assert frames.shape == (2, 4, 16, 16)
    again = np.asarray(centre_of_brightness(jnp.asarray(frames[0])[..., None]))[:, 0]
    expected = np.sort(found.values[:, 0])[[0, 1, -2, -1]]
    np.testing.assert_allclose(-again, expected, atol=1e-4)
