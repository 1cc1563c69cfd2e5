"""Eigenvalues and eigenfunctions that an encoder has learned, estimated from many batches."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.encoders import Encoder, Params
from rlreps.errors import require_positive
from rlreps.operators import Operator, Weights, act
from rlreps.sources.matrix import Source


class Moments(NamedTuple):
    """The two matrices of features under an operator; see ``subspace.ordered`` for their spectra.

    Attributes:
        covariance: Σ = E[u uᵀ], [d, d].
        operator_matrix: Π = E[u (Ku)ᵀ], [d, d].
    """

    covariance: Array
    operator_matrix: Array


def sampled_moments(
    encoder: Encoder,
    params: Params,
    operator: Operator,
    source: Source,
    key: Array,
    *,
    rows: int,
    batches: int,
    weights: Weights | None = None,
) -> Moments:
    """Means of the two matrices over fresh batches, one batch in memory at a time.

    Args:
        encoder: The encoder.
        params: Its parameters.
        operator: K.
        source: Where points come from.
        key: Random key.
        rows: b, points of a batch.
        batches: How many.
        weights: Importance weights of inputs, as in training.

    Returns:
        The moments.

    Raises:
        InputError: For counts below 1, or what the operator or the source has to say.
    """
    require_positive("rows", rows)
    require_positive("batches", batches)

    def one(batch_key: Array) -> Moments:
        batch = source.sample(batch_key, rows, 1)
        action = act(
            operator,
            lambda inputs: encoder.apply(params, inputs),
            batch.inputs,
            targets=batch.targets,
            weights=weights,
        )
        return Moments(action.covariance, action.operator_matrix)

    def add(total: Moments, batch_key: Array) -> tuple[Moments, None]:
        return jax.tree.map(jnp.add, total, one(batch_key)), None

    shapes = jax.eval_shape(one, key)
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    total, _ = lax.scan(add, start, jax.random.split(key, batches))
    moments: Moments = jax.tree.map(lambda leaf: leaf / batches, total)
    return moments
