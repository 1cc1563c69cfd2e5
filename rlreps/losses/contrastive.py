"""Contrastive objectives: f(s)ᵀg(t) approximates the logarithm of the density ratio M̃ of pairs.

Symbols as in ``rlreps.losses.pairs``. f and g are the two encoders of ``TwoTowers``, or f = g is a
single encoder. The objectives factorise the logarithm of M̃, not M̃ itself, so optimal features
need not span the singular functions of M̃.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval
from rlreps.losses.base import Encode, Metrics, Params
from rlreps.losses.pairs import PairObjective, TowardsAverages
from rlreps.numerics import DecayedMean, matmul


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class InfoNCE(PairObjective):
    """−E[f(s)ᵀg(s⁺) − log mean_j exp f(s)ᵀg(s⁺_j)] over the batch's states s⁺_j.

    The softmax form of contrastive successor measures; Eysenbach et al. 2022 classify pairs one by
    one instead. The value is the usual cross-entropy minus log b. Its optimum tends to minus the
    mutual information of s and s⁺ as b grows; the value is never below −log b.

    **Optimum.** f(s)ᵀg(t) = log M̃(s, t) + c(s) for any function c and any number of rows, if d
    features can represent it. This optimum exists only if M̃ > 0. Not ordered.
    """

    title: ClassVar[str] = "InfoNCE"

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        del key  # Deterministic given the batch.
        (forward, _), (_, backward) = self.factors(params, encode, batch)
        identity = jnp.eye(len(forward), dtype=forward.dtype)
        return _cross_entropy(matmul(forward, backward.T), identity), (state, {})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class TDInfoNCE(TowardsAverages):
    """InfoNCE of the successor measure from single transitions, by temporal differences.

    Zheng et al. 2024: (1 − γ) CE(f(s)ᵀg(s'_j), own) + γ CE(f(s)ᵀg(t_j), w), CE a cross-entropy.
    ``own`` labels the row's own s', w the softmax of f̄(s')ᵀḡ(t_j), held constant. Rows are pairs
    (s, s') of consecutive states. The random t_j are the batch's s'_j, so one CE takes the labels
    (1 − γ) own + γ w. The w are normalised in the batch, which biases them by O(1/b).

    **Optimum.** If p is stationary, the optimum of ``InfoNCE`` for M̃ = (1 − γ) Σ_k γᵏ
    P^{k+1} / p⁺, the density ratio of the normalised successor measure. Not ordered.

    The gradient is a semi-gradient: it is not the gradient of any scalar.

    Attributes:
        discount: γ.
    """

    discount: float = interval("[0, 1)", 0.95)

    title: ClassVar[str] = "TD InfoNCE"

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: DecayedMean, key: Array
    ) -> tuple[Array, tuple[DecayedMean, Metrics]]:
        del key  # Deterministic given the batch.
        held, after = self.target(params, state)
        (forward, _), (_, backward) = self.factors(params, encode, batch)
        (_, next_forward), (_, next_backward) = self.factors(held, encode, batch)
        weights = jax.nn.softmax(matmul(next_forward, next_backward.T), axis=1)
        own = jnp.eye(len(forward), dtype=forward.dtype)
        # The labels are held constant, like the parameters that they come from.
        labels = lax.stop_gradient((1.0 - self.discount) * own + self.discount * weights)
        return _cross_entropy(matmul(forward, backward.T), labels), (after, {})


def _cross_entropy(logits: Array, labels: Array) -> Array:
    """Compute the mean cross-entropy of logits [b, b] under labels [b, b], minus log b."""
    surprise = -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits, axis=1), axis=1))
    return surprise - jnp.log(jnp.asarray(len(logits), logits.dtype))
