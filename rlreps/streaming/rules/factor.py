"""A full-rank factor C [features, k] with its pseudo-inverse C† = (CᵀC)⁻¹Cᵀ, tracked by updates.

The state holds the k x k inverse Gram matrix P = (CᵀC)⁻¹ and C as its rows [k, features]. C† = PCᵀ
then needs no memory of its own, and one row's update costs O(k · features), plus k².
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.errors import require_interval
from rlreps.numerics import matmul
from rlreps.streaming.rules.base import AnchoredRule, LearningRateRule
from rlreps.streaming.rules.combining import online_em_average
from rlreps.streaming.rules.orthonormal import orthonormalize
from rlreps.subspace.linalg import solve_positive_definite


class FactorState(NamedTuple):
    """The state of a rule without orthonormality.

    Attributes:
        step: Number of updates, [] (int32).
        rows: Cᵀ, [k, features].
        inverse_gram: P = (CᵀC)⁻¹, [k, k].
    """

    step: Array
    rows: Array
    inverse_gram: Array

    @property
    def pseudo_inverse(self) -> Array:
        """C†, [k, features]."""
        return matmul(self.inverse_gram, self.rows)


@dataclasses.dataclass(frozen=True)
class FactorRule(AnchoredRule, LearningRateRule):
    """A rule on C and P. The online-EM average combines models.

    Attributes:
        initial_scale: Standard deviation of C's entries at the start; None is 1/√features, for
            columns of about unit length.
    """

    # A factor that starts small grows by orders of magnitude in its first updates. Rounding in
    # the inverse then leads float32 elsewhere than float64.
    first_anchored: ClassVar[int] = 256

    _: dataclasses.KW_ONLY
    initial_scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_interval("initial_scale", self.initial_scale, "(0, inf)")

    def init(self, key: Array) -> FactorState:
        default = 1.0 / math.sqrt(self.num_inputs)
        scale = default if self.initial_scale is None else self.initial_scale
        rows = scale * jax.random.normal(key, (self.num_components, self.num_inputs))
        return FactorState(jnp.zeros((), jnp.int32), rows, inverse_gram(rows))

    def anchor(self, state: FactorState) -> FactorState:
        return state._replace(inverse_gram=inverse_gram(state.rows))

    def components(self, state: FactorState) -> Array:
        """Return an orthonormal basis of C's span, [features, k]."""
        return orthonormalize(state.rows).T

    def combine(self, states: FactorState, weights: Array) -> FactorState:
        rows = online_em_average(states.rows, weights)
        return FactorState(jnp.max(states.step), rows, inverse_gram(rows))


def inverse_gram(rows: Array) -> Array:
    """Compute (CᵀC)⁻¹ [k, k] of rows Cᵀ [k, features]; non-finite if C lacks rank to rounding."""
    gram = matmul(rows, rows.T)
    # Scale to a unit diagonal: otherwise columns of very different lengths look like a matrix
    # that lacks rank.
    lengths = jnp.sqrt(jnp.diagonal(gram))
    scale = lengths[:, None] * lengths[None, :]
    inverse = solve_positive_definite(gram / scale, jnp.eye(len(gram), dtype=gram.dtype)) / scale
    return 0.5 * (inverse + inverse.T)


def coefficients(state: FactorState, row: Array) -> Array:
    """Compute the hidden variables y = C†x, [k], of a row x [features]."""
    return matmul(state.inverse_gram, matmul(state.rows, row))


def add_outer_residual(state: FactorState, hidden: Array, residual: Array) -> FactorState:
    """Compute C + r yᵀ and its inverse Gram matrix, for a residual r orthogonal to C's columns.

    Meyer 1973, Theorem 1 for a new direction (r outside the range of C), which is also equation
    3.2.7 of the Matrix Cookbook: since Cᵀr = 0 the Gram matrix becomes CᵀC + ‖r‖² y yᵀ, whose
    inverse is P − ‖r‖² (Py)(Py)ᵀ / (1 + ‖r‖² yᵀPy).

    Args:
        state: C and P.
        hidden: y, [k].
        residual: r, [features], including any step size.
    """
    energy = jnp.sum(jnp.square(residual))
    direction = matmul(state.inverse_gram, hidden)
    shrinkage = energy / (1.0 + energy * jnp.sum(hidden * direction))
    return FactorState(
        state.step + 1,
        state.rows + hidden[:, None] * residual[None, :],
        state.inverse_gram - (shrinkage * direction)[:, None] * direction[None, :],
    )
