"""Integral operators (Ku)(x) = E_x'[k(x, x') u(x')], from pairs of points within a batch."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.config import configurable
from rlreps.errors import require
from rlreps.numerics import matmul
from rlreps.operators.base import Operator, SampledFunctions

KernelFunction = Callable[[Array, Array], Array]
"""(inputs [m, ...], inputs [p, ...]) → k, [m, p]."""


@configurable
@dataclasses.dataclass(frozen=True)
class Kernel(Operator):
    """The integral operator of a symmetric kernel.

    Each point's integral is the mean over the batch's other points. Leaving the point itself out
    keeps the estimate unbiased, whatever k(x, x) is. The integral is over the measure, so a factor
    common to all importance weights scales the operator. In a sum with other operators, the weights
    therefore need a mean of 1.

    Attributes:
        function: k.
        samples: Typical inputs, [m, ...], on which the kernel's symmetry is checked.

    Raises:
        InputError: As ``require_symmetric``; from ``apply``, for a batch of one or a kernel of
            another shape.
    """

    function: KernelFunction
    samples: dataclasses.InitVar[Array | np.ndarray]

    def __post_init__(self, samples: Array | np.ndarray) -> None:
        require_symmetric(self.function, jnp.asarray(samples))

    def apply(self, sample: SampledFunctions) -> Array:
        """Compute Σ_{j≠i} w_j k(x_i, x_j) u(x_j) / (b − 1), [b, d]."""
        values = self.function(sample.inputs, sample.inputs)
        rows = len(sample.features)
        require(values.shape == (rows, rows), f"a kernel of shape {(rows, rows)}", values.shape)
        require(rows >= 2, "at least two rows for a kernel", rows)
        # The weight of k(x, x) would depend on the batch size: it is not part of the integral.
        apart = jnp.where(jnp.eye(rows, dtype=bool), 0.0, values * sample.weights[None, :])
        return matmul(apart, sample.features) / (rows - 1)


@configurable
@dataclasses.dataclass(frozen=True)
class TargetKernel(Operator):
    """The kernel k(s, s') = E_t[ψ_t(s) ψ_t(s')] of a batch's target columns.

    Its eigenfunctions under uniform states are the left singular vectors of Ψ and its eigenvalues
    σ² / (states · tasks), so that spectral inference with −1 times the operator learns Ψ's
    principal components one by one and in order.
    """

    def apply(self, sample: SampledFunctions) -> Array:
        targets = sample.targets
        rows, tasks = targets.shape
        require(tasks >= 1, "at least one target column", tasks)
        require(rows >= 2, "at least two rows for a kernel", rows)
        require(rows == len(sample.features), "a row of targets for each state", rows)
        columns = targets * sample.weights[:, None]
        # Do not form [b, b]: there are fewer features than rows.
        together = matmul(targets, matmul(columns.T, sample.features))
        itself = jnp.sum(targets * columns, axis=1)[:, None] * sample.features
        return (together - itself) / ((rows - 1) * tasks)


def require_symmetric(function: KernelFunction, inputs: Array) -> None:
    """Raise an ``InputError`` unless k is symmetric up to rounding on samples [m, ...].

    Values of k on the samples must be of shape [m, m], floating and, off the diagonal, finite.
    """
    values = np.array(function(inputs, inputs))
    expected = (len(inputs), len(inputs))
    require(values.shape == expected, f"a kernel of shape {expected}", values.shape)
    floating = np.issubdtype(values.dtype, np.floating)
    require(floating, "a kernel of floating values", values.dtype.name)
    np.fill_diagonal(values, 0.0)  # Not used, and possibly infinite.
    require(bool(np.isfinite(values).all()), "a kernel of finite values", "NaN or infinity")
    difference = np.abs(values - values.T)
    allowed = 100.0 * float(np.finfo(values.dtype).eps) * float(np.abs(values).max())
    row, column = np.unravel_index(np.argmax(difference), difference.shape)
    require(
        float(difference.max()) <= allowed,
        "a symmetric kernel, k(x, x') = k(x', x)",
        f"{values[row, column]:.6g} and {values[column, row]:.6g} for samples {row} and {column}",
    )
