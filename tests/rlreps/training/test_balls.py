import jax
import jax.numpy as jnp
import numpy as np

from rlreps.encoders import FunctionEncoder
from rlreps.envs import BouncingBalls, BouncingBallsState
from rlreps.training.balls import ball_responses

VIDEO = BouncingBalls(frame_size=16)


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
    still = BouncingBallsState(found.centres[chosen], 0.0 * found.centres[chosen], np.zeros(4, int))
    np.testing.assert_allclose(
        frames[0, [0, 1, 3, 4]], jax.jit(jax.vmap(VIDEO.render))(still), atol=1e-6
    )
