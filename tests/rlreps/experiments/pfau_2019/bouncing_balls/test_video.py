import jax
import numpy as np
import pytest

from rlreps.envs import BouncingBalls
from rlreps.errors import InputError
from rlreps.experiments.pfau_2019.bouncing_balls.video import FramePairs

VIDEO = BouncingBalls(frame_size=16)
KEY = jax.random.key(3)


def test_the_second_half_of_a_batch_is_the_first_one_frame_later():
    centres = np.asarray(FramePairs(VIDEO, True).sample(KEY, 40, 1).inputs)
    assert centres.shape == (40, 3, 2)
    moved = np.linalg.norm(centres[20:] - centres[:20], axis=2)
    # Where no ball touches a wall or another ball, the three move by the video's root mean square.
    inside = (centres > VIDEO.radius + 0.06) & (centres < 1.0 - VIDEO.radius - 0.06)
    gaps = np.linalg.norm(centres[:, :, None] - centres[:, None], axis=3) + 9.0 * np.eye(3)
    free = (inside.all(axis=(1, 2)) & (gaps.min(axis=(1, 2)) > 2.0 * VIDEO.radius + 0.11))[:20]
    pairs = FramePairs(VIDEO, True).sample(KEY, 4000, 1).inputs
    assert np.all(moved <= VIDEO.speed * 3**0.5 + 1e-6)
    assert np.all(moved.sum(axis=1) > 0.0)
    np.testing.assert_allclose(
        np.sqrt(np.mean(np.square(moved[free]), axis=1)), VIDEO.speed, rtol=1e-4
    )
    # Pairs are unrelated: so are their centres of mass.
    means = np.asarray(pairs[:2000].mean(axis=1)[:, 0])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.1


def test_frames_and_positions_of_one_key_are_of_the_same_states():
    frames = FramePairs(VIDEO).sample(KEY, 6, 1)
    centres = FramePairs(VIDEO, True).sample(KEY, 6, 1).inputs
    assert frames.inputs.shape == (6, 16, 16, 1)
    assert frames.targets.shape == (6, 0)
    ticks = (np.arange(16) + 0.5) / 16
    brightness = np.asarray(frames.inputs)[..., 0]
    total = brightness.sum(axis=(1, 2))
    np.testing.assert_allclose(
        (brightness.sum(axis=1) * ticks).sum(axis=1) / total,
        centres[:, :, 0].mean(axis=1),
        atol=0.01,
    )
    np.testing.assert_allclose(
        (brightness.sum(axis=2) * ticks[::-1]).sum(axis=1) / total,
        centres[:, :, 1].mean(axis=1),
        atol=0.01,
    )


def test_an_odd_number_of_rows_is_refused():
    with pytest.raises(InputError, match=r"expected an even number of rows.*got 5"):
        FramePairs(VIDEO).sample(KEY, 5, 1)
