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

from rlreps.errors import require
from rlreps.subspace.inverse_covariance import empirical_inverse_covariance

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
            scalar is half the mean squared residual under the weights that the gradient used,
            unless the objective says otherwise.
        diagnose: (states of all runs, which run) → what is wrong with its state, in words, or None.
            The host asks after every chunk; the same answer twice in a row stops the training.
    """

    init: Callable[[Array], Any]
    loss: Callable[[Params, Encode, Batch, Any, Array], tuple[Array, tuple[Any, Metrics]]]
    diagnose: Callable[[Any, int], str | None] | None = None


def two_weight_loss(
    features: Array,
    targets: Array,
    weights: Array,
    other_weights: Array,
    *,
    residual_scale: Array | None = None,
) -> Array:
    """A scalar whose gradient at features [b, d] is ŵ'(φᵀŵ − ψ), averaged over rows and tasks.

    This is the form that every objective's gradient takes; with ŵ = ŵ' it is the gradient of half
    the mean squared residual at fixed weights.

    Args:
        features: φ, [b, d].
        targets: ψ, [b, t].
        weights: ŵ in the residual, [d, t].
        other_weights: ŵ' in front of it, [d, t].
        residual_scale: Factor on each row's residual, [b]; None is 1.

    Returns:
        Half the mean squared (scaled) residual φᵀŵ − ψ, [].
    """
    # The weights are estimates at the current features, held fixed by Danskin's theorem: the
    # minimiser's own dependence on the features contributes nothing to the gradient.
    weights, other_weights = lax.stop_gradient(weights), lax.stop_gradient(other_weights)
    # A residual is a difference of near equals: an accelerator's default product would blur it.
    residuals = jnp.matmul(features, weights, precision=lax.Precision.HIGHEST) - targets
    if residual_scale is not None:
        residuals = residuals * residual_scale[:, None]
    # Only the factor φᵀŵ' may carry a gradient: it alone multiplies the residual in Lemma 1.
    surrogate = jnp.mean(lax.stop_gradient(residuals) * (features @ other_weights))
    value = 0.5 * jnp.mean(jnp.square(residuals))
    # The stop_gradients swap the surrogate's meaningless value for the residual's. It is subtracted
    # from itself first: where it is large, adding the value to it would lose the value's digits.
    return lax.stop_gradient(value) + (surrogate - lax.stop_gradient(surrogate))


def mean_product(features: Array, targets: Array) -> Array:
    """The right-hand side mean φψ [d, t] of features [b, d] and targets [b, t]."""
    return jnp.matmul(features.T, targets, precision=lax.Precision.HIGHEST) / features.shape[0]


def empirical_weights(features: Array, right_hand_side: Array) -> Array:
    """(ΦᵀΦ / J)† times a right-hand side [d, t], for features [J, d]."""
    inverse_covariance: Array = empirical_inverse_covariance(features)
    return jnp.matmul(inverse_covariance, right_hand_side, precision=lax.Precision.HIGHEST)


def require_features(features: Array, num_rows: int, num_features: int) -> None:
    """Raises an ``InputError`` unless an encoder's output has the shape [b, d] it should have."""
    expected = (num_rows, num_features)
    require(features.shape == expected, f"features of shape {expected}", features.shape)
