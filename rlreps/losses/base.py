"""What an objective is: the contract that every loss of the library meets.

Symbols used across this package: φ features [b, d], ψ targets [b, t], Ĉ an estimate of the inverse
covariance (E φφᵀ)⁻¹ [d, d], ŵ = Ĉ E[φψ] the least-squares weights [d, t].

The population loss is L(Φ) = min_W E‖φ(s)ᵀW − ψ(s)‖², whose minimisers span the top-d left
singular subspace of Ψ; its gradient is W*(φᵀW* − ψ) at the minimising W* (Le Lan et al. 2023,
Lemma 1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array, lax

Params: TypeAlias = Any
Metrics: TypeAlias = dict[str, Array]
Encode: TypeAlias = Callable[[Params, Array], Array]
"""(params, inputs [b, ...]) → features [b, d]."""


class Population(NamedTuple):
    """All states at once, for objectives that need exact expectations.

    Attributes:
        inputs: Every state's encoder input, [n, ...].
        targets: The batch's task columns over every state, [n, t].
    """

    inputs: Array
    targets: Array


class Batch(NamedTuple):
    """Sampled entries of a states x tasks matrix.

    Attributes:
        inputs: Encoder inputs of the sampled states, [b, ...].
        targets: Their entries in the sampled columns, [b, t].
        tasks: Indices of those columns, [t] (int32); needed by objectives that store weights.
        population: All states, where the source was asked for them.
    """

    inputs: Array
    targets: Array
    tasks: Array | None = None
    population: Population | None = None


class Objective(NamedTuple):
    """A representation objective.

    Attributes:
        init: key → state; stateless objectives carry ``()``.
        loss: (params, encode, batch, state, key) → (scalar, (state, metrics)), to be differentiated
            in ``params`` with ``jax.grad(..., has_aux=True)``. The gradient is the contract; the
            scalar is half the mean squared residual under the weights that the gradient used.
    """

    init: Callable[[Array], Any]
    loss: Callable[[Params, Encode, Batch, Any, Array], tuple[Array, tuple[Any, Metrics]]]


def two_weight_loss(features: Array, targets: Array, weights: Array, other_weights: Array) -> Array:
    """A scalar whose gradient at features [b, d] is ŵ'(φᵀŵ − ψ), averaged over rows and tasks.

    This is the form that every objective's gradient takes; with ŵ = ŵ' it is the gradient of half
    the mean squared residual at fixed weights.

    Args:
        features: φ, [b, d].
        targets: ψ, [b, t].
        weights: ŵ in the residual, [d, t].
        other_weights: ŵ' in front of it, [d, t].

    Returns:
        Half the mean squared residual, [].
    """
    # The weights are estimates at the current features, held fixed by Danskin's theorem: the
    # minimiser's own dependence on the features contributes nothing to the gradient.
    weights, other_weights = lax.stop_gradient(weights), lax.stop_gradient(other_weights)
    residuals = features @ weights - targets
    # Only the factor φᵀŵ' may carry a gradient: it alone multiplies the residual in Lemma 1.
    surrogate = jnp.mean(lax.stop_gradient(residuals) * (features @ other_weights))
    value = 0.5 * jnp.mean(jnp.square(residuals))
    # The two stop_gradients swap the surrogate's meaningless value for the residual's.
    return lax.stop_gradient(value) + surrogate - lax.stop_gradient(surrogate)
