"""Indicators of the cells of a grid: the tasks of a successor measure."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, size
from rlreps.errors import require, require_positive


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """Indicators of the cells of a uniform grid over [0, 1]^c: all of them, nothing is random.

    Cell index = Σ_i (index along axis i) · bins^i, so that the first axis runs fastest; in two
    dimensions that is row · bins + column with the row from y, as in ``successor.grids.Grid``. A
    position outside the box belongs to the nearest cell.

    Attributes:
        bins: Cells along each axis.
        num_inputs: c, coordinates of a position.

    Raises:
        InputError: If one of them is not positive.
    """

    bins: int = 10
    num_inputs: int = size(2)

    def __post_init__(self) -> None:
        require_positive("bins", self.bins)
        require_positive("num_inputs", self.num_inputs)

    @property
    def num_cells(self) -> int:
        """Number of cells, bins^c."""
        return int(self.bins**self.num_inputs)

    def init(self, key: Array, num_tasks: int) -> tuple[()]:
        """Return no parameters: there is one task for each cell.

        Raises:
            InputError: For another number of tasks.
        """
        del key  # Nothing here is random.
        require(num_tasks == self.num_cells, f"{self.num_cells} tasks, one a cell", num_tasks)
        return ()

    def apply(self, params: tuple[()], positions: Array) -> Array:
        """Return 1 for the cell of a position and 0 for the others, [..., t] at [..., c]."""
        del params
        # Before the conversion, which is undefined beyond the integers' range.
        along = jnp.clip(positions * self.bins, 0, self.bins - 1).astype(jnp.int32)
        index = sum(along[..., axis] * self.bins**axis for axis in range(self.num_inputs))
        indicators: Array = jax.nn.one_hot(index, self.num_cells, dtype=jnp.float32)
        return indicators
