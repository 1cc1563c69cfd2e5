"""Krasulina's rule for several components: a step along the residual, then Gram-Schmidt."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.orthonormal import (
    VectorRule,
    VectorState,
    add_outer,
    orthonormalize,
    without_rounding,
)


@configurable
@dataclasses.dataclass(frozen=True)
class Krasulina(VectorRule):
    """C' = QR(C + η (x − CCᵀx) xᵀC), or the batch's mean (Krasulina 1969, for k components).

    Amid & Warmuth 2020, Eqs. 8 and 9: projected gradient descent on the Stiefel manifold, where
    Oja's rule takes the plain gradient. The R of QR has a positive diagonal. One row costs
    O(k · features): its QR decomposition has a closed form (``orthonormal.add_outer``). The steps
    turn only the span, in which columns are not distinguished. η is in units of one over a
    variance.
    """

    title: ClassVar[str] = "Krasulina"

    def step_row(self, state: VectorState, row: Array) -> VectorState:
        rate = self.rate(state, row)
        weights = matmul(state.rows, row)
        residual = row - matmul(weights, state.rows)
        step = rate * without_rounding(residual, row)
        # The residual is orthogonal to the rows: inner products become I + ‖step‖² w wᵀ.
        excess = jnp.sum(jnp.square(step))
        return VectorState(state.step + 1, add_outer(state.rows, weights, step, excess))

    def step_batch(self, state: VectorState, batch: Array) -> VectorState:
        rate = self.rate(state, batch) / batch.shape[0]
        weights = matmul(state.rows, batch.T)
        residuals = batch - matmul(weights.T, state.rows)
        moved = state.rows + rate * matmul(weights, residuals)
        return VectorState(state.step + 1, orthonormalize(moved))
