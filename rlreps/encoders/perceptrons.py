"""Multi-layer perceptrons: on coordinates, on their cosines, and one for each feature."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, size
from rlreps.encoders.base import Encoder, Params
from rlreps.encoders.layers import ACTIVATIONS, Layer, dense, init_layers, require_activation
from rlreps.errors import require, require_positive


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
        require_activation(self.activation)

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
