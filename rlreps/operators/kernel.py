"""Integral operators (Ku)(x) = E_x'[k(x, x') u(x')], from pairs of points within a batch."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps.errors import require
from rlreps.operators.base import Operator, Sample
from rlreps.operators.symmetry import require_symmetric_entries

Kernel = Callable[[Array, Array], Array]
"""(inputs [m, ...], inputs [p, ...]) → k, [m, p]."""


def kernel(function: Kernel, *, samples: Array | np.ndarray) -> Operator:
    """The integral operator of a symmetric kernel.

    Each point's integral is the mean over the batch's other points: leaving itself out keeps the
    estimate unbiased, whatever k(x, x) is. It is the integral over the measure, so that a factor
    common to all importance weights is one of the operator too: beside other operators they have to
    be of mean 1.

    Args:
        function: k.
        samples: Inputs of the kind it is meant for, [m, ...], on which its symmetry is checked.

    Returns:
        The operator. It raises an ``InputError`` for a batch of one, or a kernel of another shape.

    Raises:
        InputError: As ``require_symmetric``.
    """
    require_symmetric(function, jnp.asarray(samples))

    def apply(sample: Sample) -> Array:
        inputs = sample.inputs
        values = function(inputs, inputs)
        expected = (len(inputs), len(inputs))
        require(values.shape == expected, f"a kernel of shape {expected}", values.shape)
        return mean_over_others(values, sample)

    return Operator(apply)


def target_kernel() -> Operator:
    """The kernel k(s, s') = E_t[ψ_t(s) ψ_t(s')] of a batch's target columns.

    Its eigenfunctions under uniform states are the left singular vectors of Ψ and its eigenvalues
    σ² / (states · tasks), so that spectral inference with −1 times it learns Ψ's principal
    components one by one and in order.
    """

    def apply(sample: Sample) -> Array:
        targets = sample.targets
        require(targets.shape[1] >= 1, "at least one target column", targets.shape[1])
        columns = targets * sample.weights[:, None]
        others = len(targets) - 1
        require(others >= 1, "at least two rows for a kernel", len(targets))
        # Never [b, b]: there are fewer features than rows.
        summed = jnp.matmul(columns.T, sample.features, precision=lax.Precision.HIGHEST)
        together = jnp.matmul(targets, summed, precision=lax.Precision.HIGHEST)
        itself = jnp.sum(targets * columns, axis=1)[:, None] * sample.features
        return (together - itself) / (others * targets.shape[1])

    return Operator(apply)


def mean_over_others(values: Array, sample: Sample) -> Array:
    """Σ_{j≠i} w_j k(x_i, x_j) u(x_j) / (b − 1), [b, d], for values k [b, b]."""
    others = len(values) - 1
    require(others >= 1, "at least two rows for a kernel", len(values))
    # Which weight k(x, x) has depends on the batch size: it is no part of the integral.
    apart = jnp.where(jnp.eye(len(values), dtype=bool), 0.0, values * sample.weights[None, :])
    return jnp.matmul(apart, sample.features, precision=lax.Precision.HIGHEST) / others


def require_symmetric(function: Kernel, inputs: Array) -> None:
    """Checks a kernel on samples.

    Args:
        function: k.
        inputs: Points of the kind it is meant for, [m, ...].

    Raises:
        InputError: If its values there have another shape than [m, m], are not floating or not
            finite, or k(x, x') and k(x', x) differ by more than rounding.
    """
    values = np.array(function(inputs, inputs))
    expected = (len(inputs), len(inputs))
    require(values.shape == expected, f"a kernel of shape {expected}", values.shape)
    floating = np.issubdtype(values.dtype, np.floating)
    require(floating, "a kernel of floating values", values.dtype.name)
    np.fill_diagonal(values, 0.0)  # No part of the integral: it may be infinite.
    require(bool(np.isfinite(values).all()), "a kernel of finite values", "NaN or infinity")
    require_symmetric_entries(values, "a symmetric kernel, k(x, x') = k(x', x)", "samples")
