"""What a family of cumulant functions is."""

from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array


class Cumulants(Protocol):
    """A family of random functions; hashable, as a compiled program is made for one."""

    def init(self, key: Array, num_tasks: int) -> Any:
        """Parameters of ``num_tasks`` functions drawn from the family."""
        ...

    def apply(self, params: Any, positions: Array) -> Array:
        """Values [..., t] (float32) of the functions at positions [..., c]."""
        ...


def cumulant_matrix(cumulants: Cumulants, key: Array, centres: np.ndarray, num_tasks: int) -> Array:
    """Functions of a family at the cells' centres, as columns: R, [n, num_tasks] (float32).

    For a successor measure over the cells, Ψ R holds ``num_tasks`` columns of the matrix that a
    live source draws from, r taken as constant over a cell: what an encoder that was trained live
    is measured against, with Ψ centred for the principal subspace of the centred matrix. Sampling
    tells its singular vectors from those of Ψ K Ψᵀ by a distance that falls as 1 / num_tasks.

    Args:
        cumulants: The family.
        key: Random key.
        centres: Positions of the cells' centres, [n, c].
        num_tasks: Functions to draw.

    Returns:
        R.
    """
    return cumulants.apply(cumulants.init(key, num_tasks), jnp.asarray(centres, jnp.float32))
