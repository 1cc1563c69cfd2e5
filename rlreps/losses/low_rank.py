"""Low-rank factorisations f(s)ᵀg(t) of the density ratio M̃ of pairs, and of successor measures.

Symbols as in ``rlreps.losses.pairs``. The best factorisation of rank d in L2(p x p⁺) is the
truncated singular value decomposition M̃ ≈ Σ_k σ_k u_k v_kᵀ. If M̃ is a density ratio, its first
triple is σ = 1 with two constants, since no column is centred. f and g are the two encoders of
``TwoTowers``; with a single encoder of d features, f = g.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable, interval, size
from rlreps.errors import require
from rlreps.losses.base import Encode, Metrics, Params, with_gradient_of
from rlreps.losses.pairs import PairObjective, TowardsAverages, independent_products, nesting
from rlreps.numerics import DecayedMean, matmul
from rlreps.operators import Operator, Weights, act, points_of


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class SpectralContrastive(PairObjective):
    """−2 E[f(s)ᵀg(s⁺)] + E_{s⊥t}[(f(s)ᵀg(t))²], t another row's s⁺: ‖fgᵀ − M̃‖² plus a constant.

    HaoChen et al. 2021; with f and g, the low-rank approximation of Ryu et al. 2024. Unbiased for
    two or more rows.

    **Optimum.** Σ_k f_k g_kᵀ = Σ_{k≤d} σ_k u_k v_kᵀ, the constant included; f spans the leading
    left singular functions. With f = g and p = p⁺ (a stationary source): the leading *positive*
    eigenpairs of the symmetrised M̃; more features than these add nothing. Not ordered.
    """

    title: ClassVar[str] = "spectral contrastive"

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        del key  # Deterministic given the batch.
        (forward, _), (_, backward) = self.factors(params, encode, batch)
        products = independent_products(forward, forward, backward, backward)
        value = jnp.sum(products) - 2.0 * jnp.mean(jnp.sum(forward * backward, axis=1))
        return value, (state, {})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class NestedLora(PairObjective):
    """NestedLoRA: ``SpectralContrastive`` of the first k features for every k, which orders them.

    Ryu et al. 2024. The published code squares a batch's own moments instead of multiplying
    different rows, which biases it by O(1/b).

    **Optimum.** f_k g_kᵀ = σ_k u_k v_kᵀ for each k, the constant first: ordered. The scale between
    f_k and g_k is free. Gradient descent from a small start leads to √σ_k u_k and √σ_k v_k; f = g
    enforces this scale.

    With an ``operator`` K the rows are single points instead of pairs, f = g, and E[f_k Kf_k] takes
    the place of E[f_k(s) g_k(s⁺)], as in the paper's Section 4.1. The optimum is then √λ_k u_k for
    the eigenfunctions u_k of the largest *positive* eigenvalues λ_k; a feature without a positive
    eigenvalue becomes zero. (Kf)(x) is held constant, and its term counts twice since K is
    symmetric.

    Metrics: ``singular_values``, σ_k = √(E[f_k²] E[g_k²]), [d]; they are λ_k with an operator.

    Attributes:
        operator: K, for eigenfunctions of a symmetric operator; None for pairs of states.
        weights: Importance weights of points, with an operator; None weighs all points equally.
        nesting: ``joint`` minimises the mean over k. ``sequential`` moves feature k by the loss of
            the first k features, with the earlier features held constant. Its gradient is not the
            gradient of any scalar; the value is then the loss of all d.
    """

    operator: Operator | None = size(None, leaf=True)
    weights: Weights | None = size(None)
    nesting: Literal["joint", "sequential"] = "joint"

    title: ClassVar[str] = "NestedLoRA"

    def __post_init__(self) -> None:
        fits = self.weights is None or self.operator is not None
        require(fits, "no weights without an operator", self.weights)

    @property
    def needs_clips(self) -> bool:
        return self.operator is None or self.operator.needs_clips

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute the nested loss; its gradient is the nested gradient, joint or sequential."""
        del key  # Deterministic given the batch.
        if self.operator is None:
            (forward, _), (_, backward) = self.factors(params, encode, batch)
            agreement = jnp.mean(forward * backward, axis=0)
        else:
            forward, images = self._images(self.operator, params, encode, batch)
            backward = forward
            agreement = jnp.mean((2.0 * forward - lax.stop_gradient(forward)) * images, axis=0)
        of_features, of_products = nesting(self.num_features)
        products = independent_products(forward, forward, backward, backward)
        if self.nesting == "joint":
            value = jnp.sum(of_products * products) - 2.0 * jnp.sum(of_features * agreement)
        else:
            # Hold earlier features, so that they do not adapt to later features.
            held, other = lax.stop_gradient((forward, backward))
            earlier = jnp.triu(independent_products(held, forward, other, backward))
            # Feature k occurs twice in a square and is held in one place: hence the factor 2.
            surrogate = 2.0 * jnp.sum(earlier) - 2.0 * jnp.sum(agreement)
            value = with_gradient_of(surrogate, jnp.sum(products) - 2.0 * jnp.sum(agreement))
        squares = jnp.mean(jnp.square(forward), axis=0) * jnp.mean(jnp.square(backward), axis=0)
        return value, (state, {"singular_values": jnp.sqrt(lax.stop_gradient(squares))})

    def _images(
        self, operator: Operator, params: Params, encode: Encode, batch: Batch
    ) -> tuple[Array, Array]:
        """Compute f and Kf times the roots of the weights, [b, d] each; Kf is held constant."""
        self.require_rows(batch.num_rows)
        features = self.features(params, encode, points_of(batch.inputs))
        held = lax.stop_gradient(params)
        action = act(
            operator,
            lambda inputs: encode(held, inputs),
            batch.inputs,
            features=lax.stop_gradient(features),
            targets=batch.targets,
            weights=self.weights,
        )
        roots = jnp.sqrt(len(features) * action.shares)
        return roots * features, roots * lax.stop_gradient(action.images)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class TDLowRank(TowardsAverages):
    """TD low rank, one-step forward-backward for a fixed policy: ``td_loss`` on single transitions.

    Blier, Tallec & Ollivier 2021, Theorem 6; Touati & Ollivier 2021, Eq. 8. Rows are pairs (s, s')
    of consecutive states. The loss is (1 − γ)² times the published loss with F = f / (1 − γ), so
    that the size of f does not depend on γ. The states s⁺ are the s' of the batch's other rows. f
    is never trained at terminal states: use chains without them.

    **Optimum.** fgᵀ approximates M̃ = M / p⁺ with M = (1 − γ) Σ_k γᵏ P^{k+1}. With tabular
    functions and p stationary, f spans the leading invariant subspace of M P*, where P* is the
    chain in reversed time, P*(s, t) = p(t) P(t, s) / p(s). fgᵀ is the projection of M̃ on this
    subspace for which the error δ satisfies E[f (δ − γPδ)] = 0. The left singular functions of M̃
    span the leading subspace of M M* instead. For a reversible chain P* = P, and both subspaces
    consist of eigenfunctions of P: f takes the eigenfunctions with the d largest λ²/(1 − γλ), and
    the singular value decomposition takes those with the d largest |λ|/(1 − γλ). If these are the
    same d eigenfunctions, as for λ ≥ 0, fgᵀ is the truncated singular value decomposition of M̃.
    If only one eigenvalue of a complex pair of M P* is among the d leading ones, no fixed point
    exists. The constant function counts among the eigenfunctions. Not ordered.

    The gradient is a semi-gradient: it is not the gradient of any scalar.

    Attributes:
        discount: γ.
        orthonormality: Weight of ``orthonormality_loss``. Of all factorisations with the same
            product fgᵀ, it selects a factorisation with orthonormal g. It does not change the
            optimal product if p⁺ is positive at d states or more.
    """

    discount: float = interval("[0, 1)", 0.95)
    orthonormality: float = interval("[0, inf)", 0.0)

    title: ClassVar[str] = "TD low rank"

    def parts(self, params: Params, encode: Encode, batch: Batch) -> tuple[Array, Array, Array]:
        """Compute f at the first states, g at the second and f at the second, [b, d] each."""
        (first, second), (_, reached) = self.factors(params, encode, batch)
        return first, reached, second

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: DecayedMean, key: Array
    ) -> tuple[Array, tuple[DecayedMean, Metrics]]:
        """Compute the loss; ``batch.targets`` are ignored."""
        del key  # Deterministic given the batch.
        held, after = self.target(params, state)
        forward, backward, _ = self.parts(params, encode, batch)
        # ``td_loss`` holds both constant, as it does the target's parameters.
        _, next_backward, next_forward = self.parts(held, encode, batch)
        rest = 1.0 - self.discount
        differences = td_loss(
            forward / rest,
            backward,
            backward,
            next_forward / rest,
            next_backward,
            self.discount,
            1.0 - jnp.eye(len(forward), dtype=forward.dtype),
        )
        value = rest**2 * differences + self.orthonormality * orthonormality_loss(backward)
        return value, (after, {})


def td_loss(
    forward: Array,
    backward: Array,
    reached: Array,
    next_forward: Array,
    next_backward: Array,
    discount: float | Array,
    pairs: Array | None = None,
) -> Array:
    """Compute E[(F(s, a)ᵀB(s⁺) − γ F̄(s', a')ᵀB̄(s⁺))²] − 2 E[F(s, a)ᵀB(s')], [].

    The loss of forward-backward representations for a fixed policy (Blier, Tallec & Ollivier 2021,
    Theorem 6; Touati & Ollivier 2021, Eq. 8). Its gradient in F and B is the gradient of the
    squared distance from the Bellman target in L2(rho_sa x rho). It vanishes if FᵀB is the measure.

    Args:
        forward: F at rows (s, a), [b, d].
        backward: B at states s⁺, [g, d].
        reached: B at the states s' that follow the rows, [b, d].
        next_forward: F̄ at (s', a'), zero if the episode terminated, [b, d]; held constant.
        next_backward: B̄ at the states s⁺, [g, d]; held constant.
        discount: γ.
        pairs: Weight of each pair of a row and a state, [b, g]; None is 1.

    Returns:
        The loss, means over pairs and over rows.
    """
    target = lax.stop_gradient(matmul(next_forward, next_backward.T)) * discount
    squares = jnp.square(matmul(forward, backward.T) - target)
    weights = jnp.ones_like(squares) if pairs is None else pairs
    first = jnp.sum(weights * squares) / jnp.sum(weights)
    loss: Array = first - 2.0 * jnp.mean(jnp.sum(forward * reached, axis=1))
    return loss


def orthonormality_loss(backward: Array) -> Array:
    """Estimate ‖E[BBᵀ] − I‖² − d without bias from independent rows B [b, d], [].

    The regulariser of Touati & Ollivier 2021 (App. B), estimated over pairs of different rows.
    """
    squares = jnp.sum(independent_products(backward, backward, backward, backward))
    return squares - 2.0 * jnp.mean(jnp.sum(jnp.square(backward), axis=1))
