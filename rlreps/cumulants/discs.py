"""Indicators of random discs."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.errors import require


class DiscParams(NamedTuple):
    """Discs.

    Attributes:
        centres: [t, 2].
        radii: [t].
    """

    centres: Array
    radii: Array


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Discs:
    """Indicators of discs: centres uniform over the unit square, radii uniform over a range.

    A disc may reach out of the square.

    Attributes:
        smallest: Least radius, in sides of the square.
        largest: Greatest radius.

    Raises:
        InputError: Unless 0 < smallest <= largest < infinity.
    """

    smallest: float = 0.05
    largest: float = 0.2

    def __post_init__(self) -> None:
        radii = (self.smallest, self.largest)
        require(
            0.0 < self.smallest <= self.largest < math.inf,
            "radii 0 < smallest <= largest < infinity",
            radii,
        )

    def init(self, key: Array, num_tasks: int) -> DiscParams:
        """Draw discs."""
        centre_key, radius_key = jax.random.split(key)
        centres = jax.random.uniform(centre_key, (num_tasks, 2), jnp.float32)
        radii = jax.random.uniform(
            radius_key, (num_tasks,), jnp.float32, self.smallest, self.largest
        )
        return DiscParams(centres, radii)

    def apply(self, params: DiscParams, positions: Array) -> Array:
        """Return 1 inside a disc or on its edge and 0 outside, [..., t] at positions [..., 2]."""
        leading = tuple(range(positions.ndim - 1))
        # Axis by axis, so that no [..., t, 2] array is made.
        squared_distances = sum(
            jnp.square(
                positions[..., axis, None] - jnp.expand_dims(params.centres[:, axis], leading)
            )
            for axis in range(2)
        )
        inside: Array = squared_distances <= jnp.expand_dims(jnp.square(params.radii), leading)
        return inside.astype(jnp.float32)
