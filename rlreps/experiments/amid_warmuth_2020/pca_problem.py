"""Principal components of a data set: what is exact, and how far an estimate is from it."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from rlreps.errors import require
from rlreps.sources.datasets import Observations
from rlreps.subspace.centring import second_moments
from rlreps.subspace.svd import relative_tolerance

DoubleArray = npt.NDArray[np.float64]


class PcaProblem(NamedTuple):
    """Rows without their mean, and their exact principal components.

    Attributes:
        name: What the data set is called.
        rows: Less their mean, [n, features] (float32).
        mean: The mean that was removed, [features].
        image_shape: (height, width, ...) of rows that are images, or None.
        moments: Covariance of the rows, [features, features].
        variances: Its eigenvalues in descending order, [features].
        basis: Its eigenvectors as columns in that order, [features, features].
    """

    name: str
    rows: npt.NDArray[np.float32]
    mean: DoubleArray
    image_shape: tuple[int, ...] | None
    moments: DoubleArray
    variances: DoubleArray
    basis: DoubleArray

    def exact_loss(self, k: int) -> float:
        """Mean of ‖x − Px‖² over the rows for the exact top k components."""
        return float(self.variances[k:].sum())

    def loss(self, components: npt.NDArray[np.floating]) -> float:
        """Mean of ‖x − Px‖² over the rows for the span of components [features, k], in float64.

        Components that depend on those before them, to the rounding of their type, add nothing.
        NaN where components are not finite.
        """
        if not np.isfinite(components).all():
            return float("nan")
        columns = np.asarray(components, np.float64)
        span, upper = np.linalg.qr(columns)
        left, lengths = np.abs(np.diagonal(upper)), np.linalg.norm(columns, axis=0)
        span = span * (left > relative_tolerance(columns.shape, components.dtype) * lengths)
        return float(np.trace(self.moments) - np.sum(span * (self.moments @ span)))


def make_pca_problem(observations: Observations, num_components: int) -> PcaProblem:
    """Removes the mean and finds the exact components.

    Args:
        observations: The rows.
        num_components: The most components that will be asked for.

    Raises:
        InputError: If there are not as many features or rows.
    """
    count, features = observations.rows.shape
    require(
        1 <= num_components <= min(count, features),
        f"k in [1, {min(count, features)}] for the {count} rows of {features} features of "
        f"{observations.name}",
        num_components,
    )
    mean = observations.rows.mean(axis=0, dtype=np.float64)
    rows = observations.rows - mean.astype(np.float32)
    moments = second_moments(rows)
    variances, vectors = scipy.linalg.eigh(moments)
    return PcaProblem(
        observations.name,
        rows,
        mean,
        observations.image_shape,
        moments,
        np.maximum(variances[::-1], 0.0),
        vectors[:, ::-1],
    )
