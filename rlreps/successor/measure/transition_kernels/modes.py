"""High powers of a transition matrix from its few slowest modes.

P^m = R H^m L + (the rest)^m, where L R = I and H = L P R. The columns of R span a right invariant
subspace; the rows of L span the left invariant subspace with the same eigenvalues. Moves spread an
agent out: most eigenvalues are small, and the rest vanishes after some tens of steps.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse

_FEWEST_MODES = 32
_MOST_MODES = 256
_CUTS = 8
"""Numbers of modes among which the widest gap is looked for."""


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


def slow_modes(chain: scipy.sparse.csr_array, largest_rest: float) -> SlowModes | None:
    """Compute the modes with eigenvalues of modulus above ``largest_rest``, and a few more.

    Args:
        chain: P, [n, n].
        largest_rest: Largest modulus of an eigenvalue that may be left out, in (0, 1).

    Returns:
        The modes; None if more than an eighth of all n modes or more than some hundreds would be
        needed, or if the left and right subspaces have different eigenvalues.
    """
    count = _FEWEST_MODES
    while count <= min(_MOST_MODES, chain.shape[0] // 8):
        values, rights = _leading(chain, count)
        allowed = (1 + np.flatnonzero(values[1:] <= largest_rest)).tolist()[:_CUTS]
        if allowed:
            # A wide gap does not separate conjugate or equal eigenvalues.
            cut = max(allowed, key=lambda k: values[k - 1] / max(values[k], 1e-12))
            threshold = np.sqrt(values[cut - 1] * values[cut])
            others, lefts = _leading(chain.T.tocsr(), count)
            if np.count_nonzero(others > threshold) == cut:
                return _paired(chain, _real_basis(rights[:, :cut]), _real_basis(lefts[:, :cut]).T)
        count *= 2
    return None


def _leading(matrix: scipy.sparse.csr_array, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest moduli of eigenvalues, falling, and their eigenvectors [n, count]."""
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    values, vectors = scipy.sparse.linalg.eigs(matrix, k=count, which="LM", v0=start)
    order = np.argsort(-np.abs(values))
    return np.abs(values)[order], vectors[:, order]


def _real_basis(vectors: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis [n, k] of the span of whole pairs of conjugate vectors [n, k]."""
    parts = np.concatenate([vectors.real, vectors.imag], axis=1)
    return np.linalg.svd(parts, full_matrices=False)[0][:, : vectors.shape[1]]


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
