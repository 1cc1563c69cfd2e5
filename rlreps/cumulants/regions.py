"""Indicators of regions: the cells of a grid, and random discs."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, interval, positive, size
from rlreps.cumulants.base import along_tasks
from rlreps.errors import require


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """Indicators of all cells of a uniform grid over [0, 1]^c; nothing is random.

    Cell index = Σ_i (index along axis i) · bins^i, so that the first axis runs fastest; in two
    dimensions that is row · bins + column with the row from y, as in ``successor.grids.Grid``. A
    position outside the box belongs to the nearest cell.

    Attributes:
        bins: Cells along each axis.
        num_inputs: c, coordinates of a position.
    """

    bins: int = positive(10)
    num_inputs: int = size(2)

    @property
    def num_cells(self) -> int:
        """Number of cells, bins^c."""
        return int(self.bins**self.num_inputs)

    def init(self, key: Array, num_tasks: int) -> tuple[()]:
        """Return no parameters; raise an ``InputError`` unless there is one task per cell."""
        require(num_tasks == self.num_cells, f"{self.num_cells} tasks, one per cell", num_tasks)
        return ()

    def apply(self, params: tuple[()], positions: Array) -> Array:
        """Return 1 for the cell of a position and 0 for the others, [..., t] at [..., c]."""
        # Clip before the conversion, which is undefined beyond the integers' range.
        along = jnp.clip(positions * self.bins, 0, self.bins - 1).astype(jnp.int32)
        index = sum(along[..., axis] * self.bins**axis for axis in range(self.num_inputs))
        indicators: Array = jax.nn.one_hot(index, self.num_cells, dtype=jnp.float32)
        return indicators


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

    A disc may extend beyond the square.

    Attributes:
        smallest: Smallest radius, in sides of the square.
        largest: Largest radius.
    """

    smallest: float = interval("(0, inf)", 0.05)
    largest: float = interval("(0, inf)", 0.2)

    def __post_init__(self) -> None:
        radii = (self.smallest, self.largest)
        require(self.smallest <= self.largest, "smallest <= largest", radii)

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
        # Axis by axis, so that no [..., t, 2] array is made.
        squared_distances = sum(
            jnp.square(positions[..., axis, None] - along_tasks(params.centres[:, axis], positions))
            for axis in range(2)
        )
        inside: Array = squared_distances <= along_tasks(jnp.square(params.radii), positions)
        return inside.astype(jnp.float32)
