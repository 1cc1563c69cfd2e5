"""Sanger's generalised Hebbian algorithm (1989): components one after another, no projection."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.orthonormal import VectorRule, VectorState, sums_of_earlier


@configurable
@dataclasses.dataclass(frozen=True)
class Sanger(VectorRule):
    """The generalised Hebbian algorithm, c_i' = c_i + η y_i (x − Σ_{j≤i} y_j c_j), y = Cᵀx.

    Sanger 1989, "Optimal unsupervised learning in a single-layer linear feedforward neural
    network", equation 3, or its mean over a batch of several rows. Component i learns from the part
    of x that earlier components leave, so the columns converge to single eigenvectors in order.
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
