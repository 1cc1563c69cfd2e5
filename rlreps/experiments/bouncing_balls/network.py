"""The convolutional network, its convolutions written as products of matrices."""

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.encoders import Encoder, Params, convolutional, with_constant
from rlreps.envs import BouncingBalls
from rlreps.experiments.bouncing_balls.config import BouncingBallsConfig
from rlreps.validation import require


def frame_encoder(config: BouncingBallsConfig, video: BouncingBalls) -> Encoder:
    """The constant and ``config.num_features`` features of one frame [b, size, size, 1].

    It computes what ``encoders.convolutional`` does, with its parameters. On a CPU, XLA's gradient
    of a convolution in a scan takes ten times as long as outside one; that of a product of patches
    and weights does not.

    Raises:
        InputError: For frames of another shape, when applied.
    """
    shape = (video.frame_size, video.frame_size, 1)
    network = convolutional(
        shape, config.num_features, channels=config.channels, hidden=config.hidden
    )

    def apply(params: Params, frames: Array) -> Array:
        expected = f"frames of shape {('b', *shape)}"
        require(frames.ndim == 4 and frames.shape[1:] == shape, expected, frames.shape)
        values = frames
        for index in range(len(config.channels)):
            layer = params["convolutions"][index]
            values = jax.nn.relu(_dense(layer, _patches(values)))
        hidden = jax.nn.relu(_dense(params["hidden"], values.reshape(len(frames), -1)))
        return _dense(params["read_out"], hidden)

    return with_constant(Encoder(network.init, apply))


def _patches(values: Array) -> Array:
    """The 3 x 3 squares that a convolution of stride 2 sees, [b, h, w, c] → [b, ⌈h/2⌉, ⌈w/2⌉, 9c].

    Zeros pad the borders as ``SAME`` does: one row before if the height is odd, one after always.
    """
    height, width = values.shape[1:3]
    padded = jnp.pad(values, ((0, 0), (height % 2, 1), (width % 2, 1), (0, 0)))
    last_row, last_column = height + height % 2 - 1, width + width % 2 - 1
    shifted = [
        padded[:, row : row + last_row : 2, column : column + last_column : 2]
        for row in range(3)
        for column in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _dense(layer: Params, values: Array) -> Array:
    """Values [..., c_in] times a layer's kernel [..., c_out] with c_in rows, plus its bias."""
    kernel, bias = layer["kernel"], layer["bias"]
    flat = values.reshape(-1, values.shape[-1])
    outputs: Array = flat @ kernel.reshape(-1, len(bias)) + bias[None, :]
    return outputs.reshape(*values.shape[:-1], len(bias))
