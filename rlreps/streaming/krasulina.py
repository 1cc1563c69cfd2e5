"""Krasulina's rule for several components: a step along the residual, then Gram-Schmidt."""

import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming.base import StreamingRule
from rlreps.streaming.orthonormal import BasisState, add_outer, basis_rule, orthonormalize
from rlreps.streaming.rounding import without_rounding
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate

_HIGHEST = lax.Precision.HIGHEST


def krasulina(
    num_inputs: int, num_components: int, *, learning_rate: LearningRate
) -> StreamingRule:
    """C' = QR(C + η (x − CCᵀx) xᵀC), or the batch's mean (Krasulina 1969, for k components).

    Amid & Warmuth 2020: projected gradient descent on the Stiefel manifold, where Oja's rule takes
    the gradient as it is. The R of QR has a positive diagonal. One row costs O(k · features): its
    QR decomposition has a closed form (``orthonormal.add_outer``).

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it, in units of one over a variance.

    Returns:
        The rule. The steps turn the span alone: columns within it are not told apart.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and a fixed rate is positive; from an update, for a
            batch of another width or without rows.
    """
    require_learning_rate(learning_rate)

    def one(state: BasisState, row: Array) -> BasisState:
        rate = learning_rate_at(learning_rate, state.step, row.dtype)
        weights = jnp.matmul(state.rows, row, precision=_HIGHEST)
        residual = row - jnp.matmul(weights, state.rows, precision=_HIGHEST)
        step = rate * without_rounding(residual, row)
        # The residual is orthogonal to the rows: inner products become I + ‖step‖² w wᵀ.
        excess = jnp.sum(jnp.square(step))
        return BasisState(state.step + 1, add_outer(state.rows, weights, step, excess))

    def many(state: BasisState, batch: Array) -> BasisState:
        rate = learning_rate_at(learning_rate, state.step, batch.dtype) / batch.shape[0]
        weights = jnp.matmul(state.rows, batch.T, precision=_HIGHEST)
        residuals = batch - jnp.matmul(weights.T, state.rows, precision=_HIGHEST)
        moved = state.rows + rate * jnp.matmul(weights, residuals, precision=_HIGHEST)
        return BasisState(state.step + 1, orthonormalize(moved))

    return basis_rule(num_inputs, num_components, one, many)
