"""The convolutional encoder with its convolutions written as products of matrices."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.encoders import Encoder, Params, convolutional


def convolutional_by_products(
    frame_shape: Sequence[int], num_features: int, *, channels: Sequence[int], hidden: int
) -> Encoder:
    """What ``encoders.convolutional`` is, with its parameters, computed from patches of frames.

    On a CPU, XLA's gradient of a convolution in its kernel takes fifty times as long inside a scan
    as outside one; that of a product of patches and kernel is as fast in both.

    Args:
        frame_shape: (height, width, channels) of a frame.
        num_features: d.
        channels: Of each convolution.
        hidden: Width of the hidden layer.

    Returns:
        The encoder: frames [b, height, width, channels] → features [b, d].

    Raises:
        InputError: As ``encoders.convolutional``.
    """
    network = convolutional(frame_shape, num_features, channels=channels, hidden=hidden)

    def apply(params: Params, frames: Array) -> Array:
        values = frames
        for index in range(len(channels)):
            values = jax.nn.relu(_affine(params["convolutions"][index], _patches(values)))
        flat = values.reshape(len(frames), -1)
        return _affine(params["read_out"], jax.nn.relu(_affine(params["hidden"], flat)))

    return Encoder(network.init, apply)


def _patches(values: Array) -> Array:
    """What a 3 x 3 convolution of stride 2 sees, [b, h, w, c] → [b, ⌈h/2⌉, ⌈w/2⌉, 9c].

    Zeros are added at the borders as ``SAME`` does: on both sides of an odd length, and after an
    even one.
    """
    height, width = values.shape[1:3]
    padded = jnp.pad(values, ((0, 0), (height % 2, 1), (width % 2, 1), (0, 0)))
    shifted = [
        padded[:, row : row + height : 2, column : column + width : 2]
        for row in range(3)
        for column in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _affine(layer: Params, values: Array) -> Array:
    """Values [..., c] times a layer's kernel, plus its bias, [..., k]."""
    kernel, bias = layer["kernel"], layer["bias"]
    product = values.reshape(-1, values.shape[-1]) @ kernel.reshape(-1, len(bias))
    shifted: Array = (product + bias[None, :]).reshape(*values.shape[:-1], len(bias))
    return shifted
