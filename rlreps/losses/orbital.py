"""Eigenfunctions of a positive walk without constraints: orbital minimisation, NeuralEF.

Symbols as in ``rlreps.losses.pairs``. Both objectives need a positive operator: the **lazy walk**
(I + A)/2 of the pairs, which has the same eigenfunctions in the same order, and eigenvalues
(1 + λ)/2 in [0, 1]. With u = φ(s) + φ(s⁺) its form is ⟨φ_l, (I + A)φ_m⟩/2 = E[u_l u_m]/4.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array, lax

from rlreps.batch import Batch
from rlreps.config import configurable
from rlreps.losses.base import Encode, Metrics, Params
from rlreps.losses.pairs import PairObjective, eigenvalues, independent_products, nesting, scales
from rlreps.numerics import matmul


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class OrbitalMinimization(PairObjective):
    """−2 tr K + tr(C K) for K = E_μ[φ (½(I + A)φ)ᵀ] and C = E_μ[φφᵀ]: orthonormal by itself.

    Ryu, Zhou & Wornell 2025. tr(C K) is estimated without bias from pairs of different rows.

    **Optimum.** An orthonormal basis of the d eigenfunctions of largest λ, the constant among them;
    with ``nested``, these eigenfunctions in order, up to sign. The minimum over all d features is
    −Σ_k (1 + λ_k)/2. The scale of an eigenfunction with λ = −1 is arbitrary.

    Metrics: ``eigenvalues`` of A, the Rayleigh quotient of each feature.

    Attributes:
        nested: Whether the loss is averaged over the first k features, k = 1 … d (joint nesting).
    """

    nested: bool = True

    title: ClassVar[str] = "OMM"

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        del key  # Deterministic given the batch.
        first, second = ends = self.ends(params, encode, batch)
        sums = first + second
        of_features, of_products = jnp.ones(()), jnp.ones(())
        if self.nested:
            of_features, of_products = nesting(self.num_features)
        products = independent_products(first, first, sums, sums)
        products = (products + independent_products(second, second, sums, sums)) / 8.0
        forms = jnp.mean(jnp.square(sums), axis=0) / 4.0
        value = jnp.sum(of_products * products) - 2.0 * jnp.sum(of_features * forms)
        return value, (state, {"eigenvalues": eigenvalues(ends)})


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuralEigenfunctions(PairObjective):
    """NeuralEF: feature j has unit scale and maximises K_jj − Σ_{i<j} K_ij² / K_ii, feature i held.

    Deng, Shi & Zhu 2022. K is as in ``OrbitalMinimization``, for features divided by their root
    mean square in the batch. Scale and squares are the batch's own, which biases the loss by
    O(1/b).

    **Optimum.** Up to scale, feature k is the eigenfunction of the k-th largest λ, the constant
    first. Ordered.

    The gradient moves the later feature of each pair, and is not the gradient of any scalar. The
    value is −Σ_j (K_jj − Σ_{i<j} K_ij²/K_ii). Metrics: ``eigenvalues`` of A.
    """

    title: ClassVar[str] = "NeuralEF"

    def loss(
        self, params: Params, encode: Encode, batch: Batch, state: Any, key: Array
    ) -> tuple[Array, tuple[Any, Metrics]]:
        """Compute the penalised sum; its gradient moves the later feature of each pair."""
        del key  # Deterministic given the batch.
        first, second = ends = self.ends(params, encode, batch)
        squares = 0.5 * jnp.mean(jnp.square(first) + jnp.square(second), axis=0)
        sums = (first + second) / scales(squares)[None, :]
        # Hold earlier features, so that they do not adapt to later features.
        forms = matmul(lax.stop_gradient(sums).T, sums) / (4 * len(sums))
        own = jnp.mean(jnp.square(sums), axis=0) / 4.0
        divisors = jnp.square(scales(lax.stop_gradient(own)))[:, None]
        penalties = jnp.triu(jnp.square(forms) / divisors, k=1)
        value = jnp.sum(penalties) - jnp.sum(own)
        return value, (state, {"eigenvalues": eigenvalues(ends)})
