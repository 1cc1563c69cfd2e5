"""Targets of auxiliary tasks: discounted sums along sequences of replay, standardised.

Targets are centred by running means and divided by one running standard deviation, so that the
weight of a loss has no unit. This suits every objective: column means would make the constant
function a principal component, and a common factor changes no subspace.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.agents.replay import Window
from rlreps.numerics import DecayedMean

_ROWS_A_PASS = 8
"""Number of a sequence's rows that are added in one pass over the sums."""

_RATE = 0.01
"""Weight of a batch in the running averages."""

_RELATIVE_FLOOR = 1e-5
"""Columns with a smaller standard deviation, relative to the means, are constant up to rounding."""


def monte_carlo_targets(cumulants: Array, discounts: Array, window: Window) -> Array:
    """Compute Σ_{j=0}^m γ_k^j c_k(s_j), [b, t], along sequences.

    s_0 ... s_m are the observations of a sequence's first episode up to the last one seen. The sum
    is exact if the task ended at s_m, since nothing follows. A time limit or the sequence's end
    cuts the sum: the rest is taken as 0, an error of γ_k^{m+1} ψ_k(s_{m+1}). For sequences of l
    rows that no episode's end cuts, the targets are unbiased for Σ_{j<l} γ^j P^j c. They fall short
    of ψ by (γP)^l ψ: at most a share γ^l of the largest |c| / (1 − γ).

    Args:
        cumulants: c at every row, [b, l, t]; rows beyond the episode are ignored.
        discounts: γ, [t].
        window: Which rows belong to the episode of the first row.
    """
    length = cumulants.shape[1]

    # Compute G_j = c(s_j) + γ G_{j+1} row by row from the end. Otherwise XLA would store all
    # [b, l, t] products in an array as large as the cumulants. XLA fuses several rows into one
    # pass.
    def add(index: Array, sums: Array) -> Array:
        row = length - 1 - index
        values = lax.dynamic_index_in_dim(cumulants, row, 1, keepdims=False)
        counts = lax.dynamic_index_in_dim(window.seen, row, 1)
        return jnp.where(counts, values, 0.0) + discounts[None] * sums

    start = jnp.zeros_like(cumulants[:, 0])
    sums: Array = lax.fori_loop(0, length, add, start, unroll=min(length, _ROWS_A_PASS))
    return sums


class TargetMoments(NamedTuple):
    """Statistics of targets.

    Attributes:
        mean: Each column's mean, [t].
        variance: The variance within a batch, averaged over columns, [].
    """

    mean: Array
    variance: Array


def standardise_targets(moments: DecayedMean, targets: Array) -> tuple[Array, DecayedMean]:
    """Subtract each column's running mean, divide all columns by one running standard deviation.

    All columns share one deviation, so that they keep their relative sizes and the principal
    subspace stays that of the centred Ψ. The division makes the weight of a loss independent of the
    targets' unit. Mean and deviation come from earlier batches, so that the rows of a batch stay
    independent of each other; with the batch's own mean they would not be independent. The first
    batch uses its own mean and deviation.

    Args:
        moments: Averages over earlier batches.
        targets: ψ of this batch, [b, t].

    Returns:
        The standardised targets, and the averages with this batch.
    """
    batch_mean = jnp.mean(targets, axis=0)
    batch_variance = jnp.mean(jnp.square(targets - batch_mean[None]))
    updated = moments.add(TargetMoments(batch_mean, batch_variance), _RATE)
    started = moments.weight > 0.0
    held: DecayedMean = jax.tree.map(partial(jnp.where, started), moments, updated)
    mean, variance = held.mean()
    floor = _RELATIVE_FLOOR**2 * jnp.mean(jnp.square(mean)) + float(np.finfo(np.float32).tiny)
    return (targets - mean[None]) / jnp.sqrt(variance + floor), updated
