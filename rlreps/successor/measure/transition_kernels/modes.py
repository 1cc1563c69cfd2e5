"""High powers of a transition matrix from its few slowest modes.

P^m = R H^m L + (the rest)^m, where L R = I and H = L P R. The columns of R span a right invariant
subspace; the rows of L span the left invariant subspace with the same eigenvalues. Moves spread an
agent out: most eigenvalues are small, and the rest vanishes after some tens of steps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

from rlreps.subspace.products import orthonormalise
from rlreps.successor.measure.transition_kernels.solver import BandedSolver

_FIRST_PANEL = 64
_LARGEST_PANEL = 512
_ITERATIONS = 10
_POLISHES = 2


class SlowModes(NamedTuple):
    """The modes of P with the largest eigenvalues, all in float64.

    Attributes:
        right: R, [n, k].
        step: H, [k, k].
        left: L, [k, n].
        residual: The largest row sum of |P R - R H| |L| and of |R| |L P - H L|: the largest error
            that a step adds to a distribution, in total variation.
    """

    right: np.ndarray
    step: np.ndarray
    left: np.ndarray
    residual: float


def slow_modes(
    chain: scipy.sparse.csr_array, solver: BandedSolver, largest_rest: float
) -> SlowModes | None:
    """Compute the modes with eigenvalues of modulus above ``largest_rest``, and a few more.

    Iterate on a panel of vectors with (I - γP)⁻¹, which has the same invariant subspaces as P. Then
    iterate with P, which damps what is left of the fast modes. Last, take the Schur form of P
    projected onto the panel.

    Args:
        chain: P, [n, n].
        solver: Factors of I - γP.
        largest_rest: Largest modulus of an eigenvalue that may be left out, in (0, 1).

    Returns:
        The modes; None if more than a quarter of all n modes or more than some hundreds would be
        needed, or if the left and right subspaces have different eigenvalues.
    """
    transposed = chain.T.tocsr()
    panel = _FIRST_PANEL
    while panel <= min(_LARGEST_PANEL, chain.shape[0] // 4):
        rights = _panel(chain, solver.columns, panel)
        eigenvalues = np.sort(np.abs(np.linalg.eigvals(rights.T @ (chain @ rights))))[::-1]
        count = _cut(eigenvalues, largest_rest)
        if count is not None:
            lefts = _panel(transposed, lambda x: solver.rows(x.T).T, panel)
            threshold = float(np.sqrt(eigenvalues[count - 1] * max(eigenvalues[count], 1e-12)))
            right = _invariant(chain, rights, threshold)
            left = _invariant(transposed, lefts, threshold).T
            if right.shape[1] == left.shape[0] == count:
                return _paired(chain, right, left)
        panel *= 2
    return None


def _panel(
    matrix: scipy.sparse.csr_array, solve: Callable[[np.ndarray], np.ndarray], size: int
) -> np.ndarray:
    """Compute an orthonormal basis [n, size] (float64) that nearly contains the slowest modes."""
    panel = np.random.default_rng(0).standard_normal((matrix.shape[0], size))
    for _ in range(_ITERATIONS):
        panel = orthonormalise(solve(panel).astype(np.float64))
    for _ in range(_POLISHES):
        panel = orthonormalise(matrix @ panel)
    return panel


def _cut(eigenvalues: np.ndarray, largest_rest: float) -> int | None:
    """Return how many modes to keep: up to the widest admissible gap in the first half.

    Only the first half of a panel has converged. A wide gap does not separate conjugate or equal
    eigenvalues, and it separates the modes that are kept from the others.
    """
    half = len(eigenvalues) // 2
    allowed = [k for k in range(1, half) if eigenvalues[k] <= largest_rest]
    if not allowed:
        return None
    near = allowed[:8]
    return max(near, key=lambda k: eigenvalues[k - 1] / max(eigenvalues[k], 1e-12))


def _invariant(matrix: scipy.sparse.csr_array, panel: np.ndarray, threshold: float) -> np.ndarray:
    """Return an orthonormal basis [n, k] of the modes above the threshold within a panel."""
    _, vectors, count = scipy.linalg.schur(
        panel.T @ (matrix @ panel),
        output="real",
        sort=lambda real, imaginary: np.hypot(real, imaginary) > threshold,
    )
    return np.asarray(panel @ vectors[:, :count])


def _paired(chain: scipy.sparse.csr_array, right: np.ndarray, left: np.ndarray) -> SlowModes:
    left = np.linalg.solve(left @ right, left)
    image, preimage = chain @ right, (chain.T @ left.T).T
    step = left @ image
    # |A B| <= |A| |B|, by row sums: no [n, n] product is formed.
    residual = max(
        float(np.max(np.abs(image - right @ step) @ np.abs(left).sum(axis=1))),
        float(np.max(np.abs(right) @ np.abs(preimage - step @ left).sum(axis=1))),
    )
    return SlowModes(right, step, left, residual)
