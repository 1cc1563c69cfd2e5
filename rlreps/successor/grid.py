"""A uniform grid of cells over the unit square: the states and the tasks of a successor measure."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.errors import require_positive


@dataclasses.dataclass(frozen=True)
class Grid:
    """bins x bins square cells over [0, 1]²; cell index = row · bins + column, row from y.

    Attributes:
        bins: Cells along each axis.

    Raises:
        InputError: If there are none.
    """

    bins: int

    def __post_init__(self) -> None:
        require_positive("bins", self.bins)

    @property
    def num_cells(self) -> int:
        """Number of cells, bins²."""
        return self.bins**2

    def cell(self, position: Array) -> Array:
        """The cell [] (int32) that holds a position [2]; the far edges belong to the last cells."""
        column_row = jnp.clip((position * self.bins).astype(jnp.int32), 0, self.bins - 1)
        return column_row[1] * self.bins + column_row[0]

    def sample(self, key: Array, cell: Array) -> Array:
        """A position [2] drawn uniformly inside a cell."""
        corner = jnp.stack([cell % self.bins, cell // self.bins]).astype(jnp.float32)
        # Four float32 roundings lie between here and `cell`: without this margin, 2.4e-5 of a
        # cell's width for 100 bins, some positions would come out in the neighbouring cell.
        margin = self.bins * 2.0**-22
        offset = jax.random.uniform(key, (2,), jnp.float32, margin, 1.0 - margin)
        return (corner + offset) / self.bins

    def centres(self) -> np.ndarray:
        """Positions [bins², 2] (float32) of the cells' centres, in the order of their indices."""
        axis = (np.arange(self.bins, dtype=np.float32) + 0.5) / np.float32(self.bins)
        return np.stack([np.tile(axis, self.bins), np.repeat(axis, self.bins)], axis=1)
