"""Oja's rule for several components: a gradient step, then Gram-Schmidt."""

import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming.base import StreamingRule
from rlreps.streaming.orthonormal import BasisState, add_outer, basis_rule, orthonormalize
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate

_HIGHEST = lax.Precision.HIGHEST


def oja(num_inputs: int, num_components: int, *, learning_rate: LearningRate) -> StreamingRule:
    """C' = QR(C + η x xᵀC), or of the batch's mean x xᵀ (Oja 1982; Oja & Karhunen 1985).

    The R of QR has a positive diagonal. The first i columns follow the rule for i components, so
    each column finds an eigenvector of its own. One row costs O(k · features): its QR decomposition
    has a closed form (``orthonormal.add_outer``).

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it, in units of one over a variance.

    Returns:
        The rule.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and a fixed rate is positive; from an update, for a
            batch of another width or without rows.
    """
    require_learning_rate(learning_rate)

    def one(state: BasisState, row: Array) -> BasisState:
        rate = learning_rate_at(learning_rate, state.step, row.dtype)
        weights = jnp.matmul(state.rows, row, precision=_HIGHEST)
        # Rows V + η w xᵀ have inner products I + (2η + η²‖x‖²) w wᵀ, because Vx = w.
        excess = rate * (2.0 + rate * jnp.sum(jnp.square(row)))
        return BasisState(state.step + 1, add_outer(state.rows, weights, rate * row, excess))

    def many(state: BasisState, batch: Array) -> BasisState:
        rate = learning_rate_at(learning_rate, state.step, batch.dtype) / batch.shape[0]
        weights = jnp.matmul(state.rows, batch.T, precision=_HIGHEST)
        moved = state.rows + rate * jnp.matmul(weights, batch, precision=_HIGHEST)
        return BasisState(state.step + 1, orthonormalize(moved))

    return basis_rule(num_inputs, num_components, one, many)
