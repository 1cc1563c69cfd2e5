"""The implicit form of Krasulina's update (Amid & Warmuth 2020): no orthonormality, no QR."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.streaming import pseudo_inverse
from rlreps.streaming.base import StreamingRule
from rlreps.streaming.pseudo_inverse import FactorState, factor_rule
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate
from rlreps.subspace.linalg import solve_positive_definite

_HIGHEST = lax.Precision.HIGHEST


def implicit_krasulina(
    num_inputs: int,
    num_components: int,
    *,
    learning_rate: LearningRate,
    initial_scale: float = 1e-5,
) -> StreamingRule:
    """Krasulina's update with the future gradient's residual.

    Amid & Warmuth 2020. With y = C†x, the new factor minimises ‖C' − C‖²/(2η) + ‖x − C'y‖²/2:

        C' = C + η / (1 + η ‖y‖²) (x − Cy) yᵀ                                   (one row)
        C' = (C + (η/b) XᵀYᵀ)(I + (η/b) YYᵀ)⁻¹,  Y = C†Xᵀ                       (b rows, Eq. 12)

    where η multiplies the mean over the batch. It is a step of online EM for probabilistic PCA.
    C† is followed by Meyer's rank-one update (``pseudo_inverse``) and anchored against rounding, so
    a row costs O(k · features).

    C' depends on η through η / ‖C‖² alone, and C grows until the two balance: from a small start
    the learning rate hardly matters. Components come as an orthonormal basis of C's span; the rule
    does not tell them apart within it.

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it.
        initial_scale: Standard deviation of C's entries at the start.

    Returns:
        The rule.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and rate and scale are positive; from an update, for a
            batch of another width or without rows.
    """
    require_learning_rate(learning_rate)

    def one(state: FactorState, row: Array) -> FactorState:
        hidden = pseudo_inverse.coefficients(state, row)
        rate = learning_rate_at(learning_rate, state.step, row.dtype)
        step_size = rate / (1.0 + rate * jnp.sum(jnp.square(hidden)))
        residual = row - jnp.matmul(hidden, state.rows, precision=_HIGHEST)
        return pseudo_inverse.add_outer_residual(state, hidden, step_size * residual)

    def many(state: FactorState, batch: Array) -> FactorState:
        rate = learning_rate_at(learning_rate, state.step, batch.dtype)
        hidden = jnp.matmul(state.pseudo_inverse, batch.T, precision=_HIGHEST)
        residuals = batch - jnp.matmul(hidden.T, state.rows, precision=_HIGHEST)
        change = jnp.matmul(_damped(hidden, rate), residuals, precision=_HIGHEST)
        rows = state.rows + change
        return FactorState(state.step + 1, rows, pseudo_inverse.inverse_gram(rows))

    return factor_rule(num_inputs, num_components, initial_scale, one, many)


def _damped(hidden: Array, rate: Array) -> Array:
    """((b/η) I + YYᵀ)⁻¹ Y of hidden variables Y [k, b], by the smaller of two systems."""
    k, rows = hidden.shape
    left, right = (hidden, hidden.T) if k <= rows else (hidden.T, hidden)
    inner = jnp.matmul(left, right, precision=_HIGHEST)
    # Rounding of the products must not outweigh what makes them invertible.
    least = 10.0 * float(np.finfo(hidden.dtype).eps) * jnp.trace(inner)
    ridge = jnp.maximum(rows / rate, least)
    system = inner + ridge * jnp.eye(len(inner), dtype=inner.dtype)
    if k <= rows:
        return solve_positive_definite(system, hidden)
    return solve_positive_definite(system, hidden.T).T
