"""Oja's rule for several components: a gradient step, then Gram-Schmidt."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.orthonormal import VectorRule, VectorState, add_outer, orthonormalize


@configurable
@dataclasses.dataclass(frozen=True)
class Oja(VectorRule):
    """C' = QR(C + η x xᵀC), or of the batch's mean x xᵀ (Oja 1982; Oja & Karhunen 1985).

    Amid & Warmuth 2020, the update after Eq. 9: the Euclidean gradient of the variance (Eq. 7). The
    R of QR has a positive diagonal. The first i columns follow the rule for i components, so each
    column finds an eigenvector of its own. One row costs O(k · features): its QR decomposition has
    a closed form (``orthonormal.add_outer``). η is in units of one over a variance.
    """

    title: ClassVar[str] = "Oja"
    orders_components: ClassVar[bool] = True

    def step_row(self, state: VectorState, row: Array) -> VectorState:
        rate = self.rate(state, row)
        weights = matmul(state.rows, row)
        # Rows V + η w xᵀ have inner products I + (2η + η²‖x‖²) w wᵀ, because Vx = w.
        excess = rate * (2.0 + rate * jnp.sum(jnp.square(row)))
        return VectorState(state.step + 1, add_outer(state.rows, weights, rate * row, excess))

    def step_batch(self, state: VectorState, batch: Array) -> VectorState:
        rate = self.rate(state, batch) / batch.shape[0]
        weights = matmul(state.rows, batch.T)
        moved = state.rows + rate * matmul(weights, batch)
        return VectorState(state.step + 1, orthonormalize(moved))
