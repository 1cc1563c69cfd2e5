"""Vectors as rows: orthonormal bases, and a gradient step from a basis."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.errors import require
from rlreps.streaming.rules.base import LearningRateRule, StreamingRule
from rlreps.streaming.rules.combining import online_em_average, projection_average

_UNITS = 16.0
"""Residuals shorter than this many units of rounding of the whole row count as zero."""


class VectorState(NamedTuple):
    """The state of a rule that keeps one vector per component.

    Attributes:
        step: Number of updates, [] (int32).
        rows: The components' vectors, [k, features].
    """

    step: Array
    rows: Array


@dataclasses.dataclass(frozen=True)
class VectorRule(LearningRateRule):
    """A rule on one vector per component, from a random orthonormal start.

    The projection average of the vectors' spans combines models.
    """

    def init(self, key: Array) -> VectorState:
        rows = jax.random.normal(key, (self.num_components, self.num_inputs))
        return VectorState(jnp.zeros((), jnp.int32), orthonormalize(rows))

    def components(self, state: VectorState) -> Array:
        return state.rows.T

    def combine(self, states: VectorState, weights: Array) -> VectorState:
        # One by one: batched calls of LAPACK share a pool of threads. On several CPU devices at
        # once, the calls can wait for each other forever.
        bases = lax.map(orthonormalize, states.rows)
        return VectorState(jnp.max(states.step), projection_average(bases, weights))


def mean_then_qr(rule: StreamingRule, states: Any, weights: Array) -> Any:
    """Combine models on orthonormal vectors by the QR factor Q of their mean.

    This is the baseline of Amid & Warmuth 2020, who know no systematic way to combine orthonormal
    matrices. ``projection_average`` and the mean of second moments, which the rules of rlreps use,
    are extensions. The energies of incremental PCA are lost and set to one, as in the authors'
    code. Arguments are those of ``StreamingRule.combine``.

    Raises:
        InputError: If the rule's rows are not orthonormal.
    """
    # The stored inverse Gram matrix of a factor would no longer match its rows.
    orthonormal = not hasattr(states, "inverse_gram")
    require(orthonormal, "a rule on orthonormal vectors", type(rule).__name__)
    combined = rule.combine(states, weights)
    if hasattr(combined, "energies"):
        combined = combined._replace(energies=jnp.ones_like(combined.energies))
    return combined._replace(rows=orthonormalize(online_em_average(states.rows, weights)))


def orthonormalize(rows: Array) -> Array:
    """Compute the QR factor Q of rowsᵀ with a positive diagonal of R, as rows (Gram-Schmidt).

    Args:
        rows: Of full rank, [k, features].

    Returns:
        Orthonormal rows, [k, features]; row i lies in the span of the first i + 1.
    """
    basis, upper = jnp.linalg.qr(rows.T)
    signs = jnp.where(jnp.diagonal(upper) < 0.0, -1.0, 1.0).astype(rows.dtype)
    return basis.T * signs[:, None]


def add_outer(rows: Array, coefficients: Array, direction: Array, excess: Array) -> Array:
    """Compute Gram-Schmidt of V + w dᵀ in closed form, if its Gram matrix is I + s w wᵀ.

    Row j of the result is

        sqrt(α_{j−1} / α_j) (v_j + (w_j / α_{j−1}) (d − s Σ_{i<j} w_i v_i)),
        α_j = 1 + s Σ_{i≤j} w_i²,

    in O(k · features), while a QR decomposition takes O(k² · features). The sum over earlier rows
    uses the old rows, so no large terms cancel, even in a long step, and rounding does not
    accumulate: float32 rows are orthonormal to 1e-6 after a million steps, as after one.

    Args:
        rows: V, orthonormal rows, [k, features].
        coefficients: w, [k].
        direction: d, [features].
        excess: s ≥ 0, [].

    Returns:
        Orthonormal rows, [k, features], equal to ``orthonormalize(V + w dᵀ)``.
    """
    squares = excess * jnp.square(coefficients)
    alphas = 1.0 + jnp.cumsum(squares)
    before = jnp.concatenate([jnp.ones_like(alphas[:1]), alphas[:-1]])
    weighted = coefficients[:, None] * rows
    earlier = sums_of_earlier(weighted)
    moved = rows + (coefficients / before)[:, None] * (direction[None, :] - excess * earlier)
    return jnp.sqrt(before / alphas)[:, None] * moved


def sums_of_earlier(rows: Array) -> Array:
    """Compute Σ_{i<j} of rows [k, features], for every j."""
    # On a CPU, XLA sums prefixes in O(k² · features): ten times slower than a loop at k = 20.
    sums: Array = lax.platform_dependent(
        rows, cpu=_add_one_by_one, default=lambda rows: jnp.cumsum(rows, axis=0) - rows
    )
    return sums


def _add_one_by_one(rows: Array) -> Array:
    start = jnp.zeros_like(rows[0])
    sums: Array = lax.scan(lambda total, row: (total + row, total), start, rows)[1]
    return sums


def epsilon(array: Array) -> float:
    """Return one unit of rounding of an array's type, relative to one."""
    kind: Any = jnp.finfo  # Knows bfloat16, unlike NumPy's.
    return float(kind(array.dtype).eps)


def rounding_length(rows: Array) -> Array:
    """Return the length, [], below which the residual of a projection of rows [...] is rounding."""
    length: Array = _UNITS * epsilon(rows) * jnp.linalg.norm(rows)
    return length


def without_rounding(residual: Array, row: Array) -> Array:
    """Return the residual of a row [features], or zeros if it is rounding.

    A long step along a rounding error would turn components into directions in which no row has a
    part.
    """
    return jnp.where(
        jnp.linalg.norm(residual) > rounding_length(row), residual, jnp.zeros_like(residual)
    )
