"""Small positive definite matrices inside a training step: systems, factors, inverses.

On a CPU, systems and Cholesky factors are computed by elimination within the compiled program,
which needs no pivoting for such matrices. LAPACK's triangular solve starts its own threads, which
compete with XLA's threads and made a training step two to three times slower. Other devices use
Cholesky factorisations. Newton-Schulz steps update a running inverse by matrix products alone.
"""

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import Array, lax

from rlreps.numerics import matmul, require_array


def solve_positive_definite(matrix: Array, right_hand_side: Array) -> Array:
    """Solve A X = B [d, t] for a symmetric positive definite A [d, d].

    X is not finite if A is not positive definite to rounding.
    """
    solution: Array = lax.platform_dependent(
        matrix, right_hand_side, cpu=_solve_by_gauss_jordan, default=_solve_by_cholesky
    )
    return solution


def inverse_cholesky_factor(matrix: Array) -> Array:
    """Compute the lower triangular L⁻¹ of a symmetric positive definite A = LLᵀ, both [d, d].

    L⁻¹ is not finite if A is not positive definite to rounding.
    """
    inverse: Array = lax.platform_dependent(
        matrix, cpu=_invert_factor_by_elimination, default=_invert_factor_by_cholesky
    )
    return inverse


def _solve_by_cholesky(matrix: Array, right_hand_side: Array) -> Array:
    return jsp.linalg.cho_solve((jnp.linalg.cholesky(matrix), True), right_hand_side)


def _solve_by_gauss_jordan(matrix: Array, right_hand_side: Array) -> Array:
    dimension = matrix.shape[0]
    augmented = jnp.concatenate([matrix, right_hand_side], axis=1)

    def eliminate(index: Array, rows: Array) -> Array:
        pivot_row = rows[index] / rows[index, index]
        others = rows - rows[:, index][:, None] * pivot_row[None, :]
        return others.at[index].set(pivot_row)

    eliminated: Array = lax.fori_loop(0, dimension, eliminate, augmented)
    return eliminated[:, dimension:]


def _invert_factor_by_cholesky(matrix: Array) -> Array:
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    return jsp.linalg.solve_triangular(jnp.linalg.cholesky(matrix), identity, lower=True)


def _invert_factor_by_elimination(matrix: Array) -> Array:
    dimension = matrix.shape[0]
    indices = jnp.arange(dimension)

    def eliminate_below(index: Array, rows: Array) -> Array:
        pivot_row = rows[index]
        factors = jnp.where(indices > index, rows[:, index] / pivot_row[index], 0.0)
        return rows - factors[:, None] * pivot_row[None, :]

    augmented = jnp.concatenate([matrix, jnp.eye(dimension, dtype=matrix.dtype)], axis=1)
    # [A, I] becomes [DLᵀ, L⁻¹] with a unit lower triangular L and a diagonal D.
    rows: Array = lax.fori_loop(0, dimension, eliminate_below, augmented)
    return rows[:, dimension:] / jnp.sqrt(jnp.diagonal(rows))[:, None]


def largest_eigenvalue_bound(matrix: jax.Array) -> jax.Array:
    """Compute tr(A^16)^(1/16), between 1 and d^(1/16) times the largest eigenvalue.

    A [d, d] has real eigenvalues, none negative: it is positive semi-definite, or the product of
    two such matrices.
    """
    require_array("a matrix as an array [d, d]", matrix)
    scale = jnp.sqrt(jnp.sum(jnp.square(matrix)))
    # Divide first: beyond 256, a 16th power leaves the range of float32.
    power = matrix / jnp.where(scale > 0.0, scale, 1.0)
    for _ in range(3):
        power = matmul(power, power)
    return scale * jnp.maximum(jnp.sum(power * power.T), 0.0) ** (1.0 / 16.0)


def newton_schulz_step(inverse: jax.Array, matrix: jax.Array) -> jax.Array:
    """Take a step P <- 2P - P A P towards the inverse of A, from any positive definite P.

    Schulz (1933). An eigenvalue x of PA becomes x (2 - x), so 1 - x is squared: from x in (0, 2)
    the iteration converges, and P stays positive definite. If A has grown so that some x may lie
    beyond 2, P is first divided by a bound on the largest x.

    Args:
        inverse: P, [d, d], symmetric positive definite; if its trace is not positive, the step
            starts from I / tr(A) instead.
        matrix: A, [d, d], symmetric positive definite.

    Returns:
        The next P, [d, d], symmetric.
    """
    for each in (inverse, matrix):
        require_array("matrices as arrays [d, d]", each)
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    start = jnp.where(jnp.trace(inverse) > 0.0, inverse, identity / jnp.trace(matrix))
    bound = largest_eigenvalue_bound(matmul(start, matrix))
    start = start / jnp.where(bound > 2.0, bound, 1.0)
    product = matmul(matrix, start)
    step = 2.0 * start - matmul(start, product)
    # Without this, rounding would make the two halves differ after thousands of steps.
    return 0.5 * (step + step.T)
