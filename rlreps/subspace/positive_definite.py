"""Small positive definite matrices inside a training step: systems and Cholesky factors.

On a CPU both work by elimination within the compiled program, which needs no pivoting for such
matrices: LAPACK's triangular solve brings its own threads, which fight with XLA's and made a
training step two to three times slower. Elsewhere both go by Cholesky.
"""

import jax.numpy as jnp
import jax.scipy as jsp
from jax import Array, lax


def solve_positive_definite(matrix: Array, right_hand_side: Array) -> Array:
    """Solves A X = B for a symmetric positive definite A.

    Args:
        matrix: A, [d, d].
        right_hand_side: B, [d, t].

    Returns:
        X, [d, t]; non-finite if A is not positive definite to rounding.
    """
    solution: Array = lax.platform_dependent(
        matrix, right_hand_side, cpu=_solve_by_gauss_jordan, default=_solve_by_cholesky
    )
    return solution


def inverse_cholesky_factor(matrix: Array) -> Array:
    """L⁻¹ for the Cholesky factor of a symmetric positive definite A = LLᵀ.

    Args:
        matrix: A, [d, d].

    Returns:
        L⁻¹, [d, d], lower triangular; non-finite if A is not positive definite to rounding.
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
