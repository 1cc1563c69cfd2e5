"""The gradient of objectives with estimates of weights, such as Danskin-LISSA, and the estimates.

The module ``base`` names the symbols.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.losses.base import require_tasks, with_gradient_of
from rlreps.numerics import matmul
from rlreps.subspace.inverse_covariance import empirical_inverse_covariance


def two_weight_loss(
    features: Array,
    targets: Array,
    weights: Array,
    other_weights: Array,
    *,
    residual_scale: Array | None = None,
) -> Array:
    """Compute a scalar with gradient ŵ'(φᵀŵ − ψ) at features [b, d], a mean over rows and tasks.

    Objectives that estimate weights have gradients of this form; ``DanskinChunked`` makes its own.
    With ŵ = ŵ' it is the gradient of half the mean squared residual at fixed weights. The surrogate
    printed in Sec. 3.3 of Le Lan et al. 2023 is not used: it equals φᵀŵ φᵀŵ' − ψ²/2, whose gradient
    lacks ψ.

    Args:
        features: φ, [b, d].
        targets: ψ, [b, t].
        weights: ŵ in the residual, [d, t].
        other_weights: ŵ' in front of it, [d, t].
        residual_scale: Factor on each row's residual, [b]; None is 1.

    Returns:
        Half the mean squared (scaled) residual φᵀŵ − ψ, [].

    Raises:
        InputError: If there are no task columns.
    """
    require_tasks(targets)
    # The weights are estimates at the current features, held fixed by Danskin's theorem: their
    # own dependence on the features contributes nothing to the gradient.
    weights, other_weights = lax.stop_gradient(weights), lax.stop_gradient(other_weights)
    # The residual is a small difference, which an accelerator's default precision would lose.
    residuals = matmul(features, weights) - targets
    if residual_scale is not None:
        residuals = residuals * residual_scale[:, None]
    # Only the factor φᵀŵ' may carry a gradient: in Lemma 1, the gradient is the derivative of this
    # factor times the residual.
    surrogate = jnp.mean(lax.stop_gradient(residuals) * (features @ other_weights))
    return with_gradient_of(surrogate, 0.5 * jnp.mean(jnp.square(residuals)))


def mean_product(features: Array, targets: Array) -> Array:
    """Compute the right-hand side mean φψ [d, t] of features [b, d] and targets [b, t]."""
    return matmul(features.T, targets) / features.shape[0]


def empirical_weights(features: Array, right_hand_side: Array) -> Array:
    """Compute (ΦᵀΦ / J)† times a right-hand side [d, t], for features [J, d]."""
    return matmul(empirical_inverse_covariance(features), right_hand_side)


def regularised(moment: Array, ridge: float | Array) -> Array:
    """Add a share of the mean eigenvalue to the diagonal, [d, d]; zero becomes invertible too."""
    dimension, tiny = len(moment), float(np.finfo(moment.dtype).tiny)
    scale = ridge * jnp.trace(moment) / dimension + tiny
    return moment + scale * jnp.eye(dimension, dtype=moment.dtype)
