"""Ridge regression whose penalty the exact leave-one-out error chooses."""

from typing import NamedTuple

import numpy as np

from rlreps.errors import require
from rlreps.subspace.svd import relative_tolerance


class Ridge(NamedTuple):
    """A ridge regression of one or m columns; the leave-one-out error chooses each column's λ.

    Attributes:
        weights: [d] or [d, m].
        intercept: Not penalised, [] or [m].
        strength: λ of ‖y − Φw − c‖² + λ‖w‖², [] or [m].
        error: Mean squared leave-one-out error at this λ, [] or [m].
    """

    weights: np.ndarray
    intercept: np.ndarray
    strength: np.ndarray
    error: np.ndarray

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict targets [l] or [l, m] from features [l, d]."""
        return np.asarray(features @ self.weights + self.intercept)


STRENGTHS = np.logspace(-10.0, 2.0, 49)
"""Candidates for λ, in units of the largest eigenvalue of ΦᵀΦ."""


def ridge_by_leave_one_out(
    features: np.ndarray, targets: np.ndarray, candidates: np.ndarray = STRENGTHS
) -> Ridge:
    """Fit targets [n] or [n, m] on features [n, d], each column with the λ of least error.

    The leave-one-out error is exact and needs no refitting (Allen 1974, PRESS). Its residuals are
    (y − ŷ)/(1 − h), where ŷ and the leverages h are those of the fit to all rows.

    Args:
        features: Φ; means are subtracted.
        targets: y.
        candidates: Candidates for λ, in units of the largest eigenvalue of ΦᵀΦ.

    Raises:
        InputError: If features and targets have other shapes or are not finite. A single row is
            refused too, since it has no leave-one-out error.
    """
    features, targets = np.asarray(features, np.float64), np.asarray(targets, np.float64)
    shapes = features.shape, targets.shape
    fit = features.ndim == 2 and targets.ndim in (1, 2) and len(features) == len(targets) >= 2
    require(fit, "at least two rows of features [n, d] and targets [n] or [n, m]", shapes)
    finite = bool(np.isfinite(features).all() and np.isfinite(targets).all())
    require(finite, "finite features and targets", "NaN or infinity")
    centre, mean = features.mean(axis=0), targets.mean(axis=0)
    centred = (targets - mean).reshape(len(targets), -1)
    design = features - centre
    # Divided by a power of two, exactly, squares neither over- nor underflow.
    exponent = int(np.frexp(np.abs(design).max(initial=0.0))[1])
    design = np.ldexp(design, -exponent)
    # The triangle of a tall matrix has its singular values and right singular vectors.
    triangle = np.linalg.qr(design, mode="r") if len(design) > design.shape[1] else design
    _, values, right = np.linalg.svd(triangle, full_matrices=False)
    largest = values.max(initial=0.0)
    # Rounding would give weights to directions in which these rows do not vary; others may.
    varying = values > relative_tolerance(design.shape, np.float64) * largest
    values, right = values[varying], right[varying]
    rotated = design @ right.T
    overlap = rotated.T @ centred
    strengths, errors = candidates * (largest**2 or 1.0), []
    inverses = 1.0 / (values[:, None] ** 2 + strengths)
    leverages = 1.0 / len(targets) + np.square(rotated) @ inverses
    # With leverage 1, the other rows do not determine the prediction for this row.
    others = np.maximum(1.0 - leverages, 1e-12)
    for inverse, share in zip(inverses.T, others.T, strict=True):
        residuals = (centred - rotated @ (inverse[:, None] * overlap)) / share[:, None]
        errors.append(np.mean(np.square(residuals), axis=0))
    best = np.argmin(errors, axis=0)
    chosen = np.ldexp(strengths[best], 2 * exponent)
    weights = np.ldexp(right.T @ (inverses[:, best] * overlap), -exponent)
    weights = weights.reshape(features.shape[1:] + targets.shape[1:])
    strength, error = (part.reshape(targets.shape[1:]) for part in (chosen, np.min(errors, axis=0)))
    return Ridge(weights, mean - centre @ weights, strength, error)
