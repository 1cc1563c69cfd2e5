"""Measure the quality of a fit on held-out episodes.

Sums Σ_j γʲ c(s_{t+j+1}) of random cumulants c along held-out episodes are compared with their
predictions Q(s_t, a_t). With TD errors δ_t = c(s_{t+1}) + γ Q(s_{t+1}, a_{t+1}) − Q(s_t, a_t),

    realised sum − Q(s_t, a_t) = Σ_j γʲ δ_{t+j}.

For exact values the δ are martingale differences, so that E Σ_j γ²ʲ δ²_{t+j} is the variance due to
noise alone. A fit with larger squared errors is biased.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.

from rlreps.numerics import effective_number
from rlreps.successor.fitting.basis import (
    BLOCK,
    FourierBasis,
    UnitVectors,
    blocks_of,
)
from rlreps.successor.fitting.factors import Factors
from rlreps.successor.fitting.least_squares import COUNTED_RIDGE, LeastSquares, Steps
from rlreps.successor.fitting.quality import Quality
from rlreps.successor.fitting.transitions import Transitions, rows_left

_NUM_CUMULANTS = 32
FEWEST_VISITS = 10  # Counts judge vectors if observations occur so often in the mean.
# A cut sum counts as complete if at most this share of its weight lies after the cut.
_LACKING = 0.05
# Starts at a time step count only if this share of the episodes has complete sums from that step.
# Otherwise, late starts would come only from episodes that terminate before a cut.
_COMPLETE = 0.9
# Sums decide nothing if their standard deviation is below this share of the cumulants' root mean
# square: states then differ by less than a tenth of one reward.
_SPREAD = 0.1
# Values of states that hardly differ may be worse than their mean by this share of the variance.
_NEGLIGIBLE = 0.02

_REFERENCE = 100  # Features of the fit that trained features are compared with.
_MOST_ROWS = 20_000  # The reference fit and fitted TD errors use up to twice this many rows.
_SCALES = (0.5, 1.0, 2.0)  # Standard deviations of the arguments of Fourier functions, in radians.
_POINTS = 400

CumulantFunction = Callable[[np.ndarray], np.ndarray]
"""Functions of observations, [m, ...] → [m, _NUM_CUMULANTS]."""


def measure_quality(
    data: Transitions, held: np.ndarray, solution: LeastSquares, factors: Factors, seed: int
) -> Quality:
    """Measure the quality of a fit.

    ``held`` [N] marks the rows held out: whole episodes, or stretches of them. The solution is that
    of the other rows, and the factors are in its features. The seed decides the cumulants.
    """
    generator, own = np.random.default_rng(seed), np.flatnonzero(held)
    cumulants = random_cumulants(data, generator)
    rows, kept = Steps.of(data).at(own), solution.rows
    # A stretch ends with its episode, or before rows that are not held out.
    ends = data.ends[own] | np.append(np.diff(own) > 1, True)
    row_sums = None if data.terminated.any() else _row_sums(solution, rows)
    gamma = _judged_discount(ends, rows.terminated, solution.discount)
    judged = solution.with_discount(gamma)
    weights = judged.values(cumulants(kept.next_observation))
    values, errors = _errors(judged, weights, cumulants, rows, ends)
    offsets = discounted_sums(errors, ends, gamma)
    bounds = {"noise": discounted_sums(np.square(errors), ends, gamma**2)}
    few = kept.at(slice(None, None, max(1, len(kept.action) // _MOST_ROWS)))
    reference = _reference(data, held, judged, few, cumulants, seed)
    if reference is not None:
        other, tested, own_cumulants = reference
        weights_of_other = other.values(own_cumulants(other.rows.next_observation))
        errors = _errors(other, weights_of_other, own_cumulants, tested, ends)[1]
        bounds["reference"] = np.square(discounted_sums(errors, ends, gamma))
    scale = max(float(np.square(cumulants(rows.next_observation)).mean()), 1e-12)
    centre = _mean_sum(data, ~held, cumulants, gamma)
    if centre is None:
        centre = (values + offsets).mean(axis=0)
    variance = max(float(np.square(values + offsets - centre).mean()), _SPREAD**2 * scale)
    squares = [np.square(_errors(judged, weights, cumulants, r)[1]).mean() for r in (rows, few)]
    # Independent TD errors of variance v give sums of variance v Σ_j γ²ʲ.
    terms = float(np.mean((1.0 - gamma ** (2 * rows_left(ends))) / (1.0 - gamma**2)))
    starts = _starts(ends, rows.terminated, gamma)
    judged_horizon = (1.0 - solution.discount) / (1.0 - gamma)
    return Quality(
        **_compared(values, offsets, centre, bounds, starts, generator, scale),
        discount=gamma,
        horizon=judged_horizon if (starts >= 0).any() else 0.0,
        overfit=float((squares[0] - squares[1]) * terms / variance),
        row_sums=row_sums,
        untried=None if data.num_states is None else _untried(data),
        effective_rows=_effective_rows(solution, factors),
    )


def _reference(
    data: Transitions,
    held: np.ndarray,
    solution: LeastSquares,
    few: Steps,
    cumulants: CumulantFunction,
    seed: int,
) -> tuple[LeastSquares, Steps, CumulantFunction] | None:
    """Return a fit whose errors a good fit does not exceed, the held-out rows, and the cumulants.

    Features of networks are compared with random features on some rows, ``few``. Random features
    are compared with counts where observations repeat; the rows and the cumulants are then those of
    the observations' numbers. Other features have no reference.
    """
    gamma, basis = solution.discount, solution.basis
    if isinstance(basis, UnitVectors):
        return None
    if not isinstance(basis, FourierBasis):
        small = FourierBasis.of(few.observation, _REFERENCE, 1.0, seed)
        other = LeastSquares(small, solution.actions, few, gamma, 1e-4, solution.behaviour)
        return other, Steps.of(data).at(held), cumulants
    if data.continuous or data.distinct == 1.0:
        return None
    numbered, table = data.numbered()
    if FEWEST_VISITS * len(table) > len(data):
        return None
    steps = Steps.of(numbered)
    other = LeastSquares(
        UnitVectors(len(table)),
        solution.actions,
        steps.at(~held),
        gamma,
        COUNTED_RIDGE / len(data),
        lambda states: solution.behaviour(table[states]),
    )
    return other, steps.at(held), cumulants(table).__getitem__


def _row_sums(solution: LeastSquares, rows: Steps) -> float:
    """Return the mean relative deviation of row sums from 1 / (1 − γ)."""
    weights = solution.values(np.ones((len(solution.rows.action), 1), np.float32))
    sums = solution.valued(weights, rows.observation, solution.actions.weights(rows.action))
    return float(np.abs((1.0 - solution.discount) * sums - 1.0).mean())


def _untried(data: Transitions) -> float:
    """Return the share of the states reached in which no row starts and no episode ended."""
    known = np.union1d(data.observation, data.next_observation[data.terminated])
    return float(1.0 - np.isin(np.unique(data.next_observation), known).mean())


def discounted_sums(cumulants: np.ndarray, ends: np.ndarray, discount: float) -> np.ndarray:
    """Compute the discounted sum of cumulants from each row to the end of its episode, [N, k].

    Row t gets Σ_{j≥0} γʲ c(s_{t+j+1}). Its expectation given (s, a) is
    ∫ m(s, a, s⁺) c(s⁺) rho(ds⁺) if the episode is not cut.

    Args:
        cumulants: c(s') of every row, [N, k].
        ends: Whether a row is the last of its episode, [N].
        discount: γ.
    """
    sums = np.empty(cumulants.shape, np.result_type(cumulants, np.float32))
    running = np.zeros(cumulants.shape[1:], np.float64)
    for row in range(len(cumulants) - 1, -1, -1):
        running = cumulants[row] + (0.0 if ends[row] else discount) * running
        sums[row] = running
    return sums


def squared_error(solution: LeastSquares, other: Transitions, seed: int) -> float:
    """Return the mean squared error of predicted sums of random cumulants on other transitions.

    Sums run to the end of each episode. At a cut, the prediction replaces the rest of the sum.
    """
    cumulants = random_cumulants(other, np.random.default_rng(seed))
    weights = solution.values(cumulants(solution.rows.next_observation))
    errors = _errors(solution, weights, cumulants, Steps.of(other), other.ends)[1]
    return float(np.square(discounted_sums(errors, other.ends, solution.discount)).mean())


def random_cumulants(data: Transitions, generator: np.random.Generator) -> CumulantFunction:
    """Draw cumulants.

    For indices they are random signs; for standardised observations z, random Fourier functions
    cos(ωᵀz + b) with ω of several scales.
    """
    if data.num_states is not None:
        signs = np.sign(generator.normal(size=(data.num_states, _NUM_CUMULANTS))).astype(np.float32)
        return lambda states: signs[states]
    some = data.next_observation[:: max(1, len(data) // BLOCK)]
    some = some.reshape(len(some), -1).astype(np.float64)
    mean, deviation = some.mean(axis=0), some.std(axis=0)
    scale = np.resize(_SCALES, _NUM_CUMULANTS) / math.sqrt(len(mean))
    frequencies = generator.normal(size=(len(mean), _NUM_CUMULANTS)) * scale
    frequencies /= np.where(deviation > 0.0, deviation, 1.0)[:, None]
    phases = generator.uniform(0.0, 2.0 * math.pi, _NUM_CUMULANTS)

    def waves(block: np.ndarray) -> np.ndarray:
        flat = (block.reshape(len(block), -1) - mean).astype(np.float32)
        found: np.ndarray = np.cos(flat @ frequencies.astype(np.float32) + phases)
        return found.astype(np.float32)

    return lambda observations: np.concatenate(
        [waves(observations[some]) for some in blocks_of(len(observations))]
    )


def _errors(
    solution: LeastSquares,
    weights: np.ndarray,
    cumulants: CumulantFunction,
    rows: Steps,
    ends: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Q(s, a) and the TD errors of rows, [n, k] each.

    The value of the next state is an average over its actions. With ``ends``, which marks the last
    row of each stretch of time, the average is used only at the ends; other rows use the value of
    the action taken.
    """
    values = solution.valued(weights, rows.observation, solution.actions.weights(rows.action))
    averaged = np.ones(len(values), np.bool_) if ends is None else ends
    states = rows.next_observation[averaged]
    following = solution.behaviour(states)
    following = following * (solution.discount * ~rows.terminated[averaged, None])
    reached = np.roll(solution.discount * values, -1, axis=0)
    reached[averaged] = solution.valued(weights, states, following)
    return values, cumulants(rows.next_observation) + reached - values


def _judged_discount(ends: np.ndarray, terminated: np.ndarray, discount: float) -> float:
    """Return the discount, lowered if needed so that early sums of most records are complete."""
    if (_starts(ends, terminated, discount) >= 0).any():
        return discount
    lengths = np.diff(np.flatnonzero(ends), prepend=-1)
    half = int(np.quantile(lengths, 1.0 - _COMPLETE, method="lower")) // 2
    return min(discount, float(_LACKING ** (1.0 / half))) if half >= 2 else discount


def _starts(ends: np.ndarray, terminated: np.ndarray, discount: float) -> np.ndarray:
    """Number the stretches of time in which complete sums start, [n]; -1 for other rows."""
    rows, lasts = np.arange(len(ends)), np.flatnonzero(ends)
    episode = np.searchsorted(lasts, rows)
    time = rows - np.append(0, lasts[:-1] + 1)[episode]
    whole = terminated[lasts][episode] | (discount ** (lasts[episode] - rows + 1.0) <= _LACKING)
    share = np.bincount(time, whole) / np.maximum(np.bincount(time), 1)
    length = math.ceil(math.log(_LACKING) / math.log(discount))
    return np.where(share[time] >= _COMPLETE, episode * len(ends) + time // length, -1)


def _mean_sum(
    data: Transitions, kept: np.ndarray, cumulants: CumulantFunction, discount: float
) -> np.ndarray | None:
    """Return the mean of the complete sums in the rows that a fit sees, [k]; None without any.

    The held-out sums are compared with this mean. Sums that overlap are alike, so that those of few
    records vary less about their own mean than about the true one. The mean takes the place of what
    follows a cut.
    """
    own = np.flatnonzero(kept)
    ends, terminated = data.ends[own] | np.append(np.diff(own) > 1, True), data.terminated[own]
    starts = _starts(ends, terminated, discount) >= 0
    if not starts.any():
        return None
    # The weight of a cumulant is the sum of its weights in the sums that contain it.
    weights, running = np.empty(len(own)), 0.0
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        running += start
        weights[row] = running
        running = 0.0 if end else discount * running
    total = sum(
        weights[some] @ cumulants(data.next_observation[own[some]]) for some in blocks_of(len(own))
    )
    left = rows_left(ends)[starts]
    ended = terminated[np.flatnonzero(starts) + left - 1]
    return np.asarray(total / (1.0 - np.where(ended, 0.0, discount**left)).sum())


def _compared(
    values: np.ndarray,
    offsets: np.ndarray,
    centre: np.ndarray,
    bounds: Mapping[str, np.ndarray],
    stretch: np.ndarray,
    generator: np.random.Generator,
    scale: float,
) -> dict[str, Any]:
    """Compare predicted sums [n, k] with realised sums: the first measures of ``Quality``.

    Args:
        values: Predicted sums.
        offsets: Realised sums less predicted sums.
        centre: The constant prediction, [k].
        bounds: Squared errors, [n, k], that the fit's squared errors should not exceed on average:
            those of noise, and of a reference fit.
        stretch: As returned by ``_starts``; sums of different stretches count as independent.
        generator: Chooses the sums that are kept for a figure.
        scale: Mean square of the cumulants.
    """
    starts = np.flatnonzero(stretch >= 0)
    if len(starts) == 0:
        figures = dict.fromkeys(("r_squared", "attainable", "missed", "worse"))
        return {"starts": 0, **figures, "predicted": (), "realised": ()}
    values, offsets = values[starts], offsets[starts]
    realised = values + offsets
    constant = np.square(realised - centre).mean(axis=1)
    # One variance for all cumulants, since one of them may be (nearly) constant.
    variance = float(constant.mean())
    varied = variance > _SPREAD**2 * scale
    if not varied:
        variance = max(float(np.square(realised).mean()), 1e-12)
    lost = np.square(offsets).mean(axis=1) / variance
    least = {name: bound[starts].mean(axis=1) / variance for name, bound in bounds.items()}
    smallest = min(least.values(), key=np.mean)
    attainable = float(1.0 - smallest.mean())
    # About their own mean, the sums of few records vary less.
    own = float(realised.var(axis=0).mean()) / variance - float(smallest.mean())
    if 0.0 < own < attainable:
        attainable = own
    predictable = max(0.0, _least_mean(constant / variance - smallest, stretch[starts]))
    if attainable < 0.0 and _least_mean(smallest - constant / variance, stretch[starts]) <= 0.0:
        attainable = 0.0  # By chance, the sums vary less than their noise.
    if varied:
        least["constant"] = constant / variance
    excess = {name: _least_mean(lost - bound, stretch[starts]) for name, bound in least.items()}
    some = [generator.integers(size, size=_POINTS) for size in values.shape]
    shown = [((sums - centre) / math.sqrt(variance))[*some].round(3) for sums in (values, realised)]
    return {
        "starts": len(starts),
        "r_squared": float(1.0 - lost.mean()) if varied else None,
        "attainable": attainable if varied else None,
        "predictable": predictable if varied else 0.0,
        "missed": max(0.0, *excess.values()),
        "worse": max(0.0, excess.get("constant", 0.0) - _NEGLIGIBLE),
        "predicted": tuple(shown[0].tolist()),
        "realised": tuple(shown[1].tolist()),
    }


def _least_mean(values: np.ndarray, stretch: np.ndarray) -> float:
    """Return the lower end of the 95 % interval of the mean of values [n].

    Values of one stretch are correlated. The end is minus infinity for a single stretch. Stretches
    of unequal sizes n count as (Σ n)² / Σ n² stretches.
    """
    _, group, sizes = np.unique(stretch, return_inverse=True, return_counts=True)
    free = len(values) ** 2 / float(np.square(sizes).sum()) - 1.0
    if free < 0.5:
        return -math.inf
    error = np.linalg.norm(np.bincount(group, values - values.mean())) / len(values)
    error *= math.sqrt((free + 1) / free)  # The mean is fitted.
    return float(values.mean() - scipy.stats.t.ppf(0.975, free) * error)


def _effective_rows(solution: LeastSquares, factors: Factors) -> tuple[float, ...]:
    """Return (Σ u²)² / Σ u⁴ over the rows of every left singular function, [d]."""
    # The scale of u does not matter: F = √σ u.
    u = solution.valued(factors.forward, solution.rows.observation, solution.taken)
    return tuple(np.where(factors.singular_values > 0.0, effective_number(u), 0.0).tolist())
