"""EigenGame: principal components as the Nash equilibrium of a game (Gemp et al. 2021)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.players import PlayersRule


@configurable
@dataclasses.dataclass(frozen=True)
class Eigengame(PlayersRule):
    """EigenGame with Riemannian gradients and players that move at once.

    Player i holds one unit vector v_i and is paid for the variance that it captures, less a penalty
    for alignment with the players before it, all measured on the same mini-batch. Gemp et al. 2021,
    "EigenGame: PCA as a Nash Equilibrium", Algorithm 2 (decentralised): every player follows

        ∇_i = 2 Xᵀ[X v_i − Σ_{j<i} (⟨X v_i, X v_j⟩ / ⟨X v_j, X v_j⟩) X v_j],

    projected onto the tangent space of the sphere at v_i, and is normalised after its step. Here X
    is divided by the square root of its number of rows, so that the learning rate does not depend
    on the size of the mini-batch. The penalty is a ratio of batch estimates and therefore biased;
    with one row a batch it cancels the payment of every player but the first. ``update`` needs at
    least k rows a batch to tell k players apart; use many.
    """

    title: ClassVar[str] = "EigenGame"

    @classmethod
    def least_rows_per_update(cls, num_components: int) -> int:
        """Return k."""
        return num_components

    def gradients(self, players: Array, batch: Array) -> Array:
        """Compute all players' gradients [k, features] on a batch of observations [b, features]."""
        rows = float(batch.shape[0])
        projections = matmul(batch, players.T)
        products = matmul(projections.T, projections)
        own = jnp.diagonal(products)
        # A player that sees no variance takes none from those after it.
        shares = products / jnp.where(own > 0.0, own, 1.0)[:, None]
        # Entry [j, i] is ⟨X v_i, X v_j⟩ / ⟨X v_j, X v_j⟩: kept above the diagonal, where j < i.
        penalties = jnp.triu(shares, k=1)
        unpaid = jnp.eye(self.num_components, dtype=penalties.dtype) - penalties
        remaining = matmul(projections, unpaid)
        return (2.0 * matmul(batch.T, remaining) / rows).T
