import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import convolutional
from rlreps.envs import BouncingBalls
from rlreps.errors import InputError
from rlreps.experiments.bouncing_balls.config import BouncingBallsConfig
from rlreps.experiments.bouncing_balls.network import frame_encoder

CONFIG = BouncingBallsConfig(num_features=4, channels=(3, 5, 4), hidden=6)


@pytest.mark.parametrize("size", [16, 13, 11])
def test_features_are_the_constant_and_those_of_the_convolutional_encoder(size):
    encoder = frame_encoder(CONFIG, BouncingBalls(frame_size=size))
    plain = convolutional((size, size, 1), 4, channels=CONFIG.channels, hidden=CONFIG.hidden)
    params = encoder.init(jax.random.key(0))
    frames = jax.random.uniform(jax.random.key(1), (7, size, size, 1))
    features = encoder.apply(params, frames)
    np.testing.assert_array_equal(features[:, 0], 1.0)
    np.testing.assert_allclose(features[:, 1:], plain.apply(params, frames), rtol=1e-4, atol=1e-6)

    def total(apply):
        return jax.grad(lambda params: jnp.sum(jnp.sin(apply(params, frames))))(params)

    expected, found = total(plain.apply), total(lambda *given: encoder.apply(*given)[:, 1:])
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 16, 15, 1), (2, 16, 16, 3), (16, 16, 1)])
def test_videos_of_the_wrong_shape_are_refused(shape):
    encoder = frame_encoder(CONFIG, BouncingBalls(frame_size=16))
    params = encoder.init(jax.random.key(0))
    with pytest.raises(InputError, match=r"frames of shape \('b', 16, 16, 1\)"):
        encoder.apply(params, jnp.zeros(shape))
