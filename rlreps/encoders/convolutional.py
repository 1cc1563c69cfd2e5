"""A convolutional network for frames of video."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, size
from rlreps.encoders.base import Encoder, Params
from rlreps.encoders.layers import Layer, dense, init_layers
from rlreps.errors import require


@configurable
@dataclasses.dataclass(frozen=True)
class Convolutional(Encoder):
    """A convolutional network on frames: [b, height, width, channels] → [b, d].

    3 x 3 convolutions of stride 2 with ReLU, one hidden ReLU layer, a linear read-out. Parameters
    are the list of these layers.

    Attributes:
        num_features: d.
        frame_shape: (height, width, channels) of a frame.
        channels: Of each convolution; each halves height and width.
        hidden: Width of the hidden layer.

    Raises:
        InputError: For sizes below 1 or a frame shape of other than three axes; from ``apply``, for
            frames of another shape.
    """

    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    frame_shape: tuple[int, ...] = size((84, 84, 1))
    channels: tuple[int, ...] = (32, 32, 32)
    hidden: int = 64

    def __post_init__(self) -> None:
        shape = self.frame_shape
        require(len(shape) == 3, "a frame shape (height, width, channels)", shape)
        sizes = (*shape, self.num_features, *self.channels, self.hidden)
        require(all(size >= 1 for size in sizes), "sizes >= 1", sizes)
        require(len(self.channels) >= 1, "at least one convolution", self.channels)

    def init(self, key: Array) -> Params:
        height, width, first = self.frame_shape
        shrunk = 2 ** len(self.channels)
        flat = math.ceil(height / shrunk) * math.ceil(width / shrunk) * self.channels[-1]
        convolutions = itertools.pairwise((first, *self.channels))
        shapes = [(3, 3, *ends) for ends in convolutions]
        return init_layers(key, [*shapes, (flat, self.hidden), (self.hidden, self.num_features)])

    def apply(self, params: Params, inputs: Array) -> Array:
        return dense(params[-1], self.hidden_activations(params, inputs)[-1])

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array]:
        require(
            inputs.ndim == 4 and inputs.shape[1:] == self.frame_shape,
            f"frames of shape {('b', *self.frame_shape)}",
            inputs.shape,
        )
        *convolutions, hidden, _ = params
        values = [inputs]
        for layer in convolutions:
            values.append(jax.nn.relu(_convolved(layer, values[-1])))
        values.append(jax.nn.relu(dense(hidden, values[-1].reshape(len(inputs), -1))))
        return values[1:]


def _convolved(layer: Layer, values: Array) -> Array:
    """Convolve [b, h, w, c] by 3 x 3 kernels with stride 2, as a product of patches and kernel.

    Zeros are added at the borders as ``SAME`` does: on both sides of an odd length, and after an
    even one. On a CPU, XLA's gradient of a convolution takes tens of times as long inside a scan as
    outside; that of a product does not.
    """
    height, width = values.shape[1:3]
    padded = jnp.pad(values, ((0, 0), (height % 2, 1), (width % 2, 1), (0, 0)))
    shifted = [
        padded[:, row : row + height : 2, column : column + width : 2]
        for row in range(3)
        for column in range(3)
    ]
    patches = jnp.concatenate(shifted, axis=-1)
    kernel = layer["kernel"].reshape(-1, layer["kernel"].shape[-1])
    flat = dense({**layer, "kernel": kernel}, patches.reshape(-1, patches.shape[-1]))
    return flat.reshape(*patches.shape[:-1], -1)
