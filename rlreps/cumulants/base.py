"""The contract of a family of cumulant functions, and products at positions."""

from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.errors import require_positive
from rlreps.numerics import matmul


class Cumulants(Protocol):
    """A family of random functions; hashable, since programs are compiled for one family."""

    def init(self, key: Array, num_tasks: int) -> Any:
        """Draw the parameters of ``num_tasks`` functions of the family."""
        ...

    def apply(self, params: Any, positions: Array) -> Array:
        """Evaluate the functions at positions [..., c], giving [..., t] (float32)."""
        ...


def cumulant_matrix(cumulants: Cumulants, key: Array, centres: np.ndarray, num_tasks: int) -> Array:
    """Evaluate functions of a family at the centres of cells, as columns of R [n, num_tasks].

    For a successor measure over the cells, Ψ R holds ``num_tasks`` columns of the matrix that a
    live source samples, with r constant over each cell. Use Ψ R as the ground truth of an encoder
    that was trained live; centre Ψ for the principal subspace of the centred matrix. The distance
    between the subspaces of Ψ R and of Ψ K Ψᵀ falls as 1 / num_tasks.

    Args:
        cumulants: The family.
        key: Random key.
        centres: Positions of the cells' centres, [n, c].
        num_tasks: Number of functions to draw.

    Returns:
        R (float32).
    """
    require_positive("num_tasks", num_tasks)
    return cumulants.apply(cumulants.init(key, num_tasks), jnp.asarray(centres, jnp.float32))


def affine(inputs: Array, weights: Array, biases: Array) -> Array:
    """Compute inputs [..., c] times weights [c, t] plus biases [t] at full precision.

    At an accelerator's default precision, an angle of many turns would have a relative error of a
    thousandth. Leading axes are joined for the product: with several of them, mapped over agents
    inside a scan, XLA's products take more than twice the time on a CPU.
    """
    rows = inputs.reshape(-1, inputs.shape[-1])
    found = matmul(rows, weights) + biases[None]
    return found.reshape(*inputs.shape[:-1], weights.shape[-1])


def along_tasks(numbers: Array, positions: Array) -> Array:
    """Reshape numbers [t] to [1, ..., 1, t], with as many axes as positions [..., c]."""
    return jnp.expand_dims(numbers, tuple(range(positions.ndim - 1)))
