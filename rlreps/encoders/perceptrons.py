"""Multi-layer perceptrons: on coordinates, on their cosines, and one for each feature."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlreps.encoders.base import Encoder, Params, from_nnx
from rlreps.errors import require


class _MLP(nnx.Module):
    """Hidden layers and a linear read-out, behind fixed cosine features if any."""

    def __init__(
        self,
        sizes: Sequence[int],
        frequencies: int,
        activation: Callable[[Array], Array],
        rngs: nnx.Rngs,
    ) -> None:
        self.frequencies = frequencies
        self.activation = activation
        first = sizes[0] * (1 + frequencies)
        widths = [first, *sizes[1:]]
        self.layers = nnx.List(
            [
                nnx.Linear(width_in, width_out, param_dtype=jnp.result_type(float), rngs=rngs)
                for width_in, width_out in itertools.pairwise(widths)
            ]
        )

    def __call__(self, inputs: Array) -> Array:
        features: Array = self.layers[-1](self._values(inputs)[-1])
        return features

    def hidden_activations(self, inputs: Array) -> list[Array]:
        return self._values(inputs)[1:]

    def _values(self, inputs: Array) -> list[Array]:
        """What each layer is applied to, the read-out last."""
        values = [cosine_features(inputs, self.frequencies)]
        for layer in self.layers[:-1]:
            values.append(self.activation(layer(values[-1])))
        return values


def cosine_features(inputs: Array, frequencies: int) -> Array:
    """The inputs and cos(jπx) of each, j = 1 … frequencies.

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


def mlp(
    num_inputs: int,
    num_features: int,
    *,
    hidden: Sequence[int] = (512, 512),
    activation: Callable[[Array], Array] = nnx.relu,
) -> Encoder:
    """Multi-layer perceptron (2 x 512 ReLU in Le Lan et al. 2023): [b, num_inputs] → [b, d]."""
    return fourier_mlp(
        num_inputs, num_features, hidden=hidden, frequencies=0, activation=activation
    )


def fourier_mlp(
    num_inputs: int,
    num_features: int,
    *,
    hidden: Sequence[int] = (512, 512),
    frequencies: int = 8,
    activation: Callable[[Array], Array] = nnx.relu,
) -> Encoder:
    """An ``mlp`` on coordinates in [0, 1] and their cosines: [b, num_inputs] → [b, d].

    Args:
        num_inputs: Coordinates of a state.
        num_features: d.
        hidden: Widths of the hidden layers.
        frequencies: Cosines per coordinate (see ``cosine_features``).
        activation: Of the hidden layers; smooth ones can be differentiated twice.

    Returns:
        The encoder, with parameters of JAX's default floating type.

    Raises:
        InputError: If there is no input or feature, a layer is empty, or ``frequencies`` negative.
    """
    require(num_inputs >= 1, "num_inputs >= 1", num_inputs)
    require(num_features >= 1, "num_features >= 1", num_features)
    require(all(width >= 1 for width in hidden), "hidden layer widths >= 1", tuple(hidden))
    require(frequencies >= 0, "frequencies >= 0", frequencies)
    sizes = [num_inputs, *hidden, num_features]
    return from_nnx(lambda rngs: _MLP(sizes, frequencies, activation, rngs))


def separate_mlp(
    num_inputs: int,
    num_features: int,
    *,
    hidden: Sequence[int] = (64, 64),
    activation: Callable[[Array], Array] = jnp.tanh,
) -> Encoder:
    """A multi-layer perceptron for each feature: block-diagonal layers, [b, num_inputs] → [b, d].

    Features share no parameter, so ``spectral`` gets its Jacobian in d backward passes
    (``separate=True``). Smooth activations make it differentiable twice.

    Args:
        num_inputs: Coordinates of a state.
        num_features: d.
        hidden: Widths of each feature's hidden layers.
        activation: Applied to them entry by entry.

    Returns:
        The encoder; every leaf of its parameters is [d, ...], slice k for feature k.

    Raises:
        InputError: If there is no input or feature, or a layer is empty.
    """
    require(num_inputs >= 1, "num_inputs >= 1", num_inputs)
    require(num_features >= 1, "num_features >= 1", num_features)
    require(all(width >= 1 for width in hidden), "hidden layer widths >= 1", tuple(hidden))
    sizes = [num_inputs, *hidden, 1]
    scaled = jax.nn.initializers.lecun_normal(batch_axis=0)
    biases = jax.nn.initializers.normal(0.5)

    def init(key: Array) -> Params:
        layers = []
        for width_in, width_out in itertools.pairwise(sizes):
            key, kernel_key, bias_key = jax.random.split(key, 3)
            shape = (num_features, width_in, width_out)
            layers.append(
                {
                    "kernel": scaled(kernel_key, shape),
                    # Spread, so that units of few inputs bend at different places.
                    "bias": biases(bias_key, (num_features, 1, width_out)),
                }
            )
        return layers

    def apply(params: Params, inputs: Array) -> Array:
        values = jnp.broadcast_to(inputs[None], (num_features, *inputs.shape))
        for layer in params[:-1]:
            values = activation(jnp.matmul(values, layer["kernel"]) + layer["bias"])
        read_out = jnp.matmul(values, params[-1]["kernel"]) + params[-1]["bias"]
        features: Array = read_out[:, :, 0].T
        return features

    return Encoder(init, apply)
