"""Incremental principal component analysis: rank-k updates of a singular value decomposition.

The matrix XᵀX of the rows so far is kept as Σ_i λ_i v_i v_iᵀ, to which rows are added (Brand 2002).
With orthonormal vectors V as rows [r, features] and a row x = Vᵀp + cq, q a unit vector orthogonal
to V, the sum with x xᵀ lives in the span of V and q, where it is the small *core*

    diag(λ, 0) + (p, c)(p, c)ᵀ,  [r + 1, r + 1].

Its eigenvectors turn V and q into the eigenvectors of the sum, and the leading r are kept.
If a kept eigenvalue is small, the small ones are computed again without the large ones. In float32,
a standard deviation of 1e-5 of the largest is some 2 % off after 6,000 single rows, and 7 % after
30,000; errors grow with the number of updates.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.base import AnchoredRule
from rlreps.streaming.rules.combining import shares
from rlreps.streaming.rules.orthonormal import epsilon, orthonormalize, rounding_length


class IncrementalState(NamedTuple):
    """The decomposition so far.

    Attributes:
        step: Number of updates, [] (int32).
        rows_seen: Number of rows of all updates, [] (int32); the weighted mean for combined models.
        rows: Orthonormal right singular vectors, [k, features].
        energies: Squared singular values of the rows seen, [k], in descending order; zero for a
            vector that no row has reached. Divided by ``rows_seen`` they are variances.
    """

    step: Array
    rows_seen: Array
    rows: Array
    energies: Array


@configurable
@dataclasses.dataclass(frozen=True)
class IncrementalPCA(AnchoredRule):
    """The best rank-k matrix XᵀX of all rows so far, batch after batch, without a learning rate.

        diag(λ')_k, V'_k = the leading eigenpairs of Vᵀ diag(λ) V + XᵀX

    Brand 2002, "Incremental singular value decomposition of uncertain data with missing values";
    the incremental algorithm of Arora et al. 2012, "Stochastic optimization for PCA and PLS"; Ross
    et al. 2008 without their mean, because observations are centred. While the rows have rank k at
    most, nothing is lost, and any batches lead to the exact decomposition. The part of a batch
    beyond rank k is dropped for good. This is why larger batches can lead closer to the exact
    components, and why a direction is never found if no row raises it above the k-th component.

    One row takes O(k² (features + k)), the rotation of all components; b rows take O((b + k)²
    (features + b + k)). Batches of about k rows cost least, O(k · features) a row. In float32, rows
    have equal weights until some 10⁷ have been seen; then a further single row is lost to rounding.

    Components come in descending order of variance; before k independent rows, those without
    variance are arbitrary. Combining models decomposes their weighted mean XᵀX, in which rows of
    all workers have equal weight if weights and counts are equal.
    """

    title: ClassVar[str] = "incremental PCA"
    orders_components: ClassVar[bool] = True

    @classmethod
    def usual_rows_per_update(cls, num_components: int) -> int:
        return max(5 * num_components, 50)

    def init(self, key: Array) -> IncrementalState:
        rows = orthonormalize(jax.random.normal(key, (self.num_components, self.num_inputs)))
        zero = jnp.zeros((), jnp.int32)
        return IncrementalState(zero, zero, rows, jnp.zeros((self.num_components,), rows.dtype))

    def step_row(self, state: IncrementalState, row: Array) -> IncrementalState:
        moved = add_row(state.rows, state.energies, row)
        return IncrementalState(state.step + 1, state.rows_seen + 1, *moved)

    def step_batch(self, state: IncrementalState, batch: Array) -> IncrementalState:
        moved = add_rows(state.rows, state.energies, batch)
        return IncrementalState(state.step + 1, state.rows_seen + batch.shape[0], *moved)

    def anchor(self, state: IncrementalState) -> IncrementalState:
        return state._replace(rows=orthonormalize(state.rows))

    def components(self, state: IncrementalState) -> Array:
        return state.rows.T

    def combine(self, states: IncrementalState, weights: Array) -> IncrementalState:
        merged = weighted_mean(states.rows, states.energies, weights)
        seen = jnp.sum(shares(weights) * states.rows_seen.astype(weights.dtype))
        rows_seen = jnp.round(seen).astype(jnp.int32)
        return IncrementalState(jnp.max(states.step), rows_seen, *merged)


def add_row(rows: Array, values: Array, row: Array) -> tuple[Array, Array]:
    """Compute the leading r eigenpairs of Σ_i λ_i v_i v_iᵀ + x xᵀ, in O(r² (features + r)).

    The rows stay orthonormal up to a few units of rounding per update: orthonormalise them from
    time to time.
    """
    along, residual = _residuals(rows, row[None, :])
    unit = _power_of_two(row)
    residual = residual / unit
    length = jnp.linalg.norm(residual, axis=1)
    void = length <= rounding_length(row / unit)
    direction = residual / jnp.where(void, 1.0, length)[:, None]
    beyond = jnp.where(void, 0.0, length * unit)[:, None]
    return _leading(rows, values, along, beyond, direction, void)


def add_rows(rows: Array, values: Array, batch: Array) -> tuple[Array, Array]:
    """Compute the leading r eigenpairs of Σ_i λ_i v_i v_iᵀ + XᵀX of a batch X, [b, features].

    The residuals' QR decomposition gives min(b, features) new directions, or none if V is complete.
    It costs O((b + r)² (features + b + r)): least per row, O(r · features), if b is about r.
    """
    count, width = rows.shape
    if count == width:
        along = matmul(batch, rows.T)
        beyond, directions, void = along[:, :0], rows[:0], jnp.zeros((0,), bool)
    else:
        along, residuals = _residuals(rows, batch)
        unit = _power_of_two(batch)
        basis, upper = jnp.linalg.qr((residuals / unit).T)
        void = jnp.linalg.norm(upper, axis=1) <= rounding_length(batch / unit)
        beyond, directions = jnp.where(void[:, None], 0.0, upper * unit).T, basis.T
    moved, values = _leading(rows, values, along, beyond, directions, void)
    # Dependent residuals give directions without energy that are not orthogonal to V; rows with
    # energy come first and stay unchanged.
    return orthonormalize(moved), values


def weighted_mean(rows: Array, values: Array, weights: Array) -> tuple[Array, Array]:
    """Compute the leading r eigenpairs of Σ_m w_m Σ_i λ_mi v_mi v_miᵀ with Σ_m w_m = 1.

    Vectors without energy are ranked among themselves: if fewer than r directions have energy, the
    rest are the directions that occur in most of the matrices.

    Args:
        rows: Orthonormal v_mi, [matrices, r, features].
        values: λ_mi, [matrices, r].
        weights: [matrices], none negative, of positive sum.
    """
    matrices, count, width = rows.shape
    total = jnp.sum(values)
    # The floor is as small as rounding: it ranks only directions without energy.
    floor = jnp.where(total > 0.0, epsilon(values) * total, 1.0)
    scales = jnp.sqrt(shares(weights)[:, None] * (values + floor)).reshape(-1)
    stacked = scales[:, None] * rows.reshape(matrices * count, width)
    basis, upper = jnp.linalg.qr(stacked.T)
    _, vectors = _descending(matmul(upper, upper.T))
    turned = vectors[:, :count].T
    parts = jnp.square(matmul(turned, upper))
    real = (values / (values + floor)).reshape(-1)
    return orthonormalize(matmul(turned, basis.T)), matmul(parts, real)


def _power_of_two(rows: Array) -> Array:
    """Return a power of two, [], near the largest entry of rows [...].

    Squares of rows divided by it do not underflow. CUDA's QR decomposition gives NaN where they do.
    """
    exponent = jnp.clip(jnp.frexp(jnp.max(jnp.abs(rows)))[1], -126, 126)
    power: Array = jnp.ldexp(jnp.ones((), rows.dtype), exponent)
    return power


def _residuals(rows: Array, batch: Array) -> tuple[Array, Array]:
    """Split a batch into coordinates along orthonormal rows [b, r] and the rest [b, features]."""
    along = matmul(batch, rows.T)
    residuals = batch - matmul(along, rows)
    # Twice, because a short residual consists mostly of the rounding of the first projection.
    again = matmul(residuals, rows.T)
    return along + again, residuals - matmul(again, rows)


_IMPRECISE = 1e-4
"""Eigenvalues below this share of the largest have fewer than three digits in float32."""


def _leading(
    rows: Array, values: Array, along: Array, beyond: Array, directions: Array, void: Array
) -> tuple[Array, Array]:
    """Compute the leading eigenpairs of the sum with a batch from its core.

    Args:
        rows: Orthonormal v_i, [r, features].
        values: λ_i ≥ 0, [r].
        along: The batch's coordinates along V, [b, r].
        beyond: The batch's coordinates along new directions, [b, q].
        directions: Unit vectors, [q, features], orthogonal to V unless void.
        void: Mask of directions along which no row of the batch has a part, [q] (bool).
    """
    count = len(values)
    coordinates = jnp.concatenate([along, beyond], axis=1)
    products = matmul(coordinates.T, coordinates)
    # Void directions come last, after rows without energy, so that V keeps all its rows.
    energy = jnp.sum(values) + jnp.trace(products)
    penalty = -jnp.where(energy > 0.0, energy, 1.0)
    own = jnp.concatenate([values, jnp.where(void, penalty, 0.0)])
    values, vectors = _descending(jnp.diag(own) + products)
    roots = jnp.concatenate([jnp.diag(jnp.sqrt(jnp.maximum(own, 0.0))), coordinates])
    values, vectors = lax.cond(
        values[count - 1] < _IMPRECISE * values[0],
        _refine,
        lambda *given: given[:2],
        values,
        vectors,
        roots,
    )
    # A row keeps its sign while it turns.
    signs = jnp.where(jnp.diagonal(vectors) < 0.0, -1.0, 1.0).astype(vectors.dtype)
    turned = (vectors * signs[None, :])[:, :count]
    basis = jnp.concatenate([rows, directions])
    return matmul(turned.T, basis), jnp.maximum(values[:count], 0.0)


def _refine(values: Array, vectors: Array, roots: Array) -> tuple[Array, Array]:
    """Recompute the small eigenpairs of CᵀC with the large eigenvectors projected out.

    Rounding of the large eigenvalues hides the small ones.

    Args:
        values: Eigenvalues, largest first, [m] (the core's size); negative for void directions.
        vectors: Eigenvectors as columns, [m, m].
        roots: C, [m + b, m]: roots of the energies above the batch's coordinates.
    """
    large, void = values >= _IMPRECISE * values[0], values < -0.5 * values[0]
    small = ~(large | void)
    along = matmul(roots, vectors)
    lengths = jnp.sum(jnp.square(along), axis=0)
    parts = matmul(along.T, along) / jnp.where(large, lengths, 1.0)[:, None]
    parts = jnp.where(large[:, None] & small[None, :], parts, 0.0)
    vectors, along = vectors - matmul(vectors, parts), along - matmul(along, parts)
    along = jnp.where(small[None, :], along, 0.0)
    unit = jnp.max(jnp.sum(jnp.square(along), axis=0))
    unit = jnp.where(unit > 0.0, unit, 1.0)
    # Other pairs stay in their places, above and below.
    places = 1.0 + jnp.arange(len(values), 0, -1, dtype=values.dtype)
    fixed = jnp.where(large, len(values) + places, 0.0)
    fixed = jnp.where(void, places - 2.0 - len(values), fixed)
    found, turned = _descending(jnp.diag(fixed) + matmul(along.T, along) / unit)
    return jnp.where(small, found * unit, values), orthonormalize(matmul(vectors, turned).T).T


def _descending(matrix: Array) -> tuple[Array, Array]:
    """Compute eigenvalues and eigenvectors as columns, largest first."""
    # Reversed before and after, so that a diagonal matrix in descending order does not change.
    values, vectors = jnp.linalg.eigh(matrix[::-1, ::-1])
    return values[::-1], vectors[::-1, ::-1]
