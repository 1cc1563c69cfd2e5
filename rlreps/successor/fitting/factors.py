"""The best factors of rank d of a solved successor measure."""

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from rlreps.numerics import interruptible, inverse_or_zero
from rlreps.successor.fitting.basis import UnitVectors
from rlreps.successor.fitting.least_squares import LeastSquares

_DENSE = 4_000
"""Largest number of unknowns of a sparse system whose measure is decomposed as a dense matrix."""


class Factors(NamedTuple):
    """F = √σ u and B = √σ v of rank d as linear maps of the features.

    Attributes:
        forward: F(s, a) = Σ b(a)_c φ(s)ᵀ forward[:, c], [p, m_b, d] in C order: in another order,
            every product would copy it.
        backward: B(s) = φ(s)ᵀ backward, [p, d].
        singular_values: σ, falling, [d].
    """

    forward: np.ndarray
    backward: np.ndarray
    singular_values: np.ndarray


def decompose(solution: LeastSquares, rank: int) -> Factors:
    """Decompose m into its leading singular functions in L2 of the data; zero beyond its rank.

    F and B come from the singular value decomposition of E[ψψᵀ]^{1/2} A⁻¹ C G^{-1/2}.
    """
    sparse = isinstance(solution.basis, UnitVectors)
    decomposed = _decompose_counted if sparse else _decompose_dense
    forward, backward, values = decomposed(solution, rank)
    found = (solution.arranged(forward), backward.astype(np.float32), values.astype(np.float32))
    missing = rank - len(values)
    if missing <= 0:
        return Factors(*found)
    return Factors(*(np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)]) for a in found))


def _decompose_dense(solution: LeastSquares, rank: int) -> tuple[np.ndarray, ...]:
    """Return F [q, d], B [p, d] and σ [d] for dense features."""
    # NumPy's functions, unlike SciPy's Cholesky and eigh, let other threads run.
    left = interruptible(np.linalg.cholesky, solution.gram, upper=True)
    right = interruptible(np.linalg.cholesky, solution.reached_moment, upper=True)
    middle: np.ndarray = left @ solution.solve(solution.crossed)
    middle = interruptible(np.linalg.solve, right.T, middle.T).T
    squares, v = interruptible(np.linalg.eigh, middle.T @ middle)
    squares, v = squares[-rank:], v[:, -rank:]
    # Roots of computed squares have half the digits: values below this threshold are rounding
    # noise.
    values, v = np.sqrt(np.maximum(squares[::-1], 0.0)), v[:, ::-1]
    values = np.where(values > 1e-6 * values[0], values, 0.0)
    root = np.sqrt(values)
    forward = scipy.linalg.solve_triangular(left, middle @ v * inverse_or_zero(root))
    return forward, scipy.linalg.solve_triangular(right, v * root), values


def _decompose_counted(solution: LeastSquares, rank: int) -> tuple[np.ndarray, ...]:
    """Return F [q, d], B [p, d] and σ [d] for unit vectors, d at most the rank of m."""
    tried = np.sqrt(solution.gram.diagonal() - solution.regularisation)
    arrivals = solution.crossed
    reached = np.asarray(arrivals.sum(axis=0)).ravel()
    scale = inverse_or_zero(np.sqrt(reached))
    sizes = len(tried), len(scale)
    if max(sizes) <= _DENSE:
        middle = tried[:, None] * solution.solve((arrivals * scale).toarray())
        try:
            u, values, vt = interruptible(np.linalg.svd, middle, full_matrices=False)
        except np.linalg.LinAlgError:  # Divide and conquer may fail; the next driver is slower.
            u, values, vt = scipy.linalg.svd(middle, full_matrices=False, lapack_driver="gesvd")
    else:
        operator = scipy.sparse.linalg.LinearOperator(
            sizes,
            matvec=lambda x: tried * solution.solve(arrivals @ (scale * x.ravel())),
            rmatvec=lambda y: (
                scale * (arrivals.T @ solution.solve(tried * y.ravel(), transposed=True))
            ),
            dtype=np.float64,
        )
        start = np.random.default_rng(0).normal(size=min(sizes))
        u, values, vt = scipy.sparse.linalg.svds(operator, k=min(rank, min(sizes) - 1), v0=start)
        u, values, vt = u[:, ::-1], values[::-1], vt[::-1]
    positive = values[:rank] > 1e-9 * values[0]
    u, vt = u[:, :rank] * positive, vt[:rank] * positive[:, None]
    values = values[:rank] * positive
    root = np.sqrt(values)
    return inverse_or_zero(tried)[:, None] * u * root, scale[:, None] * vt.T * root, values
