"""Krasulina's update without orthonormality, explicit; Amid & Warmuth 2020 call it "Sanger"."""

import dataclasses
from typing import ClassVar

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
from rlreps.streaming.rules.orthonormal import without_rounding


@configurable
@dataclasses.dataclass(frozen=True)
class ExplicitKrasulina(FactorRule):
    """Gradient descent on E‖x − CC†x‖²/2 over all factors C.

        C' = C + η (x − Cy) yᵀ,  y = C†x,

    or the mean over a batch of several rows. Amid & Warmuth 2020, the update after Eq. 12, list it
    as "Sanger"; the generalised Hebbian algorithm of Sanger 1989 is ``Sanger``. As there, C† is the
    pseudo-inverse of the current C; one row's update tracks it in O(k · features) (``factor``).
    Components are an orthonormal basis of C's span.

    η is in units of one over a variance while C's columns have unit length. s C with s² η behaves
    the same, so a small start needs an η as small as C's squares. If η ‖y‖² is large, the step
    overshoots and C grows, after which it hardly moves.
    """

    title: ClassVar[str] = "explicit Krasulina"

    def step_row(self, state: FactorState, row: Array) -> FactorState:
        hidden = coefficients(state, row)
        residual = row - matmul(hidden, state.rows)
        step = self.rate(state, row) * without_rounding(residual, row)
        return add_outer_residual(state, hidden, step)

    def step_batch(self, state: FactorState, batch: Array) -> FactorState:
        rate = self.rate(state, batch) / batch.shape[0]
        hidden = matmul(state.pseudo_inverse, batch.T)
        residuals = batch - matmul(hidden.T, state.rows)
        rows = state.rows + rate * matmul(hidden, residuals)
        return FactorState(state.step + 1, rows, inverse_gram(rows))
