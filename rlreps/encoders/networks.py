"""Networks: perceptrons on coordinates or their cosines, one for each feature, convolutions."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, size
from rlreps.encoders.base import Encoder, Params
from rlreps.errors import require, require_choice, require_positive

Layer = dict[str, Array]
"""``kernel`` [..., in, out] and ``bias`` [out]."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    name: getattr(jax.nn, name)
    for name in ("elu", "gelu", "identity", "relu", "silu", "softplus", "tanh")
}
"""Name → activation. Smooth ones (not ``relu`` and ``elu``) can be differentiated twice."""


def init_layers(key: Array, kernels: Sequence[tuple[int, ...]]) -> list[Layer]:
    """Draw LeCun-normal kernels of these shapes [..., in, out], with biases of zero.

    Parameters have JAX's default floating type.
    """
    dtype = jnp.result_type(float)
    draw = jax.nn.initializers.lecun_normal()
    return [
        {
            # The keys that Flax NNX draws from: one for the kernel, then one for the bias.
            "kernel": draw(jax.random.fold_in(key, 2 * index), shape, dtype),
            "bias": jnp.zeros(shape[-1:], dtype),
        }
        for index, shape in enumerate(kernels)
    ]


def dense(layer: Layer, inputs: Array) -> Array:
    """Apply a layer to inputs [b, in], giving [b, out]."""
    return inputs @ layer["kernel"] + layer["bias"][None]


def cosine_features(inputs: Array, frequencies: int) -> Array:
    """Append cos(jπx) of each coordinate, j = 1 … frequencies.

    The cosines are the Neumann eigenfunctions of the unit interval: what the slow directions of a
    walk in a reflecting box look like along one axis.

    Args:
        inputs: Coordinates in [0, 1], [b, c].
        frequencies: Cosines per coordinate; 0 returns the inputs.

    Returns:
        [b, c · (1 + frequencies)].
    """
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
        activation: Of the hidden layers, by name; smooth ones can be differentiated twice.

    Raises:
        InputError: If there is no input or feature, a layer is empty or the activation unknown.
    """

    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    num_inputs: int = size(2)
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"

    def __post_init__(self) -> None:
        require_positive("num_inputs", self.num_inputs)
        require_positive("num_features", self.num_features)
        require(all(width >= 1 for width in self.hidden), "hidden layer widths >= 1", self.hidden)
        require_choice("activation", self.activation, list(ACTIVATIONS))

    def init(self, key: Array) -> Params:
        widths = (self._width, *self.hidden, self.num_features)
        return init_layers(key, list(itertools.pairwise(widths)))

    def apply(self, params: Params, inputs: Array) -> Array:
        return dense(params[-1], self._values(params, inputs)[-1])

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array]:
        return self._values(params, inputs)[1:]

    @property
    def _width(self) -> int:
        """Number of coordinates that the first layer sees."""
        return self.num_inputs

    def _first(self, inputs: Array) -> Array:
        """Prepare the first layer's inputs."""
        return inputs

    def _values(self, params: list[Layer], inputs: Array) -> list[Array]:
        """Compute what each layer is applied to, the read-out last."""
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

    frequencies: int = dataclasses.field(default=8, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.frequencies >= 0, "frequencies >= 0", self.frequencies)

    @property
    def _width(self) -> int:
        return self.num_inputs * (1 + self.frequencies)

    def _first(self, inputs: Array) -> Array:
        return cosine_features(inputs, self.frequencies)


@configurable
@dataclasses.dataclass(frozen=True)
class SeparateMLP(MLP):
    """An ``MLP`` for each feature: block-diagonal layers, [b, num_inputs] → [b, d].

    Features share no parameter, so ``Spin`` gets its Jacobian in d backward passes. Every leaf of
    the parameters is [d, ...], slice k for feature k.
    """

    hidden: tuple[int, ...] = dataclasses.field(default=(64, 64), kw_only=True)
    activation: str = dataclasses.field(default="tanh", kw_only=True)

    def init(self, key: Array) -> Params:
        scaled = jax.nn.initializers.lecun_normal(batch_axis=0)
        biases = jax.nn.initializers.normal(0.5)
        layers = []
        for width_in, width_out in itertools.pairwise((self.num_inputs, *self.hidden, 1)):
            key, kernel_key, bias_key = jax.random.split(key, 3)
            shape = (self.num_features, width_in, width_out)
            # Biases are spread, so that units of few inputs bend at different places.
            bias = biases(bias_key, (self.num_features, 1, width_out))
            layers.append({"kernel": scaled(kernel_key, shape), "bias": bias})
        return layers

    def apply(self, params: Params, inputs: Array) -> Array:
        values = self._values(params, inputs)[-1]
        read_out = jnp.matmul(values, params[-1]["kernel"]) + params[-1]["bias"]
        features: Array = read_out[:, :, 0].T
        return features

    def hidden_activations(self, params: Params, inputs: Array) -> list[Array]:
        return [jnp.moveaxis(layer, 0, -1) for layer in self._values(params, inputs)[1:]]

    def _values(self, params: list[Layer], inputs: Array) -> list[Array]:
        values = [jnp.broadcast_to(inputs[None], (self.num_features, *inputs.shape))]
        for layer in params[:-1]:
            products = jnp.matmul(values[-1], layer["kernel"]) + layer["bias"]
            values.append(ACTIVATIONS[self.activation](products))
        return values


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
        shapes = [(3, 3, *ends) for ends in itertools.pairwise((first, *self.channels))]
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
