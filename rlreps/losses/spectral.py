"""Spectral inference networks (Pfau et al. 2019): ordered eigenfunctions of a symmetric operator.

Symbols: u features [b, d], Ku their images under the operator [b, d], Σ = E[u uᵀ], Π = E[u (Ku)ᵀ],
Σ = LLᵀ, Λ = L⁻¹ΠL⁻ᵀ. tr Λ is the sum of the Rayleigh quotients of the orthonormalised features. Its
masked gradient moves the k-th feature by its own quotient alone, so that features come in the order
of their eigenvalues, the smallest first.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from rlreps.errors import require, require_positive
from rlreps.losses.base import Batch, Encode, Metrics, Objective, Params, require_features
from rlreps.losses.covariance_jacobian import CovarianceJacobian
from rlreps.operators import Operator
from rlreps.operators.action import Action, Weights, act
from rlreps.subspace.ordered import first_dependent_feature, masked_gradient, ordered_spectrum


class SpectralState(NamedTuple):
    """Moving averages, not corrected for their start at zero.

    Attributes:
        covariance: Of Σ, [d, d].
        operator_matrix: Of Π, [d, d].
        jacobian: Of the parts of ∂Σ/∂θ that the masked gradient takes; () with β = 1.
        weight: Total weight behind them, []; 0 before the first update.
    """

    covariance: Array
    operator_matrix: Array
    jacobian: Any
    weight: Array


def spectral(
    num_features: int,
    operator: Operator,
    *,
    averaging_rate: float = 1.0,
    parameters: Params | None = None,
    separate: bool = False,
    jacobian_rows_at_once: int | None = None,
    weights: Weights | None = None,
) -> Objective:
    """Minimises tr Λ by its masked gradient, so that feature k becomes the k-th eigenfunction.

    Eigenvalues are sought from the smallest; for the largest ones negate the operator. The scalar
    is tr Λ, from Σ as averaged and the batch's Π; metrics hold ``eigenvalues`` [d].

    With β = 1 (``averaging_rate``) Σ and Π are the batch's own. The gradient is biased then, by
    O(1/b), but where the operator's action is exact at each point, as a Hamiltonian's is, it
    vanishes at the eigenfunctions on every batch: nothing is left to average. With β < 1 it is
    E[∂u·Ku]L⁻ᵀdiag(L)⁻¹ − J̄·L⁻ᵀtriu(Λdiag(L)⁻¹), where L is of the average Σ̄ and J̄ the average
    of E[u ∂u]: unbiased as the averages settle, for operators that are themselves sampled, at the
    price of the noise of the two terms, which no longer cancels.

    Deviations from the paper: averages are corrected for their start at zero; of ∂Σ/∂θ only the
    part in which the later of two features moves is kept, which makes the mask exact; with β < 1
    the k-th feature's operator is K − c, of the same eigenfunctions, c = Λ_kk + max_{j≤k}|Λ_jj|
    of the averages so far, where that is positive. Where Λ_kk > 0, averages that lag behind push a
    feature that has shrunk, or has turned towards those before it, further the same way: without c
    features collapse onto each other.

    Args:
        num_features: d.
        operator: K.
        averaging_rate: β, weight of a batch in the moving averages, in (0, 1].
        parameters: The encoder's parameters, or their shapes; wanted with β < 1 alone.
        separate: Whether every leaf of the parameters has a leading axis over the features and each
            feature depends on its own slice only (``encoders.separate_mlp``). The Jacobian then
            takes d backward passes in place of d(d+1)/2. Of this only the shapes are checked.
        jacobian_rows_at_once: Backward passes made together; None makes all together. Fewer take
            less memory and more time.
        weights: Importance weights of inputs; None weighs all alike.

    Returns:
        The objective. ``diagnose`` names a feature that depends on those before it.

    Raises:
        InputError: For counts below 1, β outside (0, 1], or β < 1 without fitting ``parameters``;
            from its loss, for fewer rows than features with β = 1.
    """
    require_positive("num_features", num_features)
    require(isinstance(operator, Operator), "an Operator (rlreps.operators)", operator)
    require(0.0 < averaging_rate <= 1.0, "averaging_rate in (0, 1]", averaging_rate)
    averages = averaging_rate < 1.0
    jacobian = CovarianceJacobian(num_features, separate, jacobian_rows_at_once)
    if averages:
        require(parameters is not None, "parameters for averaging_rate < 1", parameters)
        jacobian.check(parameters)

    def init(key: Array) -> SpectralState:
        del key  # Nothing here is random.
        start = jacobian.zeros(parameters) if averages else ()
        empty = jnp.zeros((num_features, num_features))
        return SpectralState(empty, empty, start, jnp.zeros(()))

    def loss(
        params: Params, encode: Encode, batch: Batch, state: SpectralState, key: Array
    ) -> tuple[Array, tuple[SpectralState, Metrics]]:
        del key  # Deterministic given the batch.
        features = encode(params, batch.inputs)
        require_features(features, len(batch.inputs), num_features)
        if not averages:
            rows = f"at least {num_features} rows, as many as features, for averaging_rate = 1"
            require(len(features) >= num_features, rows, len(features))
        action = _held_action(operator, weights, (params, encode), batch, features)
        before = state
        state = _average_moments(state, averaging_rate, action)
        covariance = state.covariance / state.weight
        masked = masked_gradient(covariance, action.operator_matrix)
        slope = _times(action.images, masked.images)
        pull = jnp.zeros((), slope.dtype)
        if averages:
            jacobian.check_average(state.jacobian, params)
            part = jacobian.of_batch(
                lambda p: encode(p, batch.inputs),
                lax.stop_gradient(params),
                action.values,
                action.shares,
            )
            average = optax.incremental_update(part, state.jacobian, averaging_rate)
            state = state._replace(jacobian=average)
            mean = jax.tree.map(lambda leaf: leaf / state.weight, average)
            shift = _shift(before)
            slope = slope - _times(action.values, masked.images * shift)
            unit = masked_gradient(covariance, action.covariance)
            coefficients = unit.features * shift - masked.features
            pull = _inner_product(jacobian.contract(mean, 2.0 * coefficients), params)
        else:
            slope = slope - _times(action.values, masked.features)
        surrogate = jnp.sum(lax.stop_gradient(2.0 * action.shares * slope) * features) + pull
        # The gradient is the surrogate's and the value tr Λ.
        value = masked.eigenvalues.sum() + (surrogate - lax.stop_gradient(surrogate))
        return value, (state, {"eigenvalues": masked.eigenvalues})

    return Objective(init, loss, _diagnose)


def _held_action(
    operator: Operator,
    weights: Weights | None,
    encoder: tuple[Params, Encode],
    batch: Batch,
    features: Array,
) -> Action:
    """The operator's action, as constants.

    Neither it nor the moments are differentiated: the masked gradient is written out, and the
    reverse pass goes through one evaluation of the features alone.
    """
    params, encode = lax.stop_gradient(encoder[0]), encoder[1]
    action = act(
        operator,
        lambda inputs: encode(params, inputs),
        batch.inputs,
        features=lax.stop_gradient(features),
        targets=batch.targets,
        weights=weights,
    )
    return lax.stop_gradient(action)


def _average_moments(state: SpectralState, rate: float, action: Action) -> SpectralState:
    new = (action.covariance, action.operator_matrix, jnp.ones_like(state.weight))
    old = (state.covariance, state.operator_matrix, state.weight)
    covariance, operator_matrix, weight = optax.incremental_update(new, old, rate)
    return SpectralState(covariance, operator_matrix, state.jacobian, weight)


def _shift(before: SpectralState) -> Array:
    """What is taken off the operator for each feature, [1, d].

    It makes every eigenvalue negative by a margin that scales with the operator. From the averages
    before the batch: with the batch's own the gradient would be biased.
    """
    weight = jnp.where(before.weight > 0.0, before.weight, 1.0)
    spectrum = ordered_spectrum(before.covariance / weight, before.operator_matrix / weight)
    largest = lax.cummax(jnp.abs(spectrum.eigenvalues))
    return jnp.maximum(spectrum.eigenvalues + largest, 0.0)[None, :]


def _times(features: Array, matrix: Array) -> Array:
    """Features [b, d] times a matrix [d, d]."""
    return jnp.matmul(features, matrix, precision=lax.Precision.HIGHEST)


def _inner_product(gradient: Params, params: Params) -> Array:
    """A scalar whose gradient in the parameters is the one given, []."""
    products = jax.tree.map(lambda g, p: jnp.sum(lax.stop_gradient(g) * p), gradient, params)
    return jnp.sum(jnp.stack(jax.tree.leaves(products)))


def _diagnose(states: SpectralState, run: int) -> str | None:
    """What is wrong with one run's state: the first feature that others fix, by name."""
    covariance = np.asarray(states.covariance[run])
    if not np.all(np.isfinite(covariance)) or float(states.weight[run]) == 0.0:
        return None
    index = first_dependent_feature(covariance)
    if index is None:
        return None
    return (
        f"expected linearly independent features, got feature {index}, which is constant zero or "
        "a combination of the features before it, to rounding"
    )
