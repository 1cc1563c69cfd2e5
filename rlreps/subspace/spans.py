"""What the spans of features miss of components, in double precision.

Features F [n, p] of n states may have any type, scale and mean. The functions of ``metrics``
compute in the features' own precision, as training does.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.subspace.svd import relative_tolerance
from rlreps.typing import DoubleArray

_SINGLE = float(np.finfo(np.float32).eps)


class Standardised(NamedTuple):
    """The units of features [n, p] that vary, with mean zero and standard deviation one.

    A unit varies if its standard deviation is above what rounding alone can give a constant: one
    unit in the last place of the features' type. Integers up to 2^53 are exact in double precision.

    Attributes:
        units: The units that vary, [n, v].
        varying: Which of the p units they are, [p].
        exponents: Exponents of powers of two, above the largest magnitude of each unit, [p].
        means: Means of the units, each divided by its power of two, [p].
        deviations: Their standard deviations, each divided by its power of two, [p].
        noise: Root mean square share of rounding in the deviation of units that vary.
        rounding: Relative rounding of the features' own type; of float64 for integers.
    """

    units: DoubleArray
    varying: npt.NDArray[np.bool_]
    exponents: npt.NDArray[np.int32]
    means: DoubleArray
    deviations: DoubleArray
    noise: float
    rounding: float


def standardise(features: np.ndarray) -> Standardised:
    """Standardise the units of features [n, p] that vary."""
    real = features.dtype.kind == "f"
    rounding = float(np.finfo(features.dtype if real else np.float64).eps)
    units = features.astype(np.float64)
    # Divided by powers of two, exactly, squares neither over- nor underflow. Below 2^-1022 the
    # inverse of a power is infinite.
    exponents = np.maximum(np.frexp(np.abs(units).max(axis=0))[1], -1022)
    units *= np.ldexp(1.0, -exponents)
    least = rounding * np.abs(units).mean(axis=0)
    means = units.mean(axis=0)
    units -= means
    units -= units.mean(axis=0)  # The first mean is rounded, also that of equal numbers.
    deviations = np.sqrt(np.mean(np.square(units), axis=0))
    varying = deviations > least
    shares = least[varying] / deviations[varying]
    return Standardised(
        units=np.compress(varying, units, axis=1) / deviations[varying],
        varying=varying,
        exponents=exponents,
        means=means,
        deviations=deviations,
        noise=float(np.sqrt(np.mean(np.square(shares)))) if shares.size else 0.0,
        rounding=rounding,
    )


class Spans(NamedTuple):
    """What the spans of features miss, and the features in few coordinates.

    Attributes:
        missed_with_intercept: ‖u_j − QQᵀu_j‖² of each component u_j, [k] in [0, 1], where Q is an
            orthonormal basis of the features and a constant. The mean over the leading k is the
            subspace distance (Le Lan et al. 2023).
        missed_without_intercept: The same for the span of the features as they are, [k].
        coordinates: Centred features in an orthonormal basis, [q, p], so that their inner products
            are those of the features, each unit divided by its power of two.
        factor: The same in a basis of their span, [r, p]; r is their numerical rank.
        loadings: The components in this basis, [r, k].
    """

    missed_with_intercept: DoubleArray
    missed_without_intercept: DoubleArray
    coordinates: DoubleArray
    factor: DoubleArray
    loadings: DoubleArray


def spans_of(given: Standardised, components: DoubleArray) -> Spans:
    """Measure what the spans of features [n, p] miss of orthonormal components [n, k].

    Columns are scaled to the same length first, so that no column counts less than another.
    A singular value counts as zero if rounding alone could give it: if it is within three times the
    rounding of sums of p terms, which grows like √p, within twice that of storing the units with
    their means (once that of types shorter than float32), or within the `relative_tolerance` of
    this computation.
    """
    count, size = given.units.shape
    tolerance = relative_tolerance((count, len(given.varying)), np.float64)
    constant = np.full((count, 1), 1.0 / math.sqrt(count))
    # All that follows depends on inner products alone, and those of the triangle are the same.
    triangle = np.linalg.qr(np.concatenate([constant, given.units, components], axis=1), "r")
    constant, units, components = np.split(triangle, [1, size + 1], axis=1)
    # Float32 rounds their lengths.
    components = components / np.maximum(np.linalg.norm(components, axis=0), 1e-300)
    left, values, _ = np.linalg.svd(units, full_matrices=False)
    computed = 3.0 * math.sqrt(size) * min(given.rounding, _SINGLE)
    # Shorter types round numbers of single precision once.
    rounding = max(computed, (2.0 if given.rounding <= _SINGLE else 1.0) * given.noise)
    least = max(tolerance * values.max(initial=0.0), math.sqrt(count) * rounding)
    basis = left[:, values > least]
    coordinates = np.zeros((len(triangle), len(given.varying)))
    coordinates[:, given.varying] = units * given.deviations[given.varying]
    factor = basis.T @ coordinates
    # F = C R + 1 mᵀ lies in the span of C and the constant: a small factor has all of its span.
    both = np.concatenate([basis, constant], axis=1)
    whole = np.concatenate([factor, math.sqrt(count) * given.means[None, :]])
    lengths = np.linalg.norm(whole, axis=0)
    left, values, _ = np.linalg.svd(
        whole / np.where(lengths > 0.0, lengths, 1.0), full_matrices=False
    )
    raw = both @ left[:, values > max(tolerance * values[0], computed, given.rounding)]
    # One minus the captured share would lose the digits of a share near 1.
    missed_with, missed_without = (
        np.minimum(np.sum(np.square(components - span @ (span.T @ components)), axis=0), 1.0)
        for span in (both, raw)
    )
    return Spans(missed_with, missed_without, coordinates, factor, basis.T @ components)
