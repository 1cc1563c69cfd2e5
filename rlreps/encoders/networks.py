"""Networks: perceptrons on coordinates or cosines, one perceptron per feature, and convolutions.

The parameters of every network are a list of layers.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import configurable, interval, leaf, size, static
from rlreps.encoders.base import Encoder, Params
from rlreps.errors import require, require_choice, require_positive

Layer = dict[str, Any]
"""``kernel`` [..., in, out] and ``bias`` [out], and perhaps a ``tap`` that ``dense`` calls."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    name: getattr(jax.nn, name)
    for name in ("elu", "gelu", "identity", "relu", "silu", "softplus", "tanh")
}
"""Name → activation. Smooth ones (not ``relu`` and ``elu``) can be differentiated twice."""


def init_layers(
    key: Array, kernels: Sequence[tuple[int, ...]], bias_scale: float = 0.0
) -> list[Layer]:
    """Draw LeCun-normal kernels of these shapes [..., in, out], and biases.

    Biases are zero, or normal with standard deviation ``bias_scale``. Parameters have JAX's default
    floating type.
    """
    dtype = jnp.result_type(float)
    draw = jax.nn.initializers.lecun_normal()
    draw_bias = jax.nn.initializers.normal(bias_scale)
    return [
        {
            # The same keys as Flax NNX: one for the kernel, then one for the bias.
            "kernel": draw(jax.random.fold_in(key, 2 * index), shape, dtype),
            "bias": draw_bias(jax.random.fold_in(key, 2 * index + 1), shape[-1:], dtype)
            if bias_scale
            else jnp.zeros(shape[-1:], dtype),
        }
        for index, shape in enumerate(kernels)
    ]


def require_coordinates(inputs: Array, num_inputs: int) -> None:
    """Raise an ``InputError`` unless inputs are [b, num_inputs]."""
    require(
        inputs.ndim == 2 and inputs.shape[1] == num_inputs,
        "vectors, or an encoder of images (convolutional)"
        if inputs.ndim > 2
        else f"inputs of shape (b, {num_inputs}), as the encoder's num_inputs is {num_inputs}",
        inputs.shape,
    )


def dense(layer: Layer, inputs: Array) -> Array:
    """Apply a layer to inputs [b, in], giving [b, out].

    A ``tap`` takes the kernel, the inputs and the outputs, and returns the outputs to go on with.
    """
    outputs: Array = inputs @ layer["kernel"] + layer["bias"][None]
    if "tap" in layer:
        outputs = layer["tap"](layer["kernel"], inputs, outputs)
    return outputs


def cosine_features(inputs: Array, frequencies: int) -> Array:
    """Append cos(jπx) of each coordinate, j = 1 … frequencies.

    The cosines are the Neumann eigenfunctions of the unit interval: the slow directions of a walk
    in a reflecting box look like them along one axis.

    Args:
        inputs: Coordinates in [0, 1], [b, c].
        frequencies: Cosines per coordinate; 0 returns the inputs.

    Returns:
        [b, c · (1 + frequencies)].
    """
    require_positive("frequencies", frequencies, least=0)
    if frequencies == 0:
        return inputs
    multiples = jnp.pi * jnp.arange(1, frequencies + 1, dtype=inputs.dtype)
    angles = inputs[:, :, None] * multiples[None, None, :]
    return jnp.concatenate([inputs, jnp.cos(angles).reshape(inputs.shape[0], -1)], axis=1)


@configurable
@dataclasses.dataclass(frozen=True)
class MLP(Encoder):
    """Multi-layer perceptron, [b, num_inputs] → [b, d]; Le Lan et al. 2023 take 2 x 512 ReLU.

    Parameters are a list of layers in JAX's default floating type.

    Attributes:
        num_features: d.
        num_inputs: Coordinates of a state.
        hidden: Widths of the hidden layers.
        activation: Activation of the hidden layers, by name; smooth ones can be differentiated
            twice.
        bias_scale: Standard deviation of the initial biases. If it is zero, all units of the first
            layer bend at the origin.

    Raises:
        InputError: If there is no input or feature, a layer is empty, the activation is unknown or
            the scale is negative.
    """

    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    num_inputs: int = size(2)
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    bias_scale: float = interval("[0, inf)", 0.0, static=True)

    def __post_init__(self) -> None:
        require(all(width >= 1 for width in self.hidden), "hidden layer widths >= 1", self.hidden)
        require_choice("activation", self.activation, list(ACTIVATIONS))

    def init(self, key: Array) -> Params:
        widths = (self._width, *self.hidden, self.num_features)
        return init_layers(key, list(itertools.pairwise(widths)), self.bias_scale)

    def apply(self, params: Params, inputs: Array) -> Array:
        return dense(params[-1], self._values(params, inputs)[-1])

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array]:
        return self._values(params, inputs)[1:]

    @property
    def is_layered(self) -> bool:
        return True

    @property
    def _width(self) -> int:
        """Number of inputs of the first layer."""
        return self.num_inputs

    def _first(self, inputs: Array) -> Array:
        """Prepare the first layer's inputs."""
        return inputs

    def _values(self, params: list[Layer], inputs: Array) -> list[Array]:
        """Compute the inputs of all layers, from the first layer to the last."""
        require_coordinates(inputs, self.num_inputs)
        values = [self._first(inputs)]
        for layer in params[:-1]:
            values.append(ACTIVATIONS[self.activation](dense(layer, values[-1])))
        return values


@configurable
@dataclasses.dataclass(frozen=True)
class FourierMLP(MLP):
    """An ``MLP`` on coordinates in [0, 1] and their cosines.

    Attributes:
        frequencies: Cosines per coordinate (see ``cosine_features``).
    """

    _: dataclasses.KW_ONLY
    frequencies: int = interval("[0, 2**31)", 8)

    @property
    def _width(self) -> int:
        return self.num_inputs * (1 + self.frequencies)

    def _first(self, inputs: Array) -> Array:
        return cosine_features(inputs, self.frequencies)


@configurable
@dataclasses.dataclass(frozen=True)
class SeparateMLP(MLP):
    """One ``MLP`` per feature, as block-diagonal layers: [b, num_inputs] → [b, d].

    Features share no parameter, so ``Spin`` computes its Jacobian in d backward passes. Every leaf
    of the parameters is [d, ...], with slice k for feature k.
    """

    hidden: tuple[int, ...] = dataclasses.field(default=(64, 64), kw_only=True)
    activation: str = dataclasses.field(default="tanh", kw_only=True)
    bias_scale: float = static(0.5)

    def init(self, key: Array) -> Params:
        scaled = jax.nn.initializers.lecun_normal(batch_axis=0)
        biases = jax.nn.initializers.normal(self.bias_scale)
        layers = []
        for width_in, width_out in itertools.pairwise((self.num_inputs, *self.hidden, 1)):
            key, kernel_key, bias_key = jax.random.split(key, 3)
            shape = (self.num_features, width_in, width_out)
            bias = biases(bias_key, (self.num_features, 1, width_out))
            layers.append({"kernel": scaled(kernel_key, shape), "bias": bias})
        return layers

    def apply(self, params: Params, inputs: Array) -> Array:
        values = self._values(params, inputs)[-1]
        read_out = jnp.matmul(values, params[-1]["kernel"]) + params[-1]["bias"]
        features: Array = read_out[:, :, 0].T
        return features

    @property
    def is_layered(self) -> bool:
        return False

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array]:
        return [jnp.moveaxis(layer, 0, -1) for layer in self._values(params, inputs)[1:]]

    def _values(self, params: list[Layer], inputs: Array) -> list[Array]:
        require_coordinates(inputs, self.num_inputs)
        values = [jnp.broadcast_to(inputs[None], (self.num_features, *inputs.shape))]
        for layer in params[:-1]:
            products = jnp.matmul(values[-1], layer["kernel"]) + layer["bias"]
            values.append(ACTIVATIONS[self.activation](products))
        return values


def channels_first(shape: tuple[int, ...]) -> bool:
    """Tell whether images of a shape are [channels, height, width], as stacks of frames often are.

    Up to four channels come first if height and width are larger than four.
    """
    return len(shape) == 3 and shape[0] <= 4 < min(shape[1:])


@configurable
@dataclasses.dataclass(frozen=True)
class Convolutional(Encoder):
    """A convolutional network on frames: [b, height, width, channels] → [b, d].

    Convolutions of stride 2 with ReLU, one hidden ReLU layer and a linear output layer. Zero
    padding makes each convolution halve height and width, rounded up. Frames of one channel may
    come without its axis, [b, height, width].

    Attributes:
        num_features: d.
        frame_shape: (height, width, channels) of a frame.
        channels: Channels of each convolution.
        hidden: Width of the hidden layer.
        kernel_size: Side of the convolutions' kernels.
        unpadded: Number of leading convolutions without padding.

    Raises:
        InputError: If sizes are below 1, the frame shape has not three axes, or frames are too
            small for the unpadded convolutions; from ``apply``, for frames of another shape.
    """

    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    frame_shape: tuple[int, ...] = size((84, 84, 1))
    channels: tuple[int, ...] = (32, 32, 32)
    hidden: int = 64
    kernel_size: int = 3
    unpadded: int = 0

    def __post_init__(self) -> None:
        shape = self.frame_shape
        require(len(shape) == 3, "a frame shape (height, width, channels)", shape)
        sizes = (*shape, self.num_features, *self.channels, self.hidden, self.kernel_size)
        require(all(size >= 1 for size in sizes), "sizes >= 1", sizes)
        require(len(self.channels) >= 1, "at least one convolution", self.channels)
        fits = 0 <= self.unpadded <= len(self.channels)
        require(fits, f"unpadded in [0, {len(self.channels)}]", self.unpadded)
        maps = self._map_shapes[-1]
        require(min(maps) >= 1, "frames that the unpadded convolutions fit in", shape)

    @property
    def _map_shapes(self) -> list[tuple[int, ...]]:
        """Height and width of the frames and after each convolution."""
        shapes: list[tuple[int, ...]] = [self.frame_shape[:2]]
        for index in range(len(self.channels)):
            lost = self.kernel_size - 1 if index < self.unpadded else 0
            shapes.append(tuple(-(-(length - lost) // 2) for length in shapes[-1]))
        return shapes

    def init(self, key: Array) -> Params:
        sides = (self.kernel_size, self.kernel_size)
        ends = itertools.pairwise((self.frame_shape[2], *self.channels))
        flat = math.prod(self._map_shapes[-1]) * self.channels[-1]
        shapes = [*((*sides, *each) for each in ends), (flat, self.hidden)]
        return init_layers(key, [*shapes, (self.hidden, self.num_features)])

    def apply(self, params: Params, inputs: Array) -> Array:
        return dense(params[-1], self.hidden_activations(params, inputs)[-1])

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array]:
        if inputs.shape[1:] == self.frame_shape[:2] and self.frame_shape[2] == 1:
            inputs = inputs[..., None]
        require(
            inputs.ndim == 4 and inputs.shape[1:] == self.frame_shape,
            f"frames of shape {('b', *self.frame_shape)}",
            inputs.shape,
        )
        *convolutions, hidden, _ = params
        values = [inputs]
        for index, layer in enumerate(convolutions):
            convolved = _convolved(layer, values[-1], padded=index >= self.unpadded)
            values.append(jax.nn.relu(convolved))
        values.append(jax.nn.relu(dense(hidden, values[-1].reshape(inputs.shape[0], -1))))
        return values[1:]


def same_padding(length: int, side: int) -> tuple[int, int]:
    """Return the zeros before and after an axis for a convolution of stride 2 with ``SAME``."""
    added = max(2 * (-(-length // 2) - 1) + side - length, 0)
    return added // 2, added - added // 2


def _convolved(layer: Layer, values: Array, *, padded: bool) -> Array:
    """Convolve [b, h, w, c] by square kernels with stride 2, as a product of patches and kernel.

    With padding, zeros are added at the borders as for ``SAME``: equally on both sides, with an odd
    one at the end. On a CPU, XLA's gradient of a convolution takes tens of times as long inside a
    scan as outside; the gradient of a product does not.
    """
    side = len(layer["kernel"])
    lengths = values.shape[1:3]
    if padded:
        ends = [same_padding(length, side) for length in lengths]
        values = jnp.pad(values, ((0, 0), *ends, (0, 0)))
        lengths = values.shape[1:3]
    height, width = (length - side + 1 for length in lengths)
    shifted = [
        values[:, row : row + height : 2, column : column + width : 2]
        for row in range(side)
        for column in range(side)
    ]
    patches = jnp.concatenate(shifted, axis=-1)
    kernel = layer["kernel"].reshape(-1, layer["kernel"].shape[-1])
    flat = dense({**layer, "kernel": kernel}, patches.reshape(-1, patches.shape[-1]))
    return flat.reshape(*patches.shape[:-1], -1)


@configurable
@dataclasses.dataclass(frozen=True)
class BlockSparse(Encoder):
    """A network whose layers split, with depth, into overlapping blocks, one per feature.

    Pfau et al. 2019, App. C.1. In layer p of L, from m to n units, the weight from unit i to unit j
    is kept if both units lie in the block of some feature k of K: i in
    [s m, s m + (L − p + 1) m / L] with s = (k − 1)(p − 1) / ((K − 1) L), and j in the same interval
    with n in place of m. The first layer is dense; blocks of the last layer have an L-th of its
    width. Units count from 1, like k and p (the paper does not say). The units of a convolution are
    its maps (App. C.2).

    Attributes:
        encoder: The network, whose parameters are a list of layers, the output layer last.

    Raises:
        InputError: From ``init``, if a unit would have no input: for fewer features than layers.
    """

    encoder: Encoder = leaf()

    def init(self, key: Array) -> Params:
        params = self.encoder.init(key)
        for index, mask in enumerate(_block_masks([layer["kernel"].shape for layer in params])):
            every = bool(mask.any(axis=-2).all())
            require(every, "at least as many features and units as layers", f"layer {index + 1}")
        return params

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.encoder.apply(_masked(params), inputs)

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array] | None:
        return self.encoder.hidden_activations(_masked(params), inputs)

    @property
    def is_layered(self) -> bool:
        return self.encoder.is_layered


def _masked(params: list[Layer]) -> list[Layer]:
    """Set the weights between blocks to zero."""
    masks = _block_masks([layer["kernel"].shape for layer in params])
    return [
        {**layer, "kernel": layer["kernel"] * jnp.asarray(mask, layer["kernel"].dtype)}
        for layer, mask in zip(params, masks, strict=True)
    ]


def _block_masks(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return which weights are kept, for kernels [..., in, out]; each broadcasts to its kernel."""
    masks, units, num_features = [], shapes[0][-2], shapes[-1][-1]
    for index, shape in enumerate(shapes):
        before, after = (
            _blocks(size, index, len(shapes), num_features) for size in (units, shape[-1])
        )
        # After convolutions, a layer takes every position of each map, with maps running fastest.
        mask = np.tile((before.T @ after) > 0, (shape[-2] // units, 1))
        masks.append(mask.reshape((1,) * (len(shape) - 2) + mask.shape))
        units = shape[-1]
    return masks


def _blocks(size: int, index: int, num_layers: int, num_features: int) -> np.ndarray:
    """Return which units are in each feature's block at layer ``index``, from 0: [K, size]."""
    # Multiply by L (K − 1) to compare whole numbers, so that a block includes the units at its
    # ends.
    units = np.arange(1, size + 1)[None, :] * (num_layers * (num_features - 1))
    starts = np.arange(num_features)[:, None] * (index * size)
    width = (num_layers - index) * (num_features - 1) * size
    return np.asarray((units >= starts) & (units <= starts + width), int)
