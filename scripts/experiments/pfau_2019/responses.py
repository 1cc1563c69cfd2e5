"""Inputs that features respond to.

Mean responses by place, shares of variance that known functions explain, and the inputs with the
smallest and largest responses.
"""

import numpy as np
import numpy.typing as npt
from scipy.stats import binned_statistic_2d

from rlreps.typing import DoubleArray

IndexArray = npt.NDArray[np.int64]

_SHIFTS = 99
"""Number of shifts in time; a feature that exceeds all shifted ones has a p-value of 1 %."""


def explained_shares(features: npt.ArrayLike, values: npt.ArrayLike) -> DoubleArray:
    """Compute the shares of variance [d] of features [n, d] that functions [n, m] explain linearly.

    The last third of the rows is predicted from a fit to the rest, so that many functions do not
    explain variance by chance. The share is negative if the prediction is worse than the mean.
    """
    targets, given = (np.asarray(part, np.float64) for part in (features, values))
    design = np.column_stack([np.ones(len(given)), given])
    fitted = 2 * len(targets) // 3
    normal = design[:fitted].T @ design[:fitted]
    ridge = 1e-9 * np.trace(normal) / len(normal) * np.eye(len(normal))
    weights = np.linalg.solve(normal + ridge, design[:fitted].T @ targets[:fitted])
    left = targets[fitted:] - design[fitted:] @ weights
    share: DoubleArray = 1.0 - np.mean(np.square(left), axis=0) / targets[fitted:].var(axis=0)
    return share


def mean_responses(centres: npt.ArrayLike, values: npt.ArrayLike, bins: int) -> DoubleArray:
    """Average features [n, d] over the states in which any object is in a cell of the square.

    Centres of objects are [n, objects, 2], in the unit square. The result is [bins², d], cell row ·
    bins + column with rows upwards in y; NaN for cells that no object visited.
    """
    points, features = np.asarray(centres), np.asarray(values, np.float64)
    x, y = points.reshape(-1, 2).T
    each_object = np.repeat(features, points.shape[1], axis=0).T
    edges = np.linspace(0.0, 1.0, bins + 1)
    means = binned_statistic_2d(y, x, list(each_object), bins=[edges, edges]).statistic
    return np.asarray(means, np.float64).reshape(len(each_object), -1).T


def extremes(values: npt.ArrayLike, count: int) -> IndexArray:
    """Find the rows of the ``count`` smallest and largest values of features [m, d].

    Returns:
        Rows by rising value, [2, d, count], the smallest first.
    """
    order = np.argsort(np.asarray(values), axis=0, kind="stable").T
    return np.stack([order[:, :count], order[:, -count:]])


def average_images(images: npt.NDArray[np.uint8], rows: IndexArray) -> DoubleArray:
    """Average images [m, height, width] over the last axis of rows [2, d, count]."""
    return np.stack([[images[chosen].mean(axis=0) for chosen in end] for end in rows])


def mean_pixel_difference(images: DoubleArray) -> DoubleArray:
    """Compute how far averages [2, d, height, width] of both ends differ, in grey levels [d]."""
    distance: DoubleArray = np.sqrt(np.mean(np.square(images[1] - images[0]), axis=(1, 2)))
    return distance


def mean_pixel_differences_by_chance(
    images: npt.NDArray[np.uint8], rows: IndexArray
) -> DoubleArray:
    """Compute ``mean_pixel_difference`` for rows shifted in time against the images, [shifts, d].

    A circular shift keeps how rows cluster in time and removes their relation to the images. If
    play is stationary, shifted rows are distributed like the rows of a feature without information.
    """
    shifts = len(images) * np.arange(1, _SHIFTS + 1) // (_SHIFTS + 1)
    return np.stack(
        [
            mean_pixel_difference(average_images(images, (rows + shift) % len(images)))
            for shift in shifts
        ]
    )


def find_constant(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Tell which features [m, d] are constant over the rows up to rounding, [d]."""
    table = np.asarray(values, np.float64)
    spread: npt.NDArray[np.bool_] = np.ptp(table, axis=0) <= 1e-5 * np.abs(table).max(axis=0)
    return spread
