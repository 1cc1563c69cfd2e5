"""EigenGame: principal components as the Nash equilibrium of a game (Gemp et al. 2021).

Player i holds one unit vector v_i and is paid for the variance that it captures, less a penalty for
alignment with the players before it, all measured on the same mini-batch.
"""

import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming.base import StreamingRule
from rlreps.streaming.players import game
from rlreps.streaming.schedules import LearningRate


def eigengame(
    num_inputs: int, num_components: int, *, learning_rate: LearningRate
) -> StreamingRule:
    """EigenGame with Riemannian gradients and players that move at once.

    Gemp et al. 2021, "EigenGame: PCA as a Nash Equilibrium", Algorithm 2 (decentralised): every
    player follows

        ∇_i = 2 Xᵀ[X v_i − Σ_{j<i} (⟨X v_i, X v_j⟩ / ⟨X v_j, X v_j⟩) X v_j],

    projected onto the tangent space of the sphere at v_i, and is normalised after its step. Here X
    is divided by the square root of its number of rows, so that the learning rate does not depend
    on the size of the mini-batch. The penalty is a ratio of batch estimates and therefore biased;
    with one row a batch it cancels the payment of every player but the first. Use many rows.

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: α, or a schedule of it.

    Returns:
        The rule; ``update`` needs at least k rows a batch to tell k players apart.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and a fixed learning rate is positive; from an update,
            for a batch of another width or without rows.
    """

    def gradients(rows: Array, batch: Array) -> Array:
        return utility_gradients(rows.T, batch).T

    return game(num_inputs, num_components, learning_rate, gradients)


def utility_gradients(vectors: Array, batch: Array) -> Array:
    """Euclidean gradients of all players' utilities on one mini-batch.

    Args:
        vectors: Unit vectors as columns, [features, k].
        batch: Centred observations, [b, features].

    Returns:
        Gradients as columns, [features, k].
    """
    num_components, rows = vectors.shape[1], float(batch.shape[0])
    projections = jnp.matmul(batch, vectors, precision=lax.Precision.HIGHEST)
    products = jnp.matmul(projections.T, projections, precision=lax.Precision.HIGHEST)
    own = jnp.diagonal(products)
    # A player that sees no variance takes none from those after it.
    shares = products / jnp.where(own > 0.0, own, 1.0)[:, None]
    # Entry [j, i] is ⟨X v_i, X v_j⟩ / ⟨X v_j, X v_j⟩: kept above the diagonal, where j < i.
    penalties = jnp.triu(shares, k=1)
    unpaid = jnp.eye(num_components, dtype=penalties.dtype) - penalties
    remaining = jnp.matmul(projections, unpaid, precision=lax.Precision.HIGHEST)
    gradients: Array = jnp.matmul(batch.T, remaining, precision=lax.Precision.HIGHEST)
    return 2.0 * gradients / rows
