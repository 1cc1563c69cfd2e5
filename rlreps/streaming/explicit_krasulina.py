"""Krasulina's update without orthonormality, explicit: what Amid & Warmuth 2020 call "Sanger"."""

import math

import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming import pseudo_inverse
from rlreps.streaming.base import StreamingRule
from rlreps.streaming.pseudo_inverse import FactorState, factor_rule
from rlreps.streaming.rounding import without_rounding
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate

_HIGHEST = lax.Precision.HIGHEST


def explicit_krasulina(
    num_inputs: int,
    num_components: int,
    *,
    learning_rate: LearningRate,
    initial_scale: float | None = None,
) -> StreamingRule:
    """Gradient descent on E‖x − CC†x‖²/2 over all factors C.

        C' = C + η (x − Cy) yᵀ,  y = C†x,

    the mean over a batch of several rows. Amid & Warmuth 2020 list it as "Sanger"; the generalised
    Hebbian algorithm of Sanger 1989 is ``sanger``. As there, C† is the pseudo-inverse of the
    current C; one row's update follows it at O(k · features) (``pseudo_inverse``).

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it; in units of one over a variance while C's columns
            have unit length. Where η ‖y‖² is large the step overshoots, and C with it, after which
            nothing moves: unlike the implicit form this one does not survive a tiny start.
        initial_scale: Standard deviation of C's entries at the start; None is 1/√features, for
            columns of about unit length.

    Returns:
        The rule. Components are an orthonormal basis of C's span.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and rate and scale are positive; from an update, for a
            batch of another width or without rows.
    """
    require_learning_rate(learning_rate)
    scale = 1.0 / math.sqrt(max(num_inputs, 1)) if initial_scale is None else initial_scale

    def one(state: FactorState, row: Array) -> FactorState:
        hidden = pseudo_inverse.coefficients(state, row)
        rate = learning_rate_at(learning_rate, state.step, row.dtype)
        residual = row - jnp.matmul(hidden, state.rows, precision=_HIGHEST)
        step = rate * without_rounding(residual, row)
        return pseudo_inverse.add_outer_residual(state, hidden, step)

    def many(state: FactorState, batch: Array) -> FactorState:
        rate = learning_rate_at(learning_rate, state.step, batch.dtype) / batch.shape[0]
        hidden = jnp.matmul(state.pseudo_inverse, batch.T, precision=_HIGHEST)
        residuals = batch - jnp.matmul(hidden.T, state.rows, precision=_HIGHEST)
        rows = state.rows + rate * jnp.matmul(hidden, residuals, precision=_HIGHEST)
        return FactorState(state.step + 1, rows, pseudo_inverse.inverse_gram(rows))

    return factor_rule(num_inputs, num_components, scale, one, many)
