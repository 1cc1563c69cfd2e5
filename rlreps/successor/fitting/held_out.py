"""Measure the quality of a fit on held-out episodes.

Sums Σ_j γʲ c(s_{t+j+1}) of random cumulants c along held-out episodes are compared with their
predictions Q(s_t, a_t). With TD errors δ_t = c(s_{t+1}) + γ Q(s_{t+1}, a_{t+1}) − Q(s_t, a_t),

    realised sum − Q(s_t, a_t) = Σ_j γʲ δ_{t+j}.

For exact values the δ are martingale differences, so that E Σ_j γ²ʲ δ²_{t+j} is the variance due to
noise alone. A fit with larger squared errors is biased.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.

from rlreps.numerics import effective_number
from rlreps.successor.fitting.basis import BLOCK, FourierBasis, UnitVectors, blocks_of
from rlreps.successor.fitting.factors import Factors
from rlreps.successor.fitting.least_squares import COUNTED_RIDGE, LeastSquares, Steps
from rlreps.successor.fitting.quality import Quality
from rlreps.successor.fitting.transitions import Transitions

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


class Split(NamedTuple):
    """Transitions in two parts: the second measures what is fitted to the first.

    Attributes:
        data: All transitions.
        held: Mask of the rows held out: whole episodes, or blocks of long ones, [N].
        fitted: The other rows.
        tested: The rows held out.
    """

    data: Transitions
    held: np.ndarray
    fitted: Transitions
    tested: Transitions

    @classmethod
    def of(cls, data: Transitions, share: float, seed: int) -> "Split":
        """Hold out about a share of the rows; see ``Transitions.held_out``."""
        fitted, tested = data.split(share, seed)
        return cls(data, np.isin(data.kept, tested.kept), fitted, tested)


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """A solution that predicts the discounted sums of cumulants c, functions of observations."""

    solution: LeastSquares
    cumulants: CumulantFunction

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """Weights of Q for c, [p, m_b, k]."""
        return self.solution.values(self.cumulants(self.solution.rows.next_observation))

    def predict(self, rows: Steps, ends: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the predicted sums Q(s, a) of rows, and their TD errors, [n, k] each.

        The value of the next state is an average over its actions. With ``ends``, which marks the
        last row of each episode, the average is used only at the ends; other rows use the value of
        the action taken.
        """
        solution = self.solution
        values = solution.valued(
            self.weights, rows.observation, solution.actions.weights(rows.action)
        )
        averaged = np.ones(len(values), np.bool_) if ends is None else ends
        states = rows.next_observation[averaged]
        following = solution.behaviour(states)
        following = following * (solution.discount * ~rows.terminated[averaged, None])
        reached = np.roll(solution.discount * values, -1, axis=0)
        reached[averaged] = solution.valued(self.weights, states, following)
        return values, self.cumulants(rows.next_observation) + reached - values

    def squared_errors(self, rows: Steps, ends: np.ndarray) -> np.ndarray:
        """Return the squared errors of predicted sums; the prediction fills in after a cut."""
        errors = self.predict(rows, ends)[1]
        return np.asarray(np.square(discounted_sums(errors, ends, self.solution.discount)))


def measure_quality(split: Split, solution: LeastSquares, factors: Factors, seed: int) -> Quality:
    """Measure the quality of a fit on the rows held out.

    The solution is that of the other rows, and the factors are in its features. The seed decides
    the cumulants.
    """
    data, tested, generator = split.data, split.tested, np.random.default_rng(seed)
    cumulants = random_cumulants(data, generator)
    gamma = _judged_discount(tested, solution.discount)
    judged = Predictor(solution.with_discount(gamma), cumulants)
    rows, fitted = Steps.of(tested), solution.rows
    predicted, td_errors = judged.predict(rows, tested.ends)
    errors = discounted_sums(td_errors, tested.ends, gamma)
    # The mean squared error of a good fit is at most each of these bounds.
    bounds = {"noise": discounted_sums(np.square(td_errors), tested.ends, gamma**2)}
    few = fitted.at(slice(None, None, max(1, len(fitted.action) // _MOST_ROWS)))
    reference = _reference(split, judged, few, seed)
    if reference is not None:
        bounds["reference"] = reference
    centre = _mean_sum(split.fitted, cumulants, gamma)
    if centre is None:
        centre = (predicted + errors).mean(axis=0)
    scale = max(float(np.square(cumulants(rows.next_observation)).mean()), 1e-12)
    stretch = _starts(tested, gamma)
    variance = max(float(np.square(predicted + errors - centre).mean()), _SPREAD**2 * scale)
    squares = [np.square(judged.predict(r)[1]).mean() for r in (rows, few)]
    # Independent TD errors of variance v give sums of variance v Σ_j γ²ʲ.
    terms = float(np.mean((1.0 - gamma ** (2 * tested.steps_left)) / (1.0 - gamma**2)))
    judged_horizon = (1.0 - solution.discount) / (1.0 - gamma)
    return Quality(
        **compare_sums(predicted, errors, bounds, stretch, centre, scale, generator),
        discount=gamma,
        horizon_share=judged_horizon if (stretch >= 0).any() else 0.0,
        overfit=float((squares[0] - squares[1]) * terms / variance),
        row_sum_error=None if data.terminated.any() else _row_sum_error(solution, rows),
        unvisited=None if data.num_states is None else _unvisited(data),
        effective_rows=_effective_rows(solution, factors),
    )


def _reference(split: Split, judged: Predictor, few: Steps, seed: int) -> np.ndarray | None:
    """Return squared errors [n, k] of a reference fit on the rows held out; None without one.

    Features of networks are compared with random features on some rows, ``few``. Random features
    are compared with counts where observations repeat; the rows and the cumulants are then those of
    the observations' numbers. Other features have no reference.
    """
    data, ends = split.data, split.tested.ends
    solution, basis = judged.solution, judged.solution.basis
    gamma = solution.discount
    if isinstance(basis, UnitVectors):
        return None
    if not isinstance(basis, FourierBasis):
        small = FourierBasis.of(few.observation, _REFERENCE, 1.0, seed)
        other = LeastSquares(small, solution.actions, few, gamma, 1e-4, solution.behaviour)
        return Predictor(other, judged.cumulants).squared_errors(Steps.of(split.tested), ends)
    if data.continuous or data.distinct == 1.0:
        return None
    numbered, table = data.numbered()
    if FEWEST_VISITS * len(table) > len(data):
        return None
    steps = Steps.of(numbered)
    other = LeastSquares(
        UnitVectors(len(table)),
        solution.actions,
        steps.at(~split.held),
        gamma,
        COUNTED_RIDGE / len(data),
        lambda states: solution.behaviour(table[states]),
    )
    counted = Predictor(other, judged.cumulants(table).__getitem__)
    return counted.squared_errors(steps.at(split.held), ends)


def _row_sum_error(solution: LeastSquares, rows: Steps) -> float:
    """Return the mean relative deviation of row sums from 1 / (1 − γ)."""
    weights = solution.values(np.ones((len(solution.rows.action), 1), np.float32))
    sums = solution.valued(weights, rows.observation, solution.actions.weights(rows.action))
    return float(np.abs((1.0 - solution.discount) * sums - 1.0).mean())


def _unvisited(data: Transitions) -> float:
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
    """Return the mean squared error of predicted sums of random cumulants on other transitions."""
    predictor = Predictor(solution, random_cumulants(other, np.random.default_rng(seed)))
    return float(predictor.squared_errors(Steps.of(other), other.ends).mean())


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
        return np.asarray(np.cos(flat @ frequencies.astype(np.float32) + phases), np.float32)

    return lambda observations: np.concatenate(
        [waves(observations[some]) for some in blocks_of(len(observations))]
    )


def _judged_discount(data: Transitions, discount: float) -> float:
    """Return the discount, lowered if needed so that early sums of most records are complete."""
    if (_starts(data, discount) >= 0).any():
        return discount
    lengths = np.diff(np.flatnonzero(data.ends), prepend=-1)
    half = int(np.quantile(lengths, 1.0 - _COMPLETE, method="lower")) // 2
    return min(discount, float(_LACKING ** (1.0 / half))) if half >= 2 else discount


def _starts(data: Transitions, discount: float) -> np.ndarray:
    """Number the stretches of time in which complete sums start, [n]; -1 for other rows.

    A stretch is as long as a complete sum.
    """
    rows, lasts = np.arange(len(data)), np.flatnonzero(data.ends)
    episode = np.searchsorted(lasts, rows)
    time = rows - np.append(0, lasts[:-1] + 1)[episode]
    complete = data.terminated[lasts][episode] | (discount**data.steps_left <= _LACKING)
    share = np.bincount(time, complete) / np.maximum(np.bincount(time), 1)
    length = math.ceil(math.log(_LACKING) / math.log(discount))
    return np.where(share[time] >= _COMPLETE, episode * len(data) + time // length, -1)


def _mean_sum(data: Transitions, cumulants: CumulantFunction, discount: float) -> np.ndarray | None:
    """Return the mean of the complete sums of fitted rows, [k]; None if no sum is complete.

    This mean is the constant with which predictions are compared. The mean of the held-out sums
    would be too good a constant: the sums of few records overlap, so they vary less about their own
    mean than about the true one. Where a record is cut, the mean fills in the rest of a sum.
    """
    starts = _starts(data, discount) >= 0
    if not starts.any():
        return None
    # The weight of a cumulant is the sum of its weights in the sums that contain it, a sum backward
    # in time, which ends with the first row of an episode.
    begins = np.append(True, data.ends[:-1])
    weights = discounted_sums(1.0 * starts[::-1, None], begins[::-1], discount)[::-1, 0]
    total = sum(
        weights[some] @ cumulants(data.next_observation[some]) for some in blocks_of(len(data))
    )
    left = data.steps_left[starts]
    ended = data.terminated[np.flatnonzero(starts) + left - 1]
    return np.asarray(total / (1.0 - np.where(ended, 0.0, discount**left)).sum())


def compare_sums(
    predicted: np.ndarray,
    errors: np.ndarray,
    bounds: Mapping[str, np.ndarray],
    stretch: np.ndarray,
    centre: np.ndarray,
    scale: float,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Compute the measures of ``Quality`` that compare complete sums of cumulants.

    Args:
        predicted: Predicted sums, from every row held out, [n, k].
        errors: Realised less predicted sums, [n, k].
        bounds: Squared errors that those of the fit should not exceed on average, by name, [n, k].
        stretch: As returned by ``_starts``; sums of different stretches count as independent, [n].
        centre: The constant prediction, [k].
        scale: Mean square of the cumulants.
        generator: Chooses the sums that a figure shows.
    """
    starts = np.flatnonzero(stretch >= 0)
    if len(starts) == 0:
        figures = dict.fromkeys(("r_squared", "attainable", "missed", "worse"))
        return {"starts": 0, **figures, "predictable": 0.0, "predicted": (), "realised": ()}
    predicted, errors, stretch = predicted[starts], errors[starts], stretch[starts]
    realised = predicted + errors
    constant = np.square(realised - centre).mean(axis=1)
    # One variance for all cumulants, since one of them may be (nearly) constant.
    variance = float(constant.mean())
    varied = variance > _SPREAD**2 * scale
    if not varied:
        variance = max(float(np.square(realised).mean()), 1e-12)
    # From here on, squared errors are shares of this variance.
    constant, lost = constant / variance, np.square(errors).mean(axis=1) / variance
    least = {name: each[starts].mean(axis=1) / variance for name, each in bounds.items()}
    smallest = min(least.values(), key=np.mean)
    attainable = float(1.0 - smallest.mean())
    # About their own mean, the sums of few records vary less.
    own = float(realised.var(axis=0).mean()) / variance - float(smallest.mean())
    if 0.0 < own < attainable:
        attainable = own
    predictable = max(0.0, _least_mean(constant - smallest, stretch))
    if attainable < 0.0 and _least_mean(smallest - constant, stretch) <= 0.0:
        attainable = 0.0  # By chance, the sums vary less than their noise.
    if varied:
        least["constant"] = constant
    excess = {name: _least_mean(lost - each, stretch) for name, each in least.items()}
    some = [generator.integers(size, size=_POINTS) for size in predicted.shape]
    shown = {
        name: tuple(((sums - centre) / math.sqrt(variance))[*some].round(3).tolist())
        for name, sums in (("predicted", predicted), ("realised", realised))
    }
    return {
        "starts": len(starts),
        "r_squared": float(1.0 - lost.mean()) if varied else None,
        "attainable": attainable if varied else None,
        "predictable": predictable if varied else 0.0,
        "missed": max(0.0, *excess.values()),
        "worse": max(0.0, excess.get("constant", 0.0) - _NEGLIGIBLE),
        **shown,
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
