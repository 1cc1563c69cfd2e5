"""EigenGame: principal components as the Nash equilibrium of a game (Gemp et al. 2021).

Player i holds one unit vector v_i and is paid for the variance that it captures, less a penalty for
alignment with the players before it, all measured on the same mini-batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming.base import (
    StreamingRule,
    largest,
    one_row_at_a_time,
    require_batch,
    require_sizes,
)
from rlreps.streaming.combining import projection_average
from rlreps.streaming.orthonormal import orthonormalize
from rlreps.streaming.schedules import LearningRate, learning_rate_at, require_learning_rate


class EigenGameState(NamedTuple):
    """Where the players stand.

    Attributes:
        step: Updates made, [] (int32).
        vectors: The players' unit vectors as columns, [features, k].
    """

    step: Array
    vectors: Array


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
        InputError: Unless 1 ≤ k ≤ features and a fixed learning rate is positive.
    """
    require_sizes(num_inputs, num_components)
    require_learning_rate(learning_rate)

    def init(key: Array) -> EigenGameState:
        vectors = jax.random.normal(key, (num_inputs, num_components))
        return EigenGameState(jnp.zeros((), jnp.int32), _unit_columns(vectors))

    def update(state: EigenGameState, batch: Array) -> EigenGameState:
        require_batch(batch, num_inputs)
        gradients = utility_gradients(state.vectors, batch)
        radial = jnp.sum(gradients * state.vectors, axis=0)
        tangent = gradients - state.vectors * radial[None, :]
        step_size = learning_rate_at(learning_rate, state.step, tangent.dtype)
        return EigenGameState(state.step + 1, _unit_columns(state.vectors + step_size * tangent))

    def combine(states: EigenGameState, weights: Array) -> EigenGameState:
        bases = jax.vmap(lambda vectors: orthonormalize(vectors.T))(states.vectors)
        return EigenGameState(largest(states.step), projection_average(bases, weights).T)

    return StreamingRule(
        init, update, one_row_at_a_time(update), lambda state: state.vectors, combine
    )


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


def _unit_columns(vectors: Array) -> Array:
    units: Array = vectors / jnp.linalg.norm(vectors, axis=0, keepdims=True)
    return units
