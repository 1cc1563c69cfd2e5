"""Symmetric matrices of low rank, Σ_i λ_i v_i v_iᵀ, to which rows are added (Brand 2002).

With orthonormal vectors V as rows [r, features] and a row x = Vᵀp + cq, q a unit vector orthogonal
to V, the sum with x xᵀ lives in the span of V and q, where it is the small *core*

    diag(λ, 0) + (p, c)(p, c)ᵀ,  [r + 1, r + 1].

Its eigenvectors turn V and q into the eigenvectors of the sum, and the leading r are kept.
Eigenvalues below about 1e-7 of the largest are rounding in float32.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from rlreps.numerics import matmul
from rlreps.streaming.rules.combining import shares
from rlreps.streaming.rules.orthonormal import epsilon, orthonormalize, rounding_length


class LowRank(NamedTuple):
    """Σ_i λ_i v_i v_iᵀ.

    Attributes:
        rows: Orthonormal v_i, [r, features].
        values: λ_i ≥ 0, [r]; in descending order once a row was added.
    """

    rows: Array
    values: Array


def add_row(matrix: LowRank, row: Array) -> LowRank:
    """Compute the leading r eigenpairs of Σ_i λ_i v_i v_iᵀ + x xᵀ, in O(r² (features + r)).

    The rows stay orthonormal up to a few units of rounding per update: orthonormalise them from
    time to time.
    """
    along, residual = _residuals(matrix.rows, row[None, :])
    # Scaled by a power of two near the row's length: squares of short rows would underflow.
    exponent = jnp.clip(jnp.frexp(jnp.max(jnp.abs(row)))[1], -126, 126)
    unit = jnp.ldexp(jnp.ones((), row.dtype), exponent)
    residual = residual / unit
    length = jnp.linalg.norm(residual, axis=1)
    void = length <= rounding_length(row / unit)
    direction = residual / jnp.where(void, 1.0, length)[:, None]
    beyond = jnp.where(void, 0.0, length * unit)[:, None]
    return _leading(matrix, along, beyond, direction, void)


def add_rows(matrix: LowRank, batch: Array) -> LowRank:
    """Compute the leading r eigenpairs of Σ_i λ_i v_i v_iᵀ + XᵀX of a batch X, [b, features].

    The residuals' QR decomposition gives min(b, features) new directions, or none if V is complete.
    It costs O((b + r)² (features + b + r)): least per row, O(r · features), if b is about r.
    """
    count, width = matrix.rows.shape
    if count == width:
        along = matmul(batch, matrix.rows.T)
        moved = _leading(matrix, along, along[:, :0], matrix.rows[:0], jnp.zeros((0,), bool))
    else:
        along, residuals = _residuals(matrix.rows, batch)
        basis, upper = jnp.linalg.qr(residuals.T)
        void = jnp.linalg.norm(upper, axis=1) <= rounding_length(batch)
        beyond = jnp.where(void[:, None], 0.0, upper).T
        moved = _leading(matrix, along, beyond, basis.T, void)
    # Dependent residuals give directions without energy that are not orthogonal to V; rows with
    # energy come first and stay unchanged.
    return moved._replace(rows=orthonormalize(moved.rows))


def weighted_mean(rows: Array, values: Array, weights: Array) -> LowRank:
    """Compute the leading r eigenpairs of Σ_m w_m Σ_i λ_mi v_mi v_miᵀ with Σ_m w_m = 1.

    Vectors without energy are ranked among themselves: if fewer than r directions have energy, the
    rest are the directions that most of the matrices had.

    Args:
        rows: Orthonormal v_mi, [matrices, r, features].
        values: λ_mi, [matrices, r].
        weights: [matrices], none negative, of positive sum.
    """
    matrices, count, width = rows.shape
    total = jnp.sum(values)
    # At the level of rounding, so that it ranks only directions without energy.
    floor = jnp.where(total > 0.0, epsilon(values) * total, 1.0)
    scales = jnp.sqrt(shares(weights)[:, None] * (values + floor)).reshape(-1)
    stacked = scales[:, None] * rows.reshape(matrices * count, width)
    basis, upper = jnp.linalg.qr(stacked.T)
    _, vectors = _descending(matmul(upper, upper.T))
    turned = vectors[:, :count].T
    parts = jnp.square(matmul(turned, upper))
    real = (values / (values + floor)).reshape(-1)
    return LowRank(orthonormalize(matmul(turned, basis.T)), matmul(parts, real))


def _residuals(rows: Array, batch: Array) -> tuple[Array, Array]:
    """Split a batch into coordinates along orthonormal rows [b, r] and the rest [b, features]."""
    along = matmul(batch, rows.T)
    residuals = batch - matmul(along, rows)
    # Twice, because a short residual consists mostly of the rounding of the first projection.
    again = matmul(residuals, rows.T)
    return along + again, residuals - matmul(again, rows)


def _leading(
    matrix: LowRank, along: Array, beyond: Array, directions: Array, void: Array
) -> LowRank:
    """Compute the leading eigenpairs of the sum with a batch from its core.

    Args:
        matrix: V and λ.
        along: The batch's coordinates along V, [b, r].
        beyond: The batch's coordinates along new directions, [b, q].
        directions: Unit vectors, [q, features], orthogonal to V unless void.
        void: Mask of directions along which no row of the batch has a part, [q] (bool).
    """
    count = len(matrix.values)
    coordinates = jnp.concatenate([along, beyond], axis=1)
    products = matmul(coordinates.T, coordinates)
    # Void directions come last, even after rows without energy, so that V keeps all its rows.
    energy = jnp.sum(matrix.values) + jnp.trace(products)
    penalty = -jnp.where(energy > 0.0, energy, 1.0)
    own = jnp.concatenate([matrix.values, jnp.where(void, penalty, 0.0)])
    values, vectors = _descending(jnp.diag(own) + products)
    # A row keeps its sign while it turns.
    signs = jnp.where(jnp.diagonal(vectors) < 0.0, -1.0, 1.0).astype(vectors.dtype)
    turned = (vectors * signs[None, :])[:, :count]
    basis = jnp.concatenate([matrix.rows, directions])
    return LowRank(matmul(turned.T, basis), jnp.maximum(values[:count], 0.0))


def _descending(matrix: Array) -> tuple[Array, Array]:
    """Compute eigenvalues and eigenvectors as columns, largest first."""
    # Reversed before and after, so that a diagonal matrix in descending order does not change.
    values, vectors = jnp.linalg.eigh(matrix[::-1, ::-1])
    return values[::-1], vectors[::-1, ::-1]
