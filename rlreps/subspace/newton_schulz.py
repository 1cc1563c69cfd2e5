"""Inverses followed over time by matrix products alone: no factorisation, no solve."""

import jax
import jax.numpy as jnp

_HIGHEST = jax.lax.Precision.HIGHEST


def largest_eigenvalue_bound(matrix: jax.Array) -> jax.Array:
    """tr(A^16)^(1/16): between the largest eigenvalue and d^(1/16) times it.

    Args:
        matrix: A, [d, d], with real eigenvalues, none negative: positive semi-definite, or the
            product of two such matrices.

    Returns:
        The bound, [], at least 0.
    """
    scale = jnp.sqrt(jnp.sum(jnp.square(matrix)))
    # Divided first: a 16th power leaves the range of float32 beyond 256.
    power = matrix / jnp.where(scale > 0.0, scale, 1.0)
    for _ in range(3):
        power = jnp.matmul(power, power, precision=_HIGHEST)
    return scale * jnp.maximum(jnp.sum(power * power.T), 0.0) ** (1.0 / 16.0)


def newton_schulz_step(inverse: jax.Array, matrix: jax.Array) -> jax.Array:
    """One step P <- 2P - P A P towards the inverse of A, from any positive definite P.

    Schulz (1933). An eigenvalue x of PA becomes x (2 - x), so 1 - x is squared: from x in (0, 2)
    the iteration converges, and P stays positive definite. Where A has outgrown P, so that some x
    may lie beyond 2, P is first divided by a bound on the largest.

    Args:
        inverse: P, [d, d], symmetric positive definite; where its trace is not positive, the step
            starts from I / tr(A) instead.
        matrix: A, [d, d], symmetric positive definite.

    Returns:
        The next P, [d, d], symmetric.
    """
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    start = jnp.where(jnp.trace(inverse) > 0.0, inverse, identity / jnp.trace(matrix))
    bound = largest_eigenvalue_bound(jnp.matmul(start, matrix, precision=_HIGHEST))
    start = start / jnp.where(bound > 2.0, bound, 1.0)
    product = jnp.matmul(matrix, start, precision=_HIGHEST)
    step = 2.0 * start - jnp.matmul(start, product, precision=_HIGHEST)
    # Rounding would let the two halves drift apart over thousands of steps.
    return 0.5 * (step + step.T)
