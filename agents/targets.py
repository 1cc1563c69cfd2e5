"""Targets of auxiliary tasks: discounted sums of cumulants along replayed sequences.

Symbols: s_0 ... s_m are the observations of a sequence's first episode up to the last one seen, c_k
the cumulants, γ_k the columns' discounts.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.agents.network import as_inputs
from rlreps.agents.replay import Window
from rlreps.cumulants import Cumulants
from rlreps.numerics import DecayedMean

_ROWS_A_PASS = 8
"""Number of a sequence's rows that are added in one pass over the sums."""

_RATE = 0.01
"""Weight of a batch in the running averages."""

_RELATIVE_FLOOR = 1e-5
"""Columns with a smaller standard deviation, relative to the means, are constant up to rounding."""


class ColumnParams(NamedTuple):
    """Parameters of task columns.

    Attributes:
        cumulants: Parameters of the cumulants' family.
        discounts: γ, [t], each uniform over an interval.
    """

    cumulants: Any
    discounts: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskColumns:
    """Columns of an auxiliary task: cumulants and discounts.

    Column k has a cumulant c_k, a function of observations, and a discount γ_k, both drawn once at
    the start. It asks for ψ_k(s) = E Σ_{j≥0} γ_k^j c_k(S_j), S_0 = s, under the policies that
    filled the replay. Columns with larger discounts are larger and weigh more, as in the successor
    measure.

    Attributes:
        family: The cumulants.
        num_tasks: t.
        discounts: The interval of the discounts.
        rank: Number of axes of one observation, which are flattened.
    """

    family: Cumulants
    num_tasks: int
    discounts: tuple[float, float]
    rank: int

    def init(self, key: Array) -> ColumnParams:
        """Draw the columns."""
        cumulant_key, discount_key = jax.random.split(key)
        discounts = jax.random.uniform(
            discount_key, (self.num_tasks,), jnp.float32, *self.discounts
        )
        return ColumnParams(self.family.init(cumulant_key, self.num_tasks), discounts)

    def apply(self, params: ColumnParams, observations: Array) -> Array:
        """Compute cumulants [..., t] (float32) of observations [..., *observation].

        Bytes are divided by 255, as the torso sees them.
        """
        leading = observations.shape[: observations.ndim - self.rank]
        flat = as_inputs(observations).reshape(*leading, -1)
        return self.family.apply(params.cumulants, flat)


def monte_carlo_targets(cumulants: Array, discounts: Array, window: Window) -> Array:
    """Compute Σ_{j=0}^m γ_k^j c_k(s_j), [b, t].

    The sum is exact if the task ended at s_m, since nothing follows. A time limit or the sequence's
    end cuts the sum: the rest is taken as 0, an error of γ_k^{m+1} ψ_k(s_{m+1}). For sequences of
    l rows that no episode's end cuts, the targets are Σ_{j<l} γ^j P^j c without bias, short of ψ by
    (γP)^l ψ: at most a share γ^l of the largest |c| / (1 − γ).

    Args:
        cumulants: c at every row, [b, l, t]; rows beyond the episode are ignored.
        discounts: γ, [t].
        window: Which rows belong to the first one's episode.
    """
    length = cumulants.shape[1]

    # Row by row from the end, G_j = c(s_j) + γ G_{j+1}. XLA would store all [b, l, t] products
    # at once in an array as large as the cumulants. It fuses several rows into one pass.
    def add(index: Array, sums: Array) -> Array:
        row = length - 1 - index
        values = lax.dynamic_index_in_dim(cumulants, row, 1, keepdims=False)
        counts = lax.dynamic_index_in_dim(window.seen, row, 1)
        return jnp.where(counts, values, 0.0) + discounts[None] * sums

    start = jnp.zeros_like(cumulants[:, 0])
    sums: Array = lax.fori_loop(0, length, add, start, unroll=min(length, _ROWS_A_PASS))
    return sums


class Moments(NamedTuple):
    """Statistics of targets.

    Attributes:
        mean: Each column's mean, [t].
        variance: The variance within a batch, averaged over columns, [].
    """

    mean: Array
    variance: Array


def init_moments(num_tasks: int) -> DecayedMean:
    """Make averages of the ``Moments`` of t columns before the first batch."""
    zeros = Moments(jnp.zeros((num_tasks,), jnp.float32), jnp.zeros((), jnp.float32))
    return DecayedMean(zeros, jnp.zeros((), jnp.float32))


def standardise(moments: DecayedMean, targets: Array) -> tuple[Array, DecayedMean]:
    """Subtract each column's running mean and divide all by one running standard deviation.

    All columns share one deviation, so that they keep their relative sizes and the principal
    subspace stays that of the centred Ψ. Dividing at all makes a weight mean the same for all
    tasks. Averages are those of earlier batches: given these, rows of a batch stay independent of
    each other, which a mean of their own would undo. The first batch takes its own.

    Args:
        moments: Averages over the batches before.
        targets: ψ of this batch, [b, t].

    Returns:
        The standardised targets, and the averages with this batch.
    """
    batch_mean = jnp.mean(targets, axis=0)
    batch_variance = jnp.mean(jnp.square(targets - batch_mean[None]))
    updated = moments.add(Moments(batch_mean, batch_variance), _RATE)
    started = moments.weight > 0.0
    held: DecayedMean = jax.tree.map(partial(jnp.where, started), moments, updated)
    mean, variance = held.mean()
    floor = _RELATIVE_FLOOR**2 * jnp.mean(jnp.square(mean)) + float(np.finfo(np.float32).tiny)
    return (targets - mean[None]) / jnp.sqrt(variance + floor), updated
