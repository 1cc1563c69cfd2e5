"""Measures of features: which components of a truth they hold, their health, and their use.

All functions take features F [n, p] of n states and compute in double precision. Columns are
centred unless a function says otherwise: a linear read-out has an intercept, and the truth's
components are orthogonal to the constant.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import scipy

from rlreps.config import checked
from rlreps.errors import require_memory
from rlreps.subspace import Spans, Standardised, ridge_by_leave_one_out
from rlreps.typing import DoubleArray

HEADLINE = 10
"""Number of leading components that one number speaks of."""
DORMANT = 0.025
"""τ of Sokar et al. 2023: a unit at or below this share of the mean activation is dormant."""
_DUPLICATE = 0.999
_RANKME = 1e-7
"""ε of Garrido et al. 2023."""
PENALTIES = 10.0 ** np.arange(-8.0, 2.0)
"""Candidates of ridge regressions, in units of the largest eigenvalue."""
_NEAR, _FAR = 0.01, 0.2
_SHORT = 1e-6
_STATES = 500
"""Largest number of states whose neighbours are searched."""


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
        buried: Mean share of the leading ten components that lies in directions less than a
            millionth as long as the longest.
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
    buried: float
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
    rank, sizes, balanced, buried = len(spans.factor), np.zeros(0), np.zeros(0), 0.0
    if rank:
        axes, sizes, _ = scipy.linalg.svd(spans.factor * powers, full_matrices=False)
        short = axes[:, sizes < _SHORT * sizes[0]].T @ spans.loadings[:, :HEADLINE]
        buried = float(np.mean(np.sum(np.square(short), axis=0)))
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
        buried=buried,
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
    can hold, and as findings speak of: later ones are visits of single states to themselves,
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
