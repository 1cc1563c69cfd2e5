"""Solve sparse systems of equations, by factors or iteratively."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse.linalg
from scipy.sparse.csgraph import reverse_cuthill_mckee

from rlreps.errors import InputError, usable_memory
from rlreps.numerics import interruptible

Solver: TypeAlias = Callable[..., np.ndarray]
"""Map of right-hand sides [q, k] to solutions; sparse systems take ``transposed`` too."""

_MOST_FILL = 10**9
"""Estimated bytes of sparse factors beyond which systems are solved iteratively."""

_RESIDUAL = 1e-8
"""Relative residual of iterative solutions."""


def solve_sparse(system: Any, discount: float) -> Solver:
    """Solve a sparse system I − γP by its factors, or iteratively if they could need much memory.

    The estimate is the memory of factors within the bandwidth of the reordered system. Rows of P
    sum to at most 1: in practice, GMRES (Saad & Schultz 1986) reduces residuals like γᵏ or faster.
    """
    size = system.shape[0]
    system = system.tocsc()
    place = np.argsort(reverse_cuthill_mckee(system))
    rows, columns = system.nonzero()
    width = int(np.abs(place[rows] - place[columns]).max())
    # An entry has eight bytes and an index of four; pivots double the bandwidth of the upper half.
    fill = 12 * size * min(size, 3 * width + 1)
    if fill <= min(_MOST_FILL, usable_memory() or fill):
        # SciPy frees the factors in the thread that made them, so no other thread makes them.
        factors: Any = scipy.sparse.linalg.splu(system)
        return lambda right, transposed=False: np.asarray(
            interruptible(factors.solve, right, "T" if transposed else "N")
        )
    restart = 50
    cycles = 10 + math.ceil(math.log(_RESIDUAL) / math.log(discount) / restart)

    def solve(right: np.ndarray, transposed: bool = False) -> np.ndarray:
        matrix = system.T if transposed else system
        found = np.empty((size, math.prod(right.shape[1:])))
        for index, column in enumerate(right.reshape(size, -1).T):
            found[:, index], failed = scipy.sparse.linalg.gmres(
                matrix, column, rtol=_RESIDUAL, restart=restart, maxiter=cycles
            )
            if failed:
                raise InputError(
                    f"expected {size:,} states whose equations GMRES solves, got none after "
                    f"{cycles * restart:,} steps; try a smaller discount"
                )
        return found.reshape(right.shape)

    return solve
