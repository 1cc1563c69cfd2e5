"""μ-EigenGame: EigenGame whose gradients any batch estimates without bias (Gemp et al. 2022)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.orthonormal import sums_of_earlier
from rlreps.streaming.rules.players import PlayersRule


@configurable
@dataclasses.dataclass(frozen=True)
class MuEigengame(PlayersRule):
    """μ-EigenGame with Riemannian gradients and players that move at once.

    Gemp et al. 2022, "EigenGame Unloaded: When playing games is better than optimizing",
    Algorithm 1 on one device: every player follows

        ∇_i = Σ v_i − Σ_{j<i} (v_iᵀ Σ v_j) v_j,  Σ = XᵀX / b,

    projected onto the tangent space of the sphere at v_i, and is normalised after its step. It is
    linear in Σ: a batch of any size, one row too, is right on average, where ``Eigengame`` divides
    one estimate by another. It is Sanger's rule without its radial part (j = i), which the sphere
    makes up for. An update takes O(k · features) a row, and O(k² (b + features)) if there are
    several. η is in units of one over a variance.
    """

    title: ClassVar[str] = "μ-EigenGame"

    def gradients(self, players: Array, batch: Array) -> Array:
        """Compute all players' gradients [k, features] on a batch of observations [b, features]."""
        outputs = matmul(players, batch.T)
        if batch.shape[0] == 1:
            # Σ_{j<i} y_j v_j of one row is a running sum, O(k · features).
            return outputs * (batch - sums_of_earlier(outputs * players))
        rewards = matmul(outputs, batch)
        overlaps = jnp.tril(matmul(outputs, outputs.T), k=-1)
        gradients: Array = rewards - matmul(overlaps, players)
        return gradients / batch.shape[0]
