"""Orthonormal bases as rows, and what one gradient step makes of them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming.base import (
    StreamingRule,
    most_updates,
    one_row_at_a_time,
    require_batch,
    require_sizes,
)
from rlreps.streaming.combining import projection_average

_HIGHEST = lax.Precision.HIGHEST


class BasisState(NamedTuple):
    """Where a rule with orthonormal components stands.

    Attributes:
        step: Updates made, [] (int32).
        rows: Orthonormal rows, [k, features].
    """

    step: Array
    rows: Array


def orthonormalize(rows: Array) -> Array:
    """Gram-Schmidt: the QR factor Q of rowsᵀ with a positive diagonal of R, as rows.

    Args:
        rows: Of full rank, [k, features].

    Returns:
        Orthonormal rows, [k, features]; row i lies in the span of the first i + 1.
    """
    basis, upper = jnp.linalg.qr(rows.T)
    signs = jnp.where(jnp.diagonal(upper) < 0.0, -1.0, 1.0).astype(rows.dtype)
    return basis.T * signs[:, None]


def add_outer(rows: Array, coefficients: Array, direction: Array, excess: Array) -> Array:
    """Gram-Schmidt of V + w dᵀ in closed form, where its Gram matrix is I + s w wᵀ.

    Row j of the result is

        sqrt(α_{j−1} / α_j) (v_j + (w_j / α_{j−1}) (d − s Σ_{i<j} w_i v_i)),
        α_j = 1 + s Σ_{i≤j} w_i²,

    in O(k · features) where a QR decomposition takes O(k² · features). The sum over earlier rows is
    of the old ones, so nothing large cancels however long the step, and rounding does not add up:
    rows of float32 are orthonormal to 1e-6 after a million steps as after one.

    Args:
        rows: V, orthonormal rows, [k, features].
        coefficients: w, [k].
        direction: d, [features].
        excess: s ≥ 0, [].

    Returns:
        Orthonormal rows, [k, features]; as ``orthonormalize(V + w dᵀ)``.
    """
    squares = excess * jnp.square(coefficients)
    alphas = 1.0 + jnp.cumsum(squares)
    before = jnp.concatenate([jnp.ones_like(alphas[:1]), alphas[:-1]])
    weighted = coefficients[:, None] * rows
    earlier = sums_of_earlier(weighted)
    moved = rows + (coefficients / before)[:, None] * (direction[None, :] - excess * earlier)
    return jnp.sqrt(before / alphas)[:, None] * moved


def sums_of_earlier(rows: Array) -> Array:
    """Σ_{i<j} of rows [k, features], for every j."""
    # XLA sums prefixes on a CPU in O(k² · features): ten times slower than a loop at k = 20.
    sums: Array = lax.platform_dependent(rows, cpu=_add_one_by_one, default=_subtract_own)
    return sums


def _add_one_by_one(rows: Array) -> Array:
    sums: Array = lax.scan(lambda total, row: (total + row, total), jnp.zeros_like(rows[0]), rows)[
        1
    ]
    return sums


def _subtract_own(rows: Array) -> Array:
    total: Array = jnp.cumsum(rows, axis=0)
    return total - rows


def basis_rule(
    num_inputs: int,
    num_components: int,
    one: Callable[[BasisState, Array], BasisState],
    many: Callable[[BasisState, Array], BasisState],
) -> StreamingRule:
    """A rule on an orthonormal basis out of its steps on one row and on a batch [b, features].

    Models are combined by the projection average.

    Raises:
        InputError: Unless 1 ≤ k ≤ features.
    """
    require_sizes(num_inputs, num_components)

    def init(key: Array) -> BasisState:
        rows = jax.random.normal(key, (num_components, num_inputs))
        return BasisState(jnp.zeros((), jnp.int32), orthonormalize(rows))

    def update(state: BasisState, batch: Array) -> BasisState:
        require_batch(batch, num_inputs)
        return one(state, batch[0]) if batch.shape[0] == 1 else many(state, batch)

    def combine(states: BasisState, weights: Array) -> BasisState:
        return BasisState(most_updates(states.step), projection_average(states.rows, weights))

    each = one_row_at_a_time(update, num_inputs)
    return StreamingRule(init, update, each, lambda state: state.rows.T, combine)
