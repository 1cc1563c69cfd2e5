"""Small positive definite systems inside a training step."""

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import Array, lax


def solve_positive_definite(matrix: Array, right_hand_side: Array) -> Array:
    """Solves A X = B for a symmetric positive definite A.

    On a CPU by Gauss-Jordan elimination within the compiled program, which needs no pivoting for
    such an A: LAPACK's triangular solve brings its own threads, which fight with XLA's and made a
    training step three times slower. Elsewhere by Cholesky.

    Args:
        matrix: A, [d, d].
        right_hand_side: B, [d, t].

    Returns:
        X, [d, t]; non-finite if A is not positive definite to rounding.
    """
    solution: Array = lax.platform_dependent(
        matrix, right_hand_side, cpu=_gauss_jordan, default=_cholesky
    )
    return solution


def _cholesky(matrix: Array, right_hand_side: Array) -> Array:
    return jsp.linalg.cho_solve((jnp.linalg.cholesky(matrix), True), right_hand_side)


def _gauss_jordan(matrix: Array, right_hand_side: Array) -> Array:
    dimension = matrix.shape[0]
    augmented = jnp.concatenate([matrix, right_hand_side], axis=1)

    def eliminate(index: Array, rows: Array) -> Array:
        pivot_row = rows[index] / rows[index, index]
        others = rows - rows[:, index][:, None] * pivot_row[None, :]
        return others.at[index].set(pivot_row)

    eliminated: Array = jax.lax.fori_loop(0, dimension, eliminate, augmented)
    return eliminated[:, dimension:]
