"""Targets of no unit: running averages that centre and scale the columns of auxiliary tasks."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

_DECAY = 0.99
_RELATIVE_FLOOR = 1e-5
"""Standard deviation below which, relative to the means, columns are constant but for rounding."""


class TargetMoments(NamedTuple):
    """Decayed sums over batches, which divided by their weight are averages without start-up bias.

    Attributes:
        mean: Of each column's mean, [t].
        variance: Of the variance within a batch, averaged over columns, [].
        weight: Total weight behind them, []; 0 before the first batch.
    """

    mean: Array
    variance: Array
    weight: Array


def init_moments(num_tasks: int) -> TargetMoments:
    """No batches yet, of t columns."""
    zero = jnp.zeros((), jnp.float32)
    return TargetMoments(jnp.zeros((num_tasks,), jnp.float32), zero, zero)


def standardise(moments: TargetMoments, targets: Array) -> tuple[Array, TargetMoments]:
    """Targets [b, t] less their column's running mean, over one running standard deviation for all.

    One deviation, so that columns keep their relative sizes and the principal subspace stays that
    of the centred Ψ; none of its own would make a weight mean the same for all tasks. Averages are
    those of the batches before: given these, rows of a batch stay independent of each other, which
    their own mean would undo. The first batch has none before it and takes its own.

    Args:
        moments: Averages over the batches before.
        targets: ψ of this batch.

    Returns:
        The standardised targets, and the averages with this batch.
    """
    batch_mean = jnp.mean(targets, axis=0)
    # About the batch's own mean: while bootstrapped targets grow, their drift is no spread.
    batch_variance = jnp.mean(jnp.square(targets - batch_mean[None]))
    updated = TargetMoments(
        mean=_DECAY * moments.mean + (1.0 - _DECAY) * batch_mean,
        variance=_DECAY * moments.variance + (1.0 - _DECAY) * batch_variance,
        weight=_DECAY * moments.weight + (1.0 - _DECAY),
    )
    started = moments.weight > 0.0
    held = TargetMoments(
        *(jnp.where(started, old, new) for old, new in zip(moments, updated, strict=True))
    )
    mean = held.mean / held.weight
    floor = _RELATIVE_FLOOR**2 * jnp.mean(jnp.square(mean)) + float(np.finfo(np.float32).tiny)
    scale = jnp.sqrt(held.variance / held.weight + floor)
    return (targets - mean[None]) / scale, updated
