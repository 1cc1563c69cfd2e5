"""Measures of features: which components of a truth they hold, their health, and their use.

All functions take features F [n, p] of n states and compute in double precision. Columns are
centred unless a function says otherwise: a linear read-out has an intercept, and the truth's
components are orthogonal to the constant.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from rlreps.config import checked
from rlreps.errors import require_memory
from rlreps.subspace.ridge import ridge_by_leave_one_out
from rlreps.subspace.svd import relative_tolerance
from rlreps.typing import DoubleArray

DORMANT = 0.025
"""τ of Sokar et al. 2023: a unit at or below this share of the mean activation is dormant."""
_DUPLICATE = 0.999
_RANKME = 1e-7
"""ε of Garrido et al. 2023."""
PENALTIES = 10.0 ** np.arange(-8.0, 2.0)
"""Candidates of ridge regressions, in units of the largest eigenvalue."""
_NEAR, _FAR = 0.01, 0.2
_STATES = 500
"""Largest number of states whose neighbours are searched."""


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
        noise: Median share of rounding in the deviation of units that vary.
        tolerance: Relative size at which singular values of the units count as zero.
    """

    units: DoubleArray
    varying: npt.NDArray[np.bool_]
    exponents: npt.NDArray[np.int32]
    means: DoubleArray
    deviations: DoubleArray
    noise: float
    tolerance: float


def standardise(features: np.ndarray) -> Standardised:
    """Standardise the units of features [n, p] that vary."""
    kind, real = features.dtype, features.dtype.kind == "f"
    # As for ``subspace.numerical_rank``; shorter types count as float32.
    short = np.float32 if real and kind != np.float64 else np.float64
    units = features.astype(np.float64)
    # Divided by powers of two, exactly, squares neither over- nor underflow. Below 2^-1022 the
    # inverse of a power is infinite.
    exponents = np.maximum(np.frexp(np.abs(units).max(axis=0))[1], -1022)
    units *= np.ldexp(1.0, -exponents)
    rounding = float(np.finfo(kind if real else np.float64).eps) * np.abs(units).mean(axis=0)
    means = units.mean(axis=0)
    units -= means
    units -= units.mean(axis=0)  # The first mean is rounded, also that of equal numbers.
    deviations = np.sqrt(np.mean(np.square(units), axis=0))
    varying = deviations > rounding
    shares = rounding[varying] / deviations[varying]
    return Standardised(
        units=np.compress(varying, units, axis=1) / deviations[varying],
        varying=varying,
        exponents=exponents,
        means=means,
        deviations=deviations,
        noise=float(np.median(shares)) if shares.size else 0.0,
        tolerance=relative_tolerance(features.shape, short),
    )


class Spans(NamedTuple):
    """What the spans of features hold, and the features in few coordinates.

    Attributes:
        with_intercept: ‖Qᵀu_j‖² of each component u_j, [k] in [0, 1], where Q is an orthonormal
            basis of the features and a constant. The mean over the leading k is one minus the
            subspace distance (Le Lan et al. 2023).
        without_intercept: The same in the span of the features as they are, [k].
        coordinates: Centred features in an orthonormal basis, [q, p], so that their inner products
            are those of the features, each unit divided by its power of two.
        factor: The same in a basis of their span, [r, p]; r is their numerical rank.
    """

    with_intercept: DoubleArray
    without_intercept: DoubleArray
    coordinates: DoubleArray
    factor: DoubleArray


def spans_of(given: Standardised, components: DoubleArray) -> Spans:
    """Measure what the spans of features [n, p] hold of orthonormal components [n, k].

    Columns are scaled to the same length first, so that no column counts less than another.
    Singular values within the rounding of the features' own type count as zero: of float32, or of
    float64 for features of that type and for integers, and at least the share ``given.noise``.
    """
    count, size = given.units.shape
    constant = np.full((count, 1), 1.0 / math.sqrt(count))
    # All that follows depends on inner products alone, and those of the triangle are the same.
    triangle = np.linalg.qr(np.concatenate([constant, given.units, components], axis=1), "r")
    constant, units, components = np.split(triangle, [1, size + 1], axis=1)
    left, values, _ = np.linalg.svd(units, full_matrices=False)
    least = max(given.tolerance * values.max(initial=0.0), math.sqrt(count) * given.noise)
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
    raw = both @ left[:, values > given.tolerance * values[0]]
    with_intercept, without = (
        np.minimum(np.sum(np.square(span.T @ components), axis=0), 1.0) for span in (both, raw)
    )
    return Spans(with_intercept, without, coordinates, factor)


def held_out(units: DoubleArray, components: DoubleArray, seed: int = 0) -> DoubleArray:
    """Return the R² of components [n, k] at states held out from a linear map of units: [k].

    Half of the states fit a ridge regression of standardised units [n, v], whose penalty
    leave-one-out chooses; the others are predicted. Both halves are averaged. Units beyond what the
    states can fit do not raise the R². Unlike the captured share it depends on how units are mixed.
    """
    halves = np.array_split(np.random.default_rng(seed).permutation(len(units)), 2)
    scores = []
    for train, test in (halves, halves[::-1]):
        ridge = ridge_by_leave_one_out(units[train], components[train], PENALTIES)
        scores.append(explained(components[test], ridge.predict(units[test])))
    mean: DoubleArray = np.mean(scores, axis=0)
    return mean


def explained(values: DoubleArray, predicted: DoubleArray) -> DoubleArray:
    """Return R² of predictions of values, both [m, k]: [k], at least −1."""
    spread = np.sum(np.square(values - values.mean(axis=0)), axis=0)
    missed = np.sum(np.square(values - predicted), axis=0)
    share = missed / np.maximum(spread, np.finfo(np.float64).tiny)
    score: DoubleArray = np.maximum(1.0 - share, -1.0)
    return score


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """The state of features [n, p] by themselves.

    Attributes:
        rank: Numerical rank of the centred features.
        effective_rank: exp of the entropy of σ / Σσ, σ the singular values of the centred features
            (Roy & Vetterli 2007).
        balanced_rank: The effective rank if units that vary more than the median unit are scaled
            down to its standard deviation, so that none hides others by its scale.
        rankme: The same of the features as they are, with ε = 10⁻⁷ (Garrido et al. 2023).
        stable_rank: ‖F‖²_F / ‖F‖² of the centred features.
        alpha: α-ReQ, minus the slope of the log eigenvalues of the covariance against their log
            index, over all indices up to the rank (Agrawal et al. 2022); NaN below three.
        condition: Largest over smallest singular value within the rank.
        spread: Root mean square of the standard deviations of the units.
        offset: Norm of the mean over the root mean squared norm of the centred features.
        dormant: Share of units whose mean activation is at most τ = 0.025 of the mean of all units
            (Sokar et al. 2023). If an activation is negative, standard deviations take the place of
            mean activations. Constant units count.
        duplicated: Share of units that are ± an earlier unit up to scale and shift (correlation
            above 0.999).
        rounded: Share of units that vary, but within the rounding of their means. They count as
            constant.
    """

    rank: int
    effective_rank: float
    balanced_rank: float
    rankme: float
    stable_rank: float
    alpha: float
    condition: float
    spread: float
    offset: float
    dormant: float
    duplicated: float
    rounded: float


def examine(features: np.ndarray, given: Standardised, spans: Spans) -> Health:
    """Compute the health of features [n, p], whose standardised units and spans are known."""
    varying, lengths = given.varying, np.linalg.norm(spans.coordinates, axis=0)
    directions = spans.coordinates / np.where(varying, lengths, 1.0)
    alike = (np.abs(np.triu(directions.T @ directions, 1)) > _DUPLICATE).any(axis=0)
    largest = int(given.exponents.max())
    powers = np.ldexp(1.0, given.exponents - largest)
    means, deviations = given.means * powers, given.deviations * powers
    spread = math.sqrt(np.mean(np.square(deviations)))
    rank, sizes, balanced = len(spans.factor), np.zeros(0), np.zeros(0)
    if rank:
        sizes = scipy.linalg.svdvals(spans.factor * powers)
        lengths = np.linalg.norm(spans.factor, axis=0)
        median = float(np.quantile(deviations[varying], 0.5, method="lower"))
        weights = np.minimum(deviations / max(median, np.finfo(np.float64).tiny), 1.0)
        balanced = scipy.linalg.svdvals(
            spans.factor * (weights / np.where(lengths > 0.0, lengths, 1.0))
        )
    whole = np.concatenate([math.sqrt(len(features)) * means[None, :], spans.coordinates * powers])
    raw, found = np.zeros(min(features.shape)), scipy.linalg.svdvals(whole)
    raw[: len(found)] = found[: len(raw)]
    # A unit may be within the rounding of others.
    sizes = sizes[sizes > np.finfo(np.float64).eps * sizes.max(initial=0.0)]
    eigenvalues = np.square(sizes)
    alpha = math.nan
    if len(sizes) >= 3:
        index = np.log(np.arange(1, len(sizes) + 1))
        alpha = -float(np.polyfit(index, np.log(eigenvalues), 1)[0])
    activations = means if features.min() >= 0 else deviations
    quiet = ~varying | (activations <= DORMANT * activations.mean())
    return Health(
        rank=rank,
        effective_rank=_exponential_entropy(sizes),
        balanced_rank=_exponential_entropy(balanced),
        rankme=_exponential_entropy(raw, _RANKME),
        stable_rank=float(np.sum(eigenvalues) / eigenvalues[0]) if len(sizes) else 0.0,
        alpha=alpha,
        condition=float(sizes[0] / sizes[-1]) if len(sizes) else math.inf,
        spread=math.ldexp(spread, largest),
        offset=math.sqrt(np.mean(np.square(means))) / (spread or 1.0),
        dormant=float(quiet.mean()),
        duplicated=float(alike.mean()),
        rounded=float((~varying & (features != features[0]).any(axis=0)).mean()),
    )


def find_aliases(
    units: DoubleArray, truth: DoubleArray, seed: int = 0
) -> tuple[float, npt.NDArray[np.int64]]:
    """Find states that are one in the features although the truth tells them apart.

    Two states are aliased if their features are closer than a neighbour in the truth typically is
    and closer than a hundredth of the median distance, but their truths farther apart than a fifth
    of the median distance. Of the truth, pass as many leading components as features of this rank
    can hold, and as the verdict speaks of: later ones are visits of single states to themselves,
    by which all states are far apart. So no states are aliased in the leading components alone.

    Args:
        units: Standardised units, [n, v], so that no unit hides others by its scale.
        truth: Leading components, weighted by their singular values: F_k Σ_k, [n, k].
        seed: Seed of the draw of at most 500 states whose aliases are searched.

    Returns:
        The share of the drawn states that have an alias, and aliased pairs [pairs, 2], one for each
        such state, those farthest apart in the truth first.

    Raises:
        InputError: If the distances do not fit into memory.
    """
    chosen = np.random.default_rng(seed).permutation(len(truth))[:_STATES]
    require_memory("distances between states", 6 * 8 * len(chosen) * len(truth))
    true, seen = _distances(truth, chosen), _distances(units, chosen)
    neighbours = seen[np.arange(len(chosen)), true.argmin(axis=1)]
    near = min(float(np.median(neighbours)), _NEAR * float(np.median(seen)))
    one = (seen <= near) & (true > _FAR * np.median(true)) & np.isfinite(true)
    farthest = np.where(one, true, -np.inf).argmax(axis=1)
    found = np.flatnonzero(one.any(axis=1))
    order = found[np.argsort(-true[found, farthest[found]])]
    return float(len(found)) / len(chosen), np.stack([chosen[order], farthest[order]], axis=1)


def _distances(rows: DoubleArray, chosen: npt.NDArray[np.int64]) -> DoubleArray:
    """Return distances of chosen rows from all rows [n, k], [chosen, n]; infinite from itself."""
    lengths = np.sum(np.square(rows), axis=1)
    both = lengths[chosen][:, None] + lengths[None, :]
    squares = -2.0 * rows[chosen] @ rows.T
    squares += both
    both *= 1e-12
    squares *= squares > both  # Differences below the rounding of the lengths are zero.
    found: DoubleArray = np.sqrt(squares, out=squares)
    found[np.arange(len(chosen)), chosen] = np.inf
    return found


def _exponential_entropy(values: DoubleArray, floor: float = 0.0) -> float:
    total = float(values.sum())
    shares = (values / total if total > 0.0 else values) + floor
    shares = shares[shares > 0.0]
    return math.exp(-float(np.sum(shares * np.log(shares)))) if shares.size else 0.0
