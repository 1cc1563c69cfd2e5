"""The same atom by finite differences on a grid: what one would do without a network."""

from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import eigsh

from rlreps.experiments.pfau_2019.hydrogen.config import NUM_FEATURES


class GridSolution(NamedTuple):
    """The lowest eigenpairs of a discretised Hamiltonian.

    Attributes:
        energies: Rising, [9].
        functions: Orthonormal as vectors, [points², 9]; index row · points + column.
        positions: Of the grid points, [points², 2]; row from y, column from x, both upwards.
    """

    energies: np.ndarray
    functions: np.ndarray
    positions: np.ndarray


def solve_on_grid(points: int, half_width: float) -> GridSolution:
    """Lowest eigenpairs of −∇² − 1/r in [−D, D]² with zero boundary, five-point differences.

    Args:
        points: Interior points a side, even: the singularity lies between four of them.
        half_width: D.

    Returns:
        The eigenpairs.
    """
    spacing = 2.0 * half_width / (points + 1)
    axis = -half_width + spacing * np.arange(1, points + 1)
    rows, columns = np.meshgrid(axis, axis, indexing="ij")
    positions = np.stack([columns.ravel(), rows.ravel()], axis=1)
    beside = scipy.sparse.eye_array(points, k=1) + scipy.sparse.eye_array(points, k=-1)
    second = beside - 2.0 * scipy.sparse.eye_array(points)
    identity = scipy.sparse.eye_array(points)
    laplacian = scipy.sparse.kron(second, identity) + scipy.sparse.kron(identity, second)
    potential = scipy.sparse.diags_array(-1.0 / np.hypot(positions[:, 0], positions[:, 1]))
    hamiltonian = scipy.sparse.csc_array(potential - laplacian / spacing**2)
    start = np.random.default_rng(0).standard_normal(points**2)
    # Below the lowest energy the shifted matrix is positive definite.
    values, vectors = eigsh(hamiltonian, k=NUM_FEATURES, sigma=-1.5, v0=start)
    order = np.argsort(values)
    return GridSolution(values[order], vectors[:, order], positions)
