"""The implicit form of Krasulina's update (Amid & Warmuth 2020): no orthonormality, no QR."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.factor import (
    FactorRule,
    FactorState,
    add_outer_residual,
    coefficients,
    inverse_gram,
)
from rlreps.streaming.rules.orthonormal import epsilon
from rlreps.subspace.linalg import solve_positive_definite


@configurable
@dataclasses.dataclass(frozen=True)
class ImplicitKrasulina(FactorRule):
    """Krasulina's update with the future gradient's residual.

    Amid & Warmuth 2020. With y = C†x, the new factor minimises ‖C' − C‖²/(2η) + ‖x − C'y‖²/2
    (Eq. 10):

        C' = C + η / (1 + η ‖y‖²) (x − Cy) yᵀ                         (one row, Eq. 13)
        C' = (C + (η/b) XᵀYᵀ)(I + (η/b) YYᵀ)⁻¹,  Y = C†Xᵀ             (b rows, Eq. 12)

    where η multiplies the mean over the batch. It is a step of online EM for probabilistic PCA.
    Meyer's rank-one update tracks C† (``factor``), with anchors against rounding, so a row costs
    O(k · features).

    C' depends on η through η / ‖C‖² alone, and C grows until the two balance: from a small start
    the learning rate hardly matters. Components are an orthonormal basis of C's span; the rule does
    not distinguish them within it.

    Attributes:
        initial_scale: Standard deviation of C's entries at the start; None is 1/√features.
    """

    title: ClassVar[str] = "implicit Krasulina"

    _: dataclasses.KW_ONLY
    initial_scale: float | None = 1e-5

    def step_row(self, state: FactorState, row: Array) -> FactorState:
        hidden = coefficients(state, row)
        rate = self.rate(state, row)
        step_size = rate / (1.0 + rate * jnp.sum(jnp.square(hidden)))
        residual = row - matmul(hidden, state.rows)
        return add_outer_residual(state, hidden, step_size * residual)

    def step_batch(self, state: FactorState, batch: Array) -> FactorState:
        hidden = matmul(state.pseudo_inverse, batch.T)
        residuals = batch - matmul(hidden.T, state.rows)
        rows = state.rows + matmul(_damped(hidden, self.rate(state, batch)), residuals)
        return FactorState(state.step + 1, rows, inverse_gram(rows))


def _damped(hidden: Array, rate: Array) -> Array:
    """Compute ((b/η) I + YYᵀ)⁻¹ Y of hidden variables Y [k, b], by the smaller of two systems."""
    k, rows = hidden.shape
    left, right = (hidden, hidden.T) if k <= rows else (hidden.T, hidden)
    inner = matmul(left, right)
    # Rounding of the products must not exceed the term that makes them invertible.
    least = 10.0 * epsilon(hidden) * jnp.trace(inner)
    ridge = jnp.maximum(rows / rate, least)
    system = inner + ridge * jnp.eye(len(inner), dtype=inner.dtype)
    if k <= rows:
        return solve_positive_definite(system, hidden)
    return solve_positive_definite(system, hidden.T).T
