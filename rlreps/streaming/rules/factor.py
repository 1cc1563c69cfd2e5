"""Krasulina's update without orthonormality, explicit and implicit (Amid & Warmuth 2020).

A rule keeps a full-rank factor C [features, k], and tracks its pseudo-inverse C† = (CᵀC)⁻¹Cᵀ. The
state holds the k x k inverse Gram matrix P = (CᵀC)⁻¹ and C as its rows [k, features]. C† = PCᵀ then
needs no memory of its own, and one row's update costs O(k · features), plus k².
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, interval
from rlreps.numerics import matmul
from rlreps.streaming.rules.base import AnchoredRule, LearningRateRule
from rlreps.streaming.rules.combining import online_em_average
from rlreps.streaming.rules.orthonormal import epsilon, orthonormalize, without_rounding
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

    # A factor that starts small grows by orders of magnitude in its first updates. Rounding errors
    # in the inverse then make float32 diverge from float64.
    first_anchored: ClassVar[int] = 256

    _: dataclasses.KW_ONLY
    initial_scale: float | None = interval("(0, inf)", None)

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
    """Compute (CᵀC)⁻¹ [k, k] from rows Cᵀ; non-finite if C is rank-deficient to rounding."""
    gram = matmul(rows, rows.T)
    # Scale to a unit diagonal: otherwise a matrix with columns of very different lengths looks
    # rank-deficient.
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


@configurable
@dataclasses.dataclass(frozen=True)
class ExplicitKrasulina(FactorRule):
    """Gradient descent on E‖x − CC†x‖²/2 over all factors C.

        C' = C + η (x − Cy) yᵀ,  y = C†x,

    or the mean over a batch of several rows. This is the update after Eq. 12 of Amid & Warmuth
    2020, who call it "Sanger"; the generalised Hebbian algorithm of Sanger 1989 is ``Sanger``. As
    in their paper, C† is the pseudo-inverse of the current C; one row's update tracks it in O(k ·
    features) (``factor``). Components are an orthonormal basis of C's span.

    η is in units of one over a variance while C's columns have unit length. The update of s C with
    rate s² η is s times the update of C with rate η. A small initial C therefore needs an η that is
    smaller by the square of the scale. If η ‖y‖² is large, the step overshoots: C becomes large,
    and later steps hardly turn it.
    """

    title: ClassVar[str] = "explicit Krasulina"

    def step_row(self, state: FactorState, row: Array) -> FactorState:
        hidden = coefficients(state, row)
        residual = row - matmul(hidden, state.rows)
        step = self.rate(state, row) * without_rounding(residual, row)
        return add_outer_residual(state, hidden, step)

    def step_batch(self, state: FactorState, batch: Array) -> FactorState:
        rate = self.rate(state, batch) / batch.shape[0]
        hidden = matmul(state.pseudo_inverse, batch.T)
        residuals = batch - matmul(hidden.T, state.rows)
        rows = state.rows + rate * matmul(hidden, residuals)
        return FactorState(state.step + 1, rows, inverse_gram(rows))


@configurable
@dataclasses.dataclass(frozen=True)
class ImplicitKrasulina(FactorRule):
    """Krasulina's update as an implicit step: the gradient is taken at the new factor.

    Amid & Warmuth 2020. With y = C†x, the new factor minimises ‖C' − C‖²/(2η) + ‖x − C'y‖²/2
    (Eq. 10):

        C' = C + η / (1 + η ‖y‖²) (x − Cy) yᵀ                         (one row, Eq. 13)
        C' = (C + (η/b) XᵀYᵀ)(I + (η/b) YYᵀ)⁻¹,  Y = C†Xᵀ             (b rows, Eq. 12)

    where η multiplies the mean over the batch. It is a step of online EM for probabilistic PCA.
    Meyer's rank-one update tracks C† (``factor``), with anchors against rounding, so a row costs
    O(k · features).

    C' depends on η through η / ‖C‖² alone, and C grows until the two balance: from a small start
    the learning rate hardly matters. Components are an orthonormal basis of C's span; the rule does
    not distinguish them within it.

    Attributes:
        initial_scale: Standard deviation of C's entries at the start; None is 1/√features.
    """

    title: ClassVar[str] = "implicit Krasulina"

    _: dataclasses.KW_ONLY
    initial_scale: float | None = interval("(0, inf)", 1e-5)

    def step_row(self, state: FactorState, row: Array) -> FactorState:
        hidden = coefficients(state, row)
        rate = self.rate(state, row)
        step_size = rate / (1.0 + rate * jnp.sum(jnp.square(hidden)))
        residual = row - matmul(hidden, state.rows)
        return add_outer_residual(state, hidden, step_size * residual)

    def step_batch(self, state: FactorState, batch: Array) -> FactorState:
        hidden = matmul(state.pseudo_inverse, batch.T)
        residuals = batch - matmul(hidden.T, state.rows)
        rows = state.rows + matmul(_damped(hidden, self.rate(state, batch)), residuals)
        return FactorState(state.step + 1, rows, inverse_gram(rows))


def _damped(hidden: Array, rate: Array) -> Array:
    """Compute ((b/η) I + YYᵀ)⁻¹ Y of hidden variables Y [k, b], by the smaller of two systems."""
    k, rows = hidden.shape
    left, right = (hidden, hidden.T) if k <= rows else (hidden.T, hidden)
    inner = matmul(left, right)
    # Rounding of the products must not exceed the term that makes them invertible.
    least = 10.0 * epsilon(hidden) * jnp.trace(inner)
    ridge = jnp.maximum(rows / rate, least)
    system = inner + ridge * jnp.eye(len(inner), dtype=inner.dtype)
    if k <= rows:
        return solve_positive_definite(system, hidden)
    return solve_positive_definite(system, hidden.T).T
