"""A convolutional network for frames of video."""

import itertools
import math
from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlreps.encoders.base import Encoder, from_nnx
from rlreps.errors import require


class _Convolutional(nnx.Module):
    """Strided convolutions, one hidden layer and a linear read-out."""

    def __init__(
        self,
        frame_shape: Sequence[int],
        num_features: int,
        channels: Sequence[int],
        hidden: int,
        rngs: nnx.Rngs,
    ) -> None:
        widths = [frame_shape[-1], *channels]
        dtype = jnp.result_type(float)
        self.convolutions = nnx.List(
            [
                nnx.Conv(width_in, width_out, (3, 3), strides=2, param_dtype=dtype, rngs=rngs)
                for width_in, width_out in itertools.pairwise(widths)
            ]
        )
        shrunk = 2 ** len(channels)
        height, width = (math.ceil(size / shrunk) for size in frame_shape[:2])
        self.hidden = nnx.Linear(height * width * widths[-1], hidden, param_dtype=dtype, rngs=rngs)
        self.read_out = nnx.Linear(hidden, num_features, param_dtype=dtype, rngs=rngs)

    def __call__(self, frames: Array) -> Array:
        features: Array = self.read_out(self.hidden_activations(frames)[-1])
        return features

    def hidden_activations(self, frames: Array) -> list[Array]:
        values = [frames]
        for convolution in self.convolutions:
            values.append(nnx.relu(_convolved(convolution, values[-1])))
        values.append(nnx.relu(self.hidden(values[-1].reshape(len(frames), -1))))
        return values[1:]


def _convolved(convolution: nnx.Conv, values: Array) -> Array:
    """A 3 x 3 convolution of stride 2, by a product of patches and kernel.

    On a CPU, XLA's gradient of a convolution takes tens of times as long inside a scan as outside;
    that of a product does not.
    """
    assert convolution.bias is not None
    kernel, bias = convolution.kernel[...], convolution.bias[...]
    patches = _patches(values)
    flat = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, len(bias))
    return (flat + bias[None, :]).reshape(*patches.shape[:-1], len(bias))


def _patches(values: Array) -> Array:
    """The 3 x 3 squares at every second place, [b, h, w, c] → [b, ⌈h/2⌉, ⌈w/2⌉, 9c].

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


def convolutional(
    frame_shape: Sequence[int],
    num_features: int,
    *,
    channels: Sequence[int] = (32, 32, 32),
    hidden: int = 64,
) -> Encoder:
    """A convolutional network on frames: [b, height, width, channels] → [b, d].

    3 x 3 convolutions of stride 2 with ReLU, one hidden ReLU layer, a linear read-out.

    Args:
        frame_shape: (height, width, channels) of a frame.
        num_features: d.
        channels: Of each convolution; each halves height and width.
        hidden: Width of the hidden layer.

    Returns:
        The encoder. It raises an ``InputError`` for frames of another shape.

    Raises:
        InputError: For sizes below 1, or a frame shape of other than three axes.
    """
    shape = tuple(frame_shape)
    require(len(shape) == 3, "a frame shape (height, width, channels)", shape)
    sizes = (*shape, num_features, *channels, hidden)
    require(all(size >= 1 for size in sizes), "sizes >= 1", sizes)
    require(len(channels) >= 1, "at least one convolution", tuple(channels))
    network = from_nnx(lambda rngs: _Convolutional(shape, num_features, channels, hidden, rngs))

    def checked(frames: Array) -> Array:
        require(
            frames.ndim == 4 and frames.shape[1:] == shape,
            f"frames of shape {('b', *shape)}",
            frames.shape,
        )
        return frames

    hidden_activations = network.hidden
    assert hidden_activations is not None
    return Encoder(
        network.init,
        lambda params, frames: network.apply(params, checked(frames)),
        lambda params, frames: hidden_activations(params, checked(frames)),
    )
