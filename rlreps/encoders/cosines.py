"""Linear maps of products of cosines."""

import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from rlreps.encoders.base import Encoder, from_nnx
from rlreps.errors import require


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
