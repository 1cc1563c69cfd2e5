"""Gradient steps on one vector per component: Oja, Krasulina, Sanger."""

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
    sums_of_earlier,
    without_rounding,
)


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


@configurable
@dataclasses.dataclass(frozen=True)
class Sanger(VectorRule):
    """The generalised Hebbian algorithm, c_i' = c_i + η y_i (x − Σ_{j≤i} y_j c_j), y = Cᵀx.

    Sanger 1989, "Optimal unsupervised learning in a single-layer linear feedforward neural
    network", equation 3, or its mean over a batch of several rows. Component i learns from the part
    of x outside earlier components, so the columns converge to single eigenvectors in order.
    Nothing keeps them orthonormal: if η ‖x‖² is far above one they diverge. Components have unit
    length; the state's rows need not. η is in units of one over a variance.
    """

    title: ClassVar[str] = "Sanger (GHA)"
    orders_components: ClassVar[bool] = True

    def step_batch(self, state: VectorState, batch: Array) -> VectorState:
        rate = self.rate(state, batch) / batch.shape[0]
        outputs = matmul(state.rows, batch.T)
        hebbian = matmul(outputs, batch)
        if batch.shape[0] == 1:
            # Σ_{j≤i} y_j c_j of one row is a running sum, O(k · features).
            weighted = outputs * state.rows
            explained = outputs * (sums_of_earlier(weighted) + weighted)
        else:
            overlaps = jnp.tril(matmul(outputs, outputs.T))
            explained = matmul(overlaps, state.rows)
        return VectorState(state.step + 1, state.rows + rate * (hebbian - explained))

    def components(self, state: VectorState) -> Array:
        lengths = jnp.linalg.norm(state.rows, axis=1)
        return (state.rows / jnp.where(lengths > 0.0, lengths, 1.0)[:, None]).T
