"""μ-EigenGame: EigenGame whose gradients any batch estimates without bias (Gemp et al. 2022)."""

import jax.numpy as jnp
from jax import Array, lax

from rlreps.streaming.base import StreamingRule
from rlreps.streaming.orthonormal import sums_of_earlier
from rlreps.streaming.players import game
from rlreps.streaming.schedules import LearningRate

_HIGHEST = lax.Precision.HIGHEST


def mu_eigengame(
    num_inputs: int, num_components: int, *, learning_rate: LearningRate
) -> StreamingRule:
    """μ-EigenGame with Riemannian gradients and players that move at once.

    Gemp et al. 2022, "EigenGame Unloaded: When playing games is better than optimizing",
    Algorithm 1 on one device: every player follows

        ∇_i = Σ v_i − Σ_{j<i} (v_iᵀ Σ v_j) v_j,  Σ = XᵀX / b,

    projected onto the tangent space of the sphere at v_i, and is normalised after its step. It is
    linear in Σ: a batch of any size, one row too, is right on average, where ``eigengame`` divides
    one estimate by another. It is Sanger's rule without its radial part (j = i), which the sphere
    makes up for. An update takes O(k · features) a row, and O(k² (b + features)) if there are
    several.

    Args:
        num_inputs: Features of an observation.
        num_components: k.
        learning_rate: η, or a schedule of it, in units of one over a variance.

    Returns:
        The rule. Models are combined by the projection average of the players' spans.

    Raises:
        InputError: Unless 1 ≤ k ≤ features and a fixed rate is positive; from an update, for a
            batch of another width or without rows.
    """
    return game(num_inputs, num_components, learning_rate, unbiased_gradients)


def unbiased_gradients(players: Array, batch: Array) -> Array:
    """∇_i of all players on one mini-batch.

    Args:
        players: Unit vectors v_i as rows, [k, features].
        batch: Centred observations, [b, features].

    Returns:
        [k, features].
    """
    outputs = jnp.matmul(players, batch.T, precision=_HIGHEST)
    if batch.shape[0] == 1:
        # Σ_{j<i} y_j v_j of one row is a running sum, O(k · features).
        return outputs * (batch - sums_of_earlier(outputs * players))
    rewards = jnp.matmul(outputs, batch, precision=_HIGHEST)
    overlaps = jnp.tril(jnp.matmul(outputs, outputs.T, precision=_HIGHEST), k=-1)
    gradients: Array = rewards - jnp.matmul(overlaps, players, precision=_HIGHEST)
    return gradients / batch.shape[0]
