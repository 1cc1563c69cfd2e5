"""Features in front of a network: tables of rows, and cosines of a position."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.encoders import Encoder, FunctionEncoder, Params, cosine_products

Places = Callable[[Array], tuple[Array, Array]]
"""Inputs [b, ...] → rows of a table [b, k] and their weights [b, k], which sum to 1."""


def cells_around(bins: int, positions: Array) -> tuple[Array, Array]:
    """Return the four cells around positions [b, 2] in bins x bins cells, and bilinear weights.

    Both are [b, 4].
    """
    places = jnp.clip(positions * bins - 0.5, 0.0, bins - 1.0)
    low = jnp.minimum(jnp.floor(places), bins - 2.0)
    right, up = (places - low).T
    column, row = low.astype(jnp.int32).T
    cell = row * bins + column
    cells = jnp.stack([cell, cell + 1, cell + bins, cell + bins + 1], axis=1)
    weights = [(1 - up) * (1 - right), (1 - up) * right, up * (1 - right), up * right]
    return cells, jnp.stack(weights, axis=1)


def table_features(
    torso: Encoder, places: Places, num_rows: int, width: int, *, frozen: bool = True
) -> Encoder:
    """Put a table in front of an encoder: [b, ...] → [b, d].

    Args:
        torso: Encodes weighted sums of the table's rows, [b, width].
        places: Finds the rows.
        num_rows: Number of rows of the table, standard normal at first.
        width: Width of a row.
        frozen: Whether the table stays fixed.
    """

    def init(key: Array) -> Params:
        table_key, torso_key = jax.random.split(key)
        table = jax.random.normal(table_key, (num_rows, width))
        return {"table": table, "torso": torso.init(torso_key)}

    def apply(params: Params, inputs: Array) -> Array:
        # Frozen: the features are fixed, and only the torso learns.
        table = jax.lax.stop_gradient(params["table"]) if frozen else params["table"]
        rows, weights = places(inputs)
        features = jnp.sum(table[rows] * weights[:, :, None], axis=1)
        return torso.apply(params["torso"], features)

    return FunctionEncoder(init, apply)


def lowest_frequencies(count: int) -> tuple[int, npt.NDArray[np.intp]]:
    """Find the products of cosines of x and y with the lowest frequencies, without the constant.

    Args:
        count: Number of products.

    Returns:
        The highest frequency that ``cosine_products`` needs, and the products' columns in its
        result, in order of k_x² + k_y², [count].
    """
    highest = next(k for k in itertools.count(1) if (1 + k) ** 2 > count)
    squares = np.sum(np.indices((1 + highest,) * 2).reshape(2, -1) ** 2, axis=0)
    return highest, np.argsort(squares, kind="stable")[1 : 1 + count]


def cosine_features(torso: Encoder, width: int) -> Encoder:
    """Put the ``width`` lowest-frequency cosines of a position in front of an encoder."""
    highest, chosen = lowest_frequencies(width)
    return FunctionEncoder(
        torso.init,
        lambda params, seen: torso.apply(params, cosine_products(seen, highest)[:, chosen]),
    )
