"""Ordered eigenfunctions from two small matrices: Σ = E[u uᵀ] and Π = E[u (Ku)ᵀ].

With Σ = LLᵀ the functions v = L⁻¹u are orthonormal, and Λ = L⁻¹ΠL⁻ᵀ is the operator in them (Pfau
et al. 2019, Section 4). L is triangular, so v_k mixes u_1 … u_k only and the k-th eigenvalue Λ_kk
does not depend on the functions after the k-th.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.numerics import matmul
from rlreps.subspace.linalg import inverse_cholesky_factor


class Spectrum(NamedTuple):
    """Eigenvalues and how the features mix into eigenfunctions.

    Attributes:
        eigenvalues: λ, [d].
        transform: T, [d, d]: the eigenfunctions at features Φ [n, d] are ΦT, orthonormal in the
            measure behind Σ.
    """

    eigenvalues: Array
    transform: Array


def orthonormalising_factor(covariance: Array) -> Array:
    """Compute L⁻¹ for Σ = LLᵀ, well defined even if features are linearly dependent.

    The ridge is a few roundings of each feature's own variance: a dependent feature comes out large
    and meaningless, but finite. If rounding in a sum over many points exceeds this ridge, a larger
    ridge takes its place, and the rows computed with it have no meaning.

    Returns:
        L⁻¹, [d, d], lower triangular; the row of a feature without variance is its unit vector.
    """
    variances = jnp.diagonal(covariance)
    alive = variances > 0.0
    scale = jnp.where(alive, jnp.sqrt(jnp.abs(variances)), 1.0)
    correlation = covariance / (scale[:, None] * scale[None, :])
    rounding = max(10, covariance.shape[0]) * float(np.finfo(covariance.dtype).eps)
    # A few roundings of a correlation matrix, more than the error of any sum of products.
    small, large = (
        inverse_cholesky_factor(correlation + jnp.diag(jnp.where(alive, ridge, 1.0)))
        for ridge in (rounding, rounding**0.5)
    )
    usable = jnp.all(jnp.isfinite(small), axis=1, keepdims=True)
    factor: Array = jnp.where(usable, small, large) / scale[None, :]
    return factor


def ordered_spectrum(covariance: Array, operator_matrix: Array) -> Spectrum:
    """Compute Λ_kk and v_k = (L⁻¹u)_k from Σ and Π, in the order of the features."""
    factor = orthonormalising_factor(covariance)
    return Spectrum(jnp.diagonal(_congruent(factor, operator_matrix)), factor.T)


def ritz_spectrum(covariance: Array, operator_matrix: Array) -> Spectrum:
    """Compute the eigenpairs of Λ, the best approximations within the span (Rayleigh-Ritz).

    The result depends on the span alone, while the order in ``ordered_spectrum`` is the order that
    was learned. Only the symmetric part of Π counts; eigenvalues are in ascending order.
    """
    factor = orthonormalising_factor(covariance)
    inner = _congruent(factor, (operator_matrix + operator_matrix.T) / 2.0)
    eigenvalues, vectors = jnp.linalg.eigh(inner)
    transform = matmul(factor.T, vectors)
    return Spectrum(eigenvalues, transform)


def _congruent(factor: Array, operator_matrix: Array) -> Array:
    """Compute Λ = L⁻¹ΠL⁻ᵀ, [d, d]."""
    return matmul(matmul(factor, operator_matrix), factor.T)


class TraceGradient(NamedTuple):
    """A gradient of tr Λ, as the matrices that multiply the features and their images.

    At u(x), as a row, it is 2 (Ku)ᵀ·images − 2 uᵀ·features.

    Attributes:
        images: Matrix that multiplies the images, [d, d].
        features: Matrix that multiplies the features, [d, d].
        eigenvalues: Λ_kk, as in ``ordered_spectrum``, [d].
    """

    images: Array
    features: Array
    eigenvalues: Array


def masked_gradient(covariance: Array, operator_matrix: Array) -> TraceGradient:
    """Compute the gradient of every Λ_kk in u_k alone (Pfau et al. 2019, Eqs. 12-14).

    Images are multiplied by L⁻ᵀ diag(L)⁻¹ and features by L⁻ᵀ triu(Λ diag(L)⁻¹). Both are upper
    triangular, so the first k functions alone move the k-th.

    Args:
        covariance: Σ, [d, d].
        operator_matrix: Π_jk = E[u_j Ku_k], [d, d]. It need not be symmetric. The best estimate of
            Π uses the same points as the gradient and is not symmetric: the gradient is then zero
            at every point if u are eigenfunctions, for any set of points.
    """
    factor = orthonormalising_factor(covariance)
    lengths = jnp.diagonal(factor)[None, :]
    inner = _congruent(factor, operator_matrix)
    features = matmul(factor.T, jnp.triu(inner) * lengths)
    return TraceGradient(factor.T * lengths, features, jnp.diagonal(inner))


def full_gradient(covariance: Array, operator_matrix: Array) -> TraceGradient:
    """Compute the whole gradient of tr Λ = tr Σ⁻¹Π: images times Σ⁻¹, features times Σ⁻¹ΠΣ⁻¹.

    tr Λ is the same for any basis of the features' span, so only the span is learned, and
    ``ritz_spectrum`` finds the eigenfunctions in the span (Pfau et al. 2019, App. A.1). Arguments
    are as for ``masked_gradient``.
    """
    factor = orthonormalising_factor(covariance)
    inner = _congruent(factor, operator_matrix)
    features = matmul(matmul(factor.T, inner), factor)
    return TraceGradient(matmul(factor.T, factor), features, jnp.diagonal(inner))
