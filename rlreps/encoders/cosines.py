"""Linear maps of products of cosines."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.config import configurable, interval, size
from rlreps.encoders.base import Encoder, Params
from rlreps.encoders.networks import init_layers, require_coordinates
from rlreps.errors import require, require_positive
from rlreps.typing import DoubleArray

_KNEE = 3.0
"""Frequency above which ``cosine_products`` are scaled down."""


def cosine_products(inputs: Array, frequencies: int) -> Array:
    """Compute products over coordinates of cos(jπx), j = 0 … frequencies.

    The products are the Neumann eigenfunctions of the unit cube, normalised to be orthonormal under
    a uniform state. Each is multiplied by (1 + |j|²/9)^(-1/2), where j is now the vector of its
    frequencies, one per coordinate. The scaling keeps the span, makes maps with small weights
    smooth and speeds up learning of the slow, large directions of a successor measure.

    Args:
        inputs: Coordinates in [0, 1], [b, c].
        frequencies: Highest frequency per coordinate.

    Returns:
        [b, (1 + frequencies)^c].
    """
    require_positive("frequencies", frequencies, least=0)
    factors = _factors(inputs, frequencies)
    products = factors[:, 0]
    for coordinate in range(1, inputs.shape[1]):
        factor = factors[:, coordinate]
        products = (products[:, :, None] * factor[:, None, :]).reshape(inputs.shape[0], -1)
    return products * jnp.asarray(_scales(inputs.shape[1], frequencies), inputs.dtype)[None, :]


def _factors(inputs: Array, frequencies: int) -> Array:
    """Compute √2 cos(jπx), 1 for j = 0, of each coordinate: [b, c] → [b, c, 1 + frequencies]."""
    multiples = np.arange(1 + frequencies)
    norms = np.where(multiples > 0, np.sqrt(2.0), 1.0)
    angles = inputs[:, :, None] * jnp.asarray(np.pi * multiples, inputs.dtype)[None, None, :]
    return jnp.cos(angles) * jnp.asarray(norms, inputs.dtype)[None, None, :]


def _scales(coordinates: int, frequencies: int) -> DoubleArray:
    """Compute (1 + |j|²/9)^(-1/2) for all vectors j of frequencies, [(1 + frequencies)^c]."""
    squares = sum(np.square(np.indices((1 + frequencies,) * coordinates)))
    scales: DoubleArray = (1.0 + np.ravel(squares) / _KNEE**2) ** -0.5
    return scales


@configurable
@dataclasses.dataclass(frozen=True)
class Cosine(Encoder):
    """A linear map of ``cosine_products`` of coordinates in [0, 1]: [b, num_inputs] → [b, d].

    Intended for one to three coordinates: the number of products is exponential in the number of
    coordinates. The parameters are the map [products, d], of JAX's default floating type.

    Attributes:
        num_features: d.
        num_inputs: Coordinates of a state.
        frequencies: Highest frequency per coordinate.

    Raises:
        InputError: If there is no input or feature, ``frequencies`` is negative, or there would be
            more than 100 000 products.
    """

    num_features: int = size(10)
    _: dataclasses.KW_ONLY
    num_inputs: int = size(2)
    frequencies: int = interval("[0, 2**31)", 23)

    def __post_init__(self) -> None:
        require(self._products <= 100_000, "at most 100000 products of cosines", self._products)

    @property
    def _products(self) -> int:
        return int((1 + self.frequencies) ** self.num_inputs)

    def init(self, key: Array) -> Params:
        return init_layers(key, [(self._products, self.num_features)])[0]["kernel"]

    def apply(self, params: Params, inputs: Array) -> Array:
        require_coordinates(inputs, self.num_inputs)
        if self.num_features > 2 * (1 + self.frequencies):
            return jnp.asarray(cosine_products(inputs, self.frequencies) @ params)
        # Sum over the frequencies of one coordinate after the other. This is up to seven times as
        # fast as forming the products. With many features, as above, the partial sums would be
        # larger than the products.
        scales = jnp.asarray(_scales(self.num_inputs, self.frequencies), params.dtype)
        factors = lax.optimization_barrier(_factors(inputs, self.frequencies))
        sums: Array = factors[:, 0] @ (params * scales[:, None]).reshape(1 + self.frequencies, -1)
        for coordinate in range(1, self.num_inputs):
            sums = sums.reshape(inputs.shape[0], 1 + self.frequencies, -1)
            sums = jnp.sum(sums * factors[:, coordinate, :, None], axis=1)
        return sums
