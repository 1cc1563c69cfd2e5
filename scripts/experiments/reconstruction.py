"""Mean errors ‖x − Px‖² of rows under the span of components, and the least error for k of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg

from rlreps.numerics import matmul
from rlreps.subspace import orthonormal_basis, relative_tolerance, second_moments
from rlreps.typing import ArrayLike, DoubleArray


class ExactComponents(NamedTuple):
    """Rows without their mean, and all of their principal components in float64.

    Attributes:
        rows: Rows with their mean subtracted, [n, features] (float32).
        mean: [features].
        moments: Covariance of the rows, [features, features].
        variances: Its eigenvalues in descending order, [features].
        basis: Its eigenvectors as columns in this order, [features, features].
    """

    rows: npt.NDArray[np.float32]
    mean: DoubleArray
    moments: DoubleArray
    variances: DoubleArray
    basis: DoubleArray

    @property
    def no_components(self) -> float:
        """Return the loss without any component: the rows' whole variance."""
        return float(np.trace(self.moments))

    def exact_loss(self, k: int) -> float:
        """Return the mean of ‖x − Px‖² over the rows for the exact top k components."""
        return float(self.variances[k:].sum())

    def loss(self, components: npt.NDArray[np.floating]) -> float:
        """Compute the mean of ‖x − Px‖² over the rows for a span [features, k], in float64.

        Components that are combinations of earlier ones, up to rounding, add nothing. NaN if
        components are not finite.
        """
        return loss_from_moments(self.moments, components)

    def counted(self, losses: ArrayLike) -> DoubleArray:
        """Replace the loss of a run that diverged (NaN) by the loss of no components."""
        table = np.asarray(losses, np.float64)
        return np.where(np.isfinite(table), table, self.no_components)

    def excess_percent(self, losses: ArrayLike, k: int) -> DoubleArray:
        """Compute 100 (loss / exact loss − 1) for the ``counted`` losses of k components."""
        excess: DoubleArray = 100.0 * (self.counted(losses) / self.exact_loss(k) - 1.0)
        return excess


def exact_components(rows: npt.NDArray[np.float32]) -> ExactComponents:
    """Remove the mean of rows [n, features] and find their principal components."""
    mean = rows.mean(axis=0, dtype=np.float64)
    # In double precision, rounded once: a rounded mean would leave an offset.
    centred = np.subtract(rows, mean, out=np.empty_like(rows), casting="same_kind")
    moments = second_moments(centred)
    variances, vectors = scipy.linalg.eigh(moments)
    return ExactComponents(
        centred, mean, moments, np.maximum(variances[::-1], 0.0), vectors[:, ::-1]
    )


def loss_from_moments(moments: DoubleArray, components: npt.NDArray[np.floating]) -> float:
    """Compute ``ExactComponents.loss`` for any rows from second moments [features, features]."""
    if not np.isfinite(components).all():
        return float("nan")
    columns = np.asarray(components, np.float64)
    span, upper = np.linalg.qr(columns)
    left, lengths = np.abs(np.diagonal(upper)), np.linalg.norm(columns, axis=0)
    span = span * (left > relative_tolerance(columns.shape, components.dtype) * lengths)
    return float(np.trace(moments) - np.sum(span * (moments @ span)))


def reconstruction_errors(rows: npt.NDArray[np.float32], basis: npt.NDArray[Any]) -> DoubleArray:
    """Compute ‖x − Px‖² of centred rows [n, features]; columns [features, d] are orthonormal."""
    double = basis.astype(np.float64)
    residuals = rows - (rows @ double) @ double.T
    errors: DoubleArray = np.einsum("ij,ij->i", residuals, residuals)
    return errors


def relative_loss(moments: DoubleArray, exact: float, features: jax.Array) -> jax.Array:
    """Compute the mean ‖x − Px‖² divided by that of the exact components, for ``jit``, [].

    Args:
        moments: Second moments of the rows x, [features, features], which suffice for the mean.
        exact: Mean of ‖x − Px‖² under the exact components.
        features: Columns whose span P projects onto, [features, d].
    """
    span, _ = orthonormal_basis(features)
    weighted = matmul(jnp.asarray(moments, span.dtype), span)
    left: jax.Array = float(np.trace(moments)) - jnp.sum(span * weighted)
    return left / exact


def orthonormal_double(features: jax.Array) -> DoubleArray:
    """Compute an orthonormal basis [n, d] of the features' span in float64; zero for zero features.

    Float32 columns are orthonormal only to about 1e-6, which would be visible in a float64 error.
    """
    basis, _ = orthonormal_basis(features)
    q, r = np.linalg.qr(np.asarray(basis, np.float64))
    # Columns beyond the rank are zero in the basis, and arbitrary in Q.
    spanned: DoubleArray = q * (np.abs(np.diagonal(r)) > 0.5)[None, :]
    return spanned
