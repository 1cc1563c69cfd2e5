"""Principal components as the Nash equilibrium of a game: EigenGame and its unbiased successor.

Players are unit vectors v_i that move simultaneously. Each takes a step of size η along its own
gradient, projected onto the tangent space of the sphere at v_i, and is then normalised.
"""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable
from rlreps.numerics import matmul
from rlreps.streaming.rules.orthonormal import VectorRule, VectorState, sums_of_earlier


@dataclasses.dataclass(frozen=True)
class PlayersRule(VectorRule):
    """A rule in which every player follows a gradient of its own along its unit sphere."""

    orders_components: ClassVar[bool] = True

    @abc.abstractmethod
    def gradients(self, players: Array, batch: Array) -> Array:
        """Compute all players' gradients [k, features] on a batch of observations [b, features]."""

    def init(self, key: Array) -> VectorState:
        vectors = jax.random.normal(key, (self.num_inputs, self.num_components))
        return VectorState(jnp.zeros((), jnp.int32), _unit_rows(vectors.T))

    def step_batch(self, state: VectorState, batch: Array) -> VectorState:
        ascent = self.gradients(state.rows, batch)
        radial = jnp.sum(ascent * state.rows, axis=1)
        tangent = ascent - radial[:, None] * state.rows
        rate = self.rate(state, tangent)
        return VectorState(state.step + 1, _unit_rows(state.rows + rate * tangent))


def _unit_rows(rows: Array) -> Array:
    units: Array = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    return units


@configurable
@dataclasses.dataclass(frozen=True)
class Eigengame(PlayersRule):
    """EigenGame with Riemannian gradients (Gemp et al. 2021).

    Player i holds one unit vector v_i. Its payoff is the variance that v_i captures, less a penalty
    for alignment with the players before it, all measured on the same mini-batch. Gemp et al. 2021,
    "EigenGame: PCA as a Nash Equilibrium", Algorithm 2 (decentralised): every player follows

        ∇_i = 2 Xᵀ[X v_i − Σ_{j<i} (⟨X v_i, X v_j⟩ / ⟨X v_j, X v_j⟩) X v_j].

    Here X is divided by the square root of its number of rows, so that the learning rate does not
    depend on the size of the mini-batch. The penalty is a ratio of batch estimates and therefore
    biased; with one row per batch it cancels the payoff of every player but the first. ``update``
    needs at least k rows per batch to distinguish k players; use many more.
    """

    title: ClassVar[str] = "EigenGame"

    @classmethod
    def least_rows_per_update(cls, num_components: int) -> int:
        return num_components

    @classmethod
    def usual_rows_per_update(cls, num_components: int) -> int:
        return 2 * num_components

    def gradients(self, players: Array, batch: Array) -> Array:
        rows = float(batch.shape[0])
        projections = matmul(batch, players.T)
        products = matmul(projections.T, projections)
        own = jnp.diagonal(products)
        # A player without variance imposes no penalty on the players after it.
        shares = products / jnp.where(own > 0.0, own, 1.0)[:, None]
        # Entry [j, i] is ⟨X v_i, X v_j⟩ / ⟨X v_j, X v_j⟩: kept above the diagonal, where j < i.
        penalties = jnp.triu(shares, k=1)
        unpaid = jnp.eye(self.num_components, dtype=penalties.dtype) - penalties
        remaining = matmul(projections, unpaid)
        return (2.0 * matmul(batch.T, remaining) / rows).T


@configurable
@dataclasses.dataclass(frozen=True)
class MuEigengame(PlayersRule):
    """μ-EigenGame with Riemannian gradients, unbiased for batches of any size.

    Gemp et al. 2022, "EigenGame Unloaded: When playing games is better than optimizing",
    Algorithm 1 on one device: every player follows

        ∇_i = Σ v_i − Σ_{j<i} (v_iᵀ Σ v_j) v_j,  Σ = XᵀX / b.

    It is linear in Σ, so that batches of any size, even one row, are unbiased, whereas
    ``Eigengame`` divides one estimate by another. It is Sanger's rule without its radial part
    (j = i), which the normalisation replaces. An update takes O(k · features) for one row, and O(k²
    (b + features)) for several. η is in units of one over a variance.
    """

    title: ClassVar[str] = "μ-EigenGame"

    def gradients(self, players: Array, batch: Array) -> Array:
        outputs = matmul(players, batch.T)
        if batch.shape[0] == 1:
            # Σ_{j<i} y_j v_j of one row is a running sum, O(k · features).
            return outputs * (batch - sums_of_earlier(outputs * players))
        rewards = matmul(outputs, batch)
        overlaps = jnp.tril(matmul(outputs, outputs.T), k=-1)
        gradients: Array = rewards - matmul(overlaps, players)
        return gradients / batch.shape[0]
