"""Variances of a stream along components that turn, in float64."""

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rlreps.typing import DoubleArray

FADING = 2.0
"""Exponent of the weights in a stream's variances: rows added up to the t-th of n have weight
(t/n)²."""

_ROUNDINGS = 10.0
"""Standard deviations below this number of roundings of the rows count as zero."""

_CANCELLED = 1e-10
"""Share of the total variance below which a Gram matrix rounds a variance."""


class Moments(NamedTuple):
    """Weighted sums of squares of the rows so far, about their weighted mean.

    Attributes:
        rows_seen: Number of rows so far.
        weight: Sum of the rows' weights; the newest row has weight one.
        squared_weight: Sum of the squared weights.
        mean: Weighted mean, [features].
        along: Sum of squares along each component, [k].
        total: Sum of squares over all features.
    """

    rows_seen: int
    weight: float
    squared_weight: float
    mean: DoubleArray
    along: DoubleArray
    total: float

    @property
    def variances(self) -> DoubleArray:
        """Variance along each component, [k]; unbiased if weights are equal (ddof = 1)."""
        return self.along * self._per_row

    @property
    def total_variance(self) -> float:
        """Sum of the variances of all features; zero for fewer than two rows."""
        return self.total * self._per_row

    def scaled(self, factor: float) -> Self:
        """Return the moments of rows times ``factor``."""
        return self._replace(
            mean=factor * self.mean, along=factor**2 * self.along, total=factor**2 * self.total
        )

    @property
    def _per_row(self) -> float:
        if self.rows_seen < 2:
            return 0.0
        return 1.0 / (self.weight - self.squared_weight / self.weight)


def no_moments(num_inputs: int, num_components: int) -> Moments:
    """Return the moments of no rows."""
    return Moments(0, 0.0, 0.0, np.zeros(num_inputs), np.zeros(num_components), 0.0)


def take_in(
    moments: Moments,
    components: DoubleArray,
    basis: DoubleArray,
    rows: DoubleArray,
    fading: float = FADING,
) -> tuple[Moments, DoubleArray]:
    """Add rows, and rotate the moments to the principal axes of a new basis' span.

    Sums of squares along old components are carried over to the span of the new ones; the part
    outside the span is lost. While a basis turns, old rows therefore contribute too little, so
    their weights fade: before rows n + 1, …, n + b are added, the weights are multiplied by (n/(n +
    b))^fading. Rows that were added together, up to row t, then have (t/n)^fading times the weight
    of the newest rows. Within the span everything is exact, including the shift of the mean (Chan,
    Golub & LeVeque 1983).

    Args:
        moments: Moments of the rows so far.
        components: Orthonormal rows that the moments are along, [k, features].
        basis: Orthonormal rows of the new span, [k, features].
        rows: New rows, complete, [b, features].
        fading: 0 weighs all rows equally.

    Returns:
        The moments along components in descending order of variance, and these components:
        orthonormal rows in the span of the basis, [k, features], the largest entry of each
        positive.
    """
    count = len(rows)
    kept = (moments.rows_seen / (moments.rows_seen + count)) ** fading
    before = kept * moments.weight
    mean = rows.mean(axis=0)
    centred = rows - mean
    shift = mean - moments.mean
    shared = before * count / (before + count)

    turned = basis @ components.T
    projected, projected_shift = centred @ basis.T, basis @ shift
    scatter = (turned * (kept * moments.along)) @ turned.T
    scatter += projected.T @ projected + shared * np.outer(projected_shift, projected_shift)
    values, axes = np.linalg.eigh(scatter)
    principal = axes[:, ::-1].T @ basis
    peaks = np.argmax(np.abs(principal), axis=1)
    signs = np.where(principal[np.arange(len(basis)), peaks] < 0.0, -1.0, 1.0)

    grown = Moments(
        rows_seen=moments.rows_seen + count,
        weight=before + count,
        squared_weight=kept**2 * moments.squared_weight + count,
        mean=moments.mean + count / (before + count) * shift,
        along=np.maximum(values[::-1], 0.0),
        total=kept * moments.total + float(np.sum(centred**2) + shared * shift @ shift),
    )
    return grown, principal * signs[:, None]


def measure_variances(rows: DoubleArray, k: int) -> tuple[float, float]:
    """Return the total variance of rows [n, features] and the k-th largest principal variance."""
    centred = rows - rows.mean(axis=0)
    total = float(np.square(centred).sum()) / len(rows)
    if k > min(rows.shape):
        return total, 0.0
    gram = centred @ centred.T if len(rows) < rows.shape[1] else centred.T @ centred
    least = float(np.linalg.eigvalsh(gram)[-k]) / len(rows)
    if least < _CANCELLED * total:
        least = float(np.linalg.svd(centred, compute_uv=False)[k - 1]) ** 2 / len(rows)
    return total, least


def measure_rounding(rows: npt.NDArray[np.floating[Any]], k: int) -> float:
    """Return the k-th largest rounding of a column [n, features], times ``_ROUNDINGS``.

    Rows in double precision that single precision holds exactly may be rounded to it.
    """
    single = (rows == rows.astype(np.float32)).all()
    eps = np.finfo(np.float32 if single else rows.dtype).eps
    largest = np.abs(rows).max(axis=0)
    return _ROUNDINGS * float(eps * np.sort(largest)[-min(k, len(largest))])
