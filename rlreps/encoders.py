"""State encoders φ: S → R^d, as pairs of pure functions over plain parameter pytrees.

The library's own are written in Flax NNX; ``from_nnx`` and ``from_linen`` bring in a user's. The
rest of the library sees only (init, apply): ``vmap`` over seeds, ``scan`` and sharding just work.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
from flax import linen, nnx
from jax import Array, lax

from rlreps.configs import EncoderConfig
from rlreps.validation import require

Params: TypeAlias = Any


class Encoder(NamedTuple):
    """An encoder.

    Attributes:
        init: key → parameters.
        apply: (parameters, inputs [b, ...]) → features [b, d].
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]


def from_nnx(build: Callable[[nnx.Rngs], nnx.Module]) -> Encoder:
    """An encoder from a Flax NNX module's constructor.

    Args:
        build: ``rngs → module``; the module maps inputs [b, ...] to features [b, d] and keeps all
            its state in ``nnx.Param``.

    Returns:
        The encoder; its parameters are nested dictionaries of arrays.

    Raises:
        InputError: If the module keeps other state, such as batch statistics or random streams,
            which an optimizer would take for parameters.
    """
    module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    graph, _ = nnx.split(module)
    other_state = nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.Param)))
    others = sorted({type(variable).__name__ for _, variable in other_state})
    require(not others, "a module with all its state in nnx.Param", ", ".join(others))

    def init(key: Array) -> Params:
        _, state = nnx.split(build(nnx.Rngs(key)))
        return nnx.to_pure_dict(state)

    def apply(params: Params, inputs: Array) -> Array:
        features: Array = nnx.merge(graph, params)(inputs)
        return features

    return Encoder(init, apply)


def from_linen(module: linen.Module, example_inputs: Array) -> Encoder:
    """An encoder from a Flax Linen module without mutable collections.

    Args:
        module: Maps inputs [b, ...] to features [b, d].
        example_inputs: Inputs [b, ...] of the shape and dtype to come, for initialisation.

    Returns:
        The encoder; its parameters are the module's variables.

    Raises:
        InputError: If the module has other collections than ``params``, such as batch statistics,
            which an optimizer would take for parameters.
    """
    shapes = jax.eval_shape(module.init, jax.random.key(0), example_inputs)
    others = sorted(set(shapes) - {"params"})
    require(not others, "a module without mutable collections", ", ".join(others))

    def apply(params: Params, inputs: Array) -> Array:
        # Without mutable collections the features come alone.
        return cast(Array, module.apply(params, inputs))

    return Encoder(lambda key: module.init(key, example_inputs), apply)


class _MLP(nnx.Module):
    """ReLU layers and a linear read-out, behind fixed cosine features if any."""

    def __init__(self, sizes: Sequence[int], frequencies: int, rngs: nnx.Rngs) -> None:
        self.frequencies = frequencies
        first = sizes[0] * (1 + frequencies)
        widths = [first, *sizes[1:]]
        self.layers = nnx.List(
            [
                nnx.Linear(width_in, width_out, param_dtype=jnp.result_type(float), rngs=rngs)
                for width_in, width_out in itertools.pairwise(widths)
            ]
        )

    def __call__(self, inputs: Array) -> Array:
        hidden = cosine_features(inputs, self.frequencies)
        for layer in self.layers[:-1]:
            hidden = nnx.relu(layer(hidden))
        features: Array = self.layers[-1](hidden)
        return features


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


def mlp(num_inputs: int, num_features: int, *, hidden: Sequence[int] = (512, 512)) -> Encoder:
    """ReLU multi-layer perceptron (2 x 512 in Le Lan et al. 2023): [b, num_inputs] → [b, d]."""
    return fourier_mlp(num_inputs, num_features, hidden=hidden, frequencies=0)


def fourier_mlp(
    num_inputs: int,
    num_features: int,
    *,
    hidden: Sequence[int] = (512, 512),
    frequencies: int = 8,
) -> Encoder:
    """An ``mlp`` on coordinates in [0, 1] and their cosines: [b, num_inputs] → [b, d].

    Args:
        num_inputs: Coordinates of a state.
        num_features: d.
        hidden: Widths of the hidden layers.
        frequencies: Cosines per coordinate (see ``cosine_features``).

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
    return from_nnx(lambda rngs: _MLP(sizes, frequencies, rngs))


class _CosineProducts(nnx.Module):
    """A linear map of fixed products of cosines."""

    def __init__(
        self, num_inputs: int, num_features: int, frequencies: int, rngs: nnx.Rngs
    ) -> None:
        self.frequencies = frequencies
        self.read_out = nnx.Linear(
            (1 + frequencies) ** num_inputs,
            num_features,
            use_bias=False,
            param_dtype=jnp.result_type(float),
            rngs=rngs,
        )

    def __call__(self, inputs: Array) -> Array:
        features: Array = self.read_out(cosine_products(inputs, self.frequencies))
        return features


_KNEE = 3.0
"""Frequency at which ``cosine_products`` begin to be scaled down."""


def cosine_products(inputs: Array, frequencies: int) -> Array:
    """Products over coordinates of cos(jπx), j = 0 … frequencies: cosines of the unit cube.

    They are the Neumann eigenfunctions of the cube, orthonormal under a uniform state, times
    (1 + |j|²/9)^(-1/2) for the vector j of frequencies. The scale makes a map of small weights a
    smooth one and speeds up the slow, large directions of a successor measure; it changes no span.

    Args:
        inputs: Coordinates in [0, 1], [b, c].
        frequencies: Highest frequency per coordinate.

    Returns:
        [b, (1 + frequencies)^c].
    """
    multiples = jnp.arange(1 + frequencies, dtype=inputs.dtype)
    norms = jnp.where(multiples > 0, jnp.sqrt(jnp.asarray(2.0, inputs.dtype)), 1.0)
    cosines = jnp.cos(inputs[:, :, None] * (jnp.pi * multiples)[None, None, :])
    cosines = cosines * norms.astype(inputs.dtype)[None, None, :]
    products, squares = cosines[:, 0], jnp.square(multiples)
    for coordinate in range(1, inputs.shape[1]):
        factor = cosines[:, coordinate]
        products = (products[:, :, None] * factor[:, None, :]).reshape(inputs.shape[0], -1)
        squares = (squares[:, None] + jnp.square(multiples)[None, :]).reshape(-1)
    return products * lax.rsqrt(1.0 + squares / _KNEE**2)[None, :]


def cosine(num_inputs: int, num_features: int, *, frequencies: int = 23) -> Encoder:
    """A linear map of ``cosine_products`` of coordinates in [0, 1]: [b, num_inputs] → [b, d].

    Made for one to three coordinates: the number of products is exponential in them.

    Args:
        num_inputs: Coordinates of a state.
        num_features: d.
        frequencies: Highest frequency per coordinate.

    Returns:
        The encoder, with parameters of JAX's default floating type.

    Raises:
        InputError: If there is no input or feature, ``frequencies`` is negative, or there would be
            more than 100 000 products.
    """
    require(num_inputs >= 1, "num_inputs >= 1", num_inputs)
    require(num_features >= 1, "num_features >= 1", num_features)
    require(frequencies >= 0, "frequencies >= 0", frequencies)
    count = (1 + frequencies) ** num_inputs
    require(count <= 100_000, "at most 100000 products of cosines", count)
    return from_nnx(lambda rngs: _CosineProducts(num_inputs, num_features, frequencies, rngs))


def tabular(num_states: int, num_features: int) -> Encoder:
    """One free feature vector per state, standard normal at first: state indices [b] → [b, d]."""
    require(num_states >= 1, "num_states >= 1", num_states)
    require(num_features >= 1, "num_features >= 1", num_features)

    def apply(params: Params, inputs: Array) -> Array:
        features: Array = params[inputs]
        return features

    return Encoder(lambda key: jax.random.normal(key, (num_states, num_features)), apply)


ENCODERS: dict[str, Callable[[EncoderConfig, int, int, int], Encoder]] = {
    "cosine": lambda config, num_inputs, num_states, num_features: cosine(
        num_inputs, num_features, frequencies=config.frequencies
    ),
    "fourier_mlp": lambda config, num_inputs, num_states, num_features: fourier_mlp(
        num_inputs, num_features, hidden=config.hidden, frequencies=config.frequencies
    ),
    "mlp": lambda config, num_inputs, num_states, num_features: mlp(
        num_inputs, num_features, hidden=config.hidden
    ),
    "tabular": lambda config, num_inputs, num_states, num_features: tabular(
        num_states, num_features
    ),
}
"""Encoder name → encoder for (configuration, input coordinates, states, features)."""


def make_encoder(
    config: EncoderConfig, *, num_inputs: int, num_states: int, num_features: int
) -> Encoder:
    """The encoder that a configuration names.

    Args:
        config: Its name and options.
        num_inputs: Coordinates of a state.
        num_states: n, for a tabular encoder.
        num_features: d.

    Returns:
        The encoder. A ``tabular`` one takes state indices [b], the others coordinates
        [b, num_inputs].

    Raises:
        InputError: For sizes below 1.
    """
    return ENCODERS[config.name](config, num_inputs, num_states, num_features)
