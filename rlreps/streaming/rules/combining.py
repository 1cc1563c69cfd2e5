"""Combine several models that started from a common one into one model."""

import jax.numpy as jnp
from jax import Array, lax

from rlreps.numerics import matmul


def shares(weights: Array) -> Array:
    """Divide weights [workers] by their sum."""
    normalized: Array = weights / jnp.sum(weights)
    return normalized


def online_em_average(rows: Array, weights: Array) -> Array:
    """Compute the weighted mean of factors, Σ_m w_m C_m with Σ_m w_m = 1.

    Amid & Warmuth 2020, Eq. 18: it minimises the weighted sum of the relative entropies between the
    probabilistic models x = Cy + noise with y ~ N(0, I) (Eq. 14). Each relative entropy equals ‖C_m
    − C‖² / 2σ². A rotation of y changes no model, but it changes the mean of factors, so workers
    must start from a common C.

    Args:
        rows: C_mᵀ, [workers, k, features].
        weights: [workers], of positive sum.
    """
    mean: Array = jnp.einsum("m,mkf->kf", shares(weights), rows, precision=lax.Precision.HIGHEST)
    return mean


def projection_average(rows: Array, weights: Array) -> Array:
    """Compute an orthonormal basis of the k-dimensional subspace nearest to several subspaces.

    The result is the span of the top k eigenvectors of Σ_m w_m V_m V_mᵀ, whose projector is nearest
    to the workers' projectors in squared Frobenius norm. This combination is an extension: for
    orthonormal matrices, Amid & Warmuth 2020 take the mean followed by QR (``mean_then_qr``).
    Eigenvectors come from the inner products of all workers' vectors, [workers · k, workers · k].
    The function returns the basis of the subspace that is nearest to the workers' mean basis.
    Components then keep their places, and models that agree do not change.

    Args:
        rows: V_mᵀ with orthonormal rows, [workers, k, features].
        weights: [workers], none negative, of positive sum.

    Returns:
        Vᵀ with orthonormal rows, [k, features].
    """
    workers, k, width = rows.shape
    scaled = (jnp.sqrt(shares(weights))[:, None, None] * rows).reshape(workers * k, width)
    values, vectors = jnp.linalg.eigh(matmul(scaled, scaled.T))
    leading = vectors[:, -k:] / jnp.sqrt(values[-k:])[None, :]
    return nearest_basis(matmul(leading.T, scaled), online_em_average(rows, weights))


def nearest_basis(basis: Array, target: Array) -> Array:
    """Rotate a basis within its span to be nearest to given vectors (orthogonal Procrustes).

    Args:
        basis: Orthonormal rows, [k, features].
        target: Vectors to approach, [k, features].

    Returns:
        R · basis for the rotation R that minimises ‖R · basis − target‖_F, [k, features].
    """
    left, _, right = jnp.linalg.svd(matmul(target, basis.T), full_matrices=False)
    return matmul(matmul(left, right), basis)
