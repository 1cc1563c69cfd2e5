"""A full-rank factor C [features, k] with its pseudo-inverse C† = (CᵀC)⁻¹Cᵀ, followed by updates.

What is kept is the k x k inverse Gram matrix P = (CᵀC)⁻¹, and C as its rows [k, features]: C† = PCᵀ
then takes no memory of its own, and one row's update is O(k · features) with k² beside it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.errors import require
from rlreps.streaming.anchoring import anchored_update, anchored_updates
from rlreps.streaming.base import StreamingRule, most_updates, require_batch, require_sizes
from rlreps.streaming.combining import online_em_average
from rlreps.streaming.orthonormal import orthonormalize
from rlreps.subspace.linalg import solve_positive_definite

_HIGHEST = lax.Precision.HIGHEST

_FIRST_ANCHORED = 256
"""A factor that starts small grows by orders of magnitude in its first updates, and what rounding
does to the inverse then sends float32 another way than float64."""


class FactorState(NamedTuple):
    """Where a rule without orthonormality stands.

    Attributes:
        step: Updates made, [] (int32).
        rows: Cᵀ, [k, features].
        inverse_gram: P = (CᵀC)⁻¹, [k, k].
    """

    step: Array
    rows: Array
    inverse_gram: Array

    @property
    def pseudo_inverse(self) -> Array:
        """C†, [k, features]."""
        product: Array = jnp.matmul(self.inverse_gram, self.rows, precision=_HIGHEST)
        return product


def inverse_gram(rows: Array) -> Array:
    """(CᵀC)⁻¹ [k, k] of rows Cᵀ [k, features]; non-finite if C lacks rank to rounding."""
    gram = jnp.matmul(rows, rows.T, precision=_HIGHEST)
    # Scaled to a unit diagonal: columns of very different lengths would not be told from a
    # matrix that lacks rank.
    lengths = jnp.sqrt(jnp.diagonal(gram))
    scale = lengths[:, None] * lengths[None, :]
    inverse = solve_positive_definite(gram / scale, jnp.eye(len(gram), dtype=gram.dtype)) / scale
    return 0.5 * (inverse + inverse.T)


def coefficients(state: FactorState, row: Array) -> Array:
    """Hidden variables y = C†x, [k], of a row x [features]."""
    projected = jnp.matmul(state.rows, row, precision=_HIGHEST)
    found: Array = jnp.matmul(state.inverse_gram, projected, precision=_HIGHEST)
    return found


def add_outer_residual(state: FactorState, hidden: Array, residual: Array) -> FactorState:
    """C + r yᵀ and its inverse Gram matrix, for a residual r that is orthogonal to C's columns.

    Meyer 1973, Theorem 1 for a new direction (r outside the range of C), which is also equation
    3.2.7 of the Matrix Cookbook: since Cᵀr = 0 the Gram matrix becomes CᵀC + ‖r‖² y yᵀ, whose
    inverse is P − ‖r‖² (Py)(Py)ᵀ / (1 + ‖r‖² yᵀPy).

    Args:
        state: C and P.
        hidden: y, [k].
        residual: r, [features], any step size included.

    Returns:
        The next state, one step on.
    """
    energy = jnp.sum(jnp.square(residual))
    direction = jnp.matmul(state.inverse_gram, hidden, precision=_HIGHEST)
    shrinkage = energy / (1.0 + energy * jnp.sum(hidden * direction))
    return FactorState(
        state.step + 1,
        state.rows + hidden[:, None] * residual[None, :],
        state.inverse_gram - (shrinkage * direction)[:, None] * direction[None, :],
    )


def anchor(state: FactorState) -> FactorState:
    """The same C with its inverse Gram matrix found anew."""
    return state._replace(inverse_gram=inverse_gram(state.rows))


def factor_rule(
    num_inputs: int,
    num_components: int,
    initial_scale: float,
    one: Callable[[FactorState, Array], FactorState],
    many: Callable[[FactorState, Array], FactorState],
) -> StreamingRule:
    """A rule on C and P out of its step on one row [features] and that on a batch [b, features].

    Components are an orthonormal basis of C's span. Models are combined by the online-EM average.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and the scale is positive.
    """
    require_sizes(num_inputs, num_components)
    require(initial_scale > 0.0, "initial_scale > 0", initial_scale)
    anchored = anchored_update(one, anchor, first=_FIRST_ANCHORED)
    anchored_each = anchored_updates(one, anchor, first=_FIRST_ANCHORED)

    def init(key: Array) -> FactorState:
        rows = initial_scale * jax.random.normal(key, (num_components, num_inputs))
        return FactorState(jnp.zeros((), jnp.int32), rows, inverse_gram(rows))

    def update(state: FactorState, batch: Array) -> FactorState:
        require_batch(batch, num_inputs)
        updated: FactorState = (
            anchored(state, batch[0]) if batch.shape[0] == 1 else many(state, batch)
        )
        return updated

    def update_each(state: FactorState, rows: Array) -> FactorState:
        require_batch(rows, num_inputs)
        updated: FactorState = anchored_each(state, rows)
        return updated

    def combine(states: FactorState, weights: Array) -> FactorState:
        rows = online_em_average(states.rows, weights)
        return FactorState(most_updates(states.step), rows, inverse_gram(rows))

    return StreamingRule(
        init, update, update_each, lambda state: orthonormalize(state.rows).T, combine
    )
