"""The quality of a fit, measured on held-out episodes.

Sums Σ_j γʲ c(s_{t+j+1}) of random cumulants c along held-out episodes are compared with their
predictions Q(s_t, a_t). With TD errors δ_t = c(s_{t+1}) + γ Q(s_{t+1}, a_{t+1}) − Q(s_t, a_t),

    realised sum − Q(s_t, a_t) = Σ_j γʲ δ_{t+j}.

For exact values the δ are martingale differences, so that E Σ_j γ²ʲ δ²_{t+j} is the variance due to
noise alone. A fit with larger squared errors is biased.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats

from rlreps.config import checked
from rlreps.numerics import effective_number
from rlreps.successor.fitting.basis import (
    BLOCK,
    DenseBasis,
    FourierBasis,
    UnitVectors,
    blocks_of,
)
from rlreps.successor.fitting.data import Transitions
from rlreps.successor.fitting.factors import Factors
from rlreps.successor.fitting.least_squares import LeastSquares, Steps

NUM_CUMULANTS = 32
LACKING = (
    0.05  # A cut sum counts as complete if at most this share of its weight lies after the cut.
)
# Starts at a time step count only if this share of the episodes has complete sums from that step.
# Otherwise, late starts would come only from episodes that terminate before a cut.
COMPLETE = 0.9

# Thresholds of warnings.
MISSED = 0.25  # Share of the predictable variance; errors are then half the values' deviation.
LEAST_PREDICTABLE = 0.2  # If the predictable share is smaller, MISSED is relative to this share.
OVERFIT = 0.3  # Random chains: 1 with two rows per state and action, 0.45 with six, 0.2 with ten.
# Policies of such fits to vectors are good: 0.5 with 10,000 rows of CartPole, 1.1 with 1,000.
OVERFIT_DENSE = 1.0
ROW_SUMS = 0.1  # A fit with enough rows and a small ridge deviates by a tenth of this.
FEWEST_VISITS = 10  # Counts judge vectors if observations occur so often in the mean.
UNTRIED = 0.05  # Share of states with unknown values. Above 0, since the last row may add a state.
FEWEST_ROWS = 10.0  # A component with fewer effective rows is fitted to these rows alone.
HOPELESS = -0.1  # R² and attainable R² are above it if a fit predicts the mean, and all is noise.
LEAST_HORIZON = 0.1  # Sums over a smaller share of the fit's horizon say little of its values.
FEW_COMPONENTS = 0.25  # A smaller share of components with few rows does little harm.
# Sums decide nothing if their standard deviation is below this share of the cumulants' root mean
# square: states then differ by less than a tenth of one reward.
SPREAD = 0.1

_REFERENCE = 100  # Features of the fit that trained features are compared with.
_MOST_ROWS = 20_000  # The reference fit and fitted TD errors use up to twice this many rows.
_SCALES = (0.5, 1.0, 2.0)  # Standard deviations of the arguments of Fourier functions, in radians.
_POINTS = 400


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality:
    """Measures of a fit, as JSON values.

    Attributes:
        starts: Number of held-out rows from which sums are complete.
        r_squared: R² of the predicted sums of all cumulants together; None without starts, or if
            the sums hardly vary.
        attainable: Estimated R² that noise allows. It is the R² of a reference fit if this is
            greater: a small one for features of networks, and counts for vectors that repeat.
            None if ``r_squared`` is.
        discount: γ of these sums: the fit's γ, or a smaller γ if records are too short.
        horizon: 1 / (1 − γ) of these sums as a share of the fit's 1 / (1 − γ).
        missed: Excess of the mean squared error over a bound, as a share of the variance, or of
            the mean square of sums that hardly vary. The three bounds are the noise, the error of a
            constant (if sums vary) and the error of the reference fit. Each excess is the lower end
            of its 95 % interval, and ``missed`` is the largest. None without starts.
        worse: The excess over the error of a constant alone.
        overfit: Mean squared TD error on held-out rows minus that on fitted rows, relative to
            (1 − γ²) times the variance of the sums.
        row_sums: Mean relative deviation of the row sums from 1 / (1 − γ); None if data terminate.
        untried: Share of the states reached in which no row starts and no episode ended; None for
            observations that are not indices.
        effective_rows: (Σ u²)² / Σ u⁴ over the rows of every left singular function, [d]; 0 beyond
            the rank.
        predicted: Some predicted sums, in standard deviations from the mean of the realised sums.
        realised: The realised sums, in the same units.
    """

    starts: int
    r_squared: float | None
    attainable: float | None
    discount: float
    horizon: float
    missed: float | None
    worse: float | None
    overfit: float
    row_sums: float | None
    untried: float | None
    effective_rows: tuple[float, ...]
    predicted: tuple[float, ...]
    realised: tuple[float, ...]

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of the fit: it predicts no sums, and its errors pass for noise.

        The variance due to noise is at most that of the sums. If TD errors suggest clearly more,
        they contain errors of the fit, and nothing tells whether a better fit exists.
        """
        if self.r_squared is None or self.attainable is None:
            return False
        return self.r_squared <= 0.0 and self.attainable < HOPELESS

    def lines(self) -> list[str]:
        """Describe the measures, one per line."""
        why = "sums hardly vary" if self.starts else "records are cut before sums are complete"
        said = [f"R² on held-out episodes: unknown, {why}"]
        if self.r_squared is not None and self.attainable is not None:
            allowed = f"{max(self.attainable, self.r_squared, 0.0):.3f}"
            said = [
                f"R² of sums of random cumulants on held-out episodes: {self.r_squared:.3f}; noise "
                f"allows {'an unknown part' if self.unknown else allowed} "
                f"(discount {self.discount:.3g}, {self.starts:,} starts)"
            ]
        said.append(f"excess of squared TD errors on held-out rows: {self.overfit:.3f}")
        if self.row_sums is not None:
            said.append(f"row sums: {self.row_sums:.1%} from 1 / (1 - discount) in the mean")
        if self.untried is not None:
            said.append(f"states reached in which no row starts: {self.untried:.1%}")
        known = [rows for rows in self.effective_rows if rows > 0.0] or [0.0]
        middle, least = float(np.median(known)), min(known)
        said.append(f"effective rows behind a component: median {middle:,.0f}, least {least:,.0f}")
        size = len(self.effective_rows)
        if len(known) < size:
            said.append(f"components beyond the rank of the fit, which are 0: {size - len(known)}")
        return said

    def warnings(self) -> list[str]:
        """Describe what is wrong and what to try, one problem per line; empty for a good fit."""
        attainable, missed = max(self.attainable or 0.0, 0.0), self.missed or 0.0
        row_sums, untried = self.row_sums or 0.0, self.untried or 0.0
        known = [rows for rows in self.effective_rows if rows > 0.0]
        few = sum(rows < FEWEST_ROWS for rows in known)
        # A few enormous errors make the interval of ``missed`` too wide to be useful.
        r_squared = self.r_squared or 0.0
        hopeless = r_squared < HOPELESS
        figure = f"R² on held-out episodes is {r_squared:.2f} where {attainable:.2f} is possible"
        if self.r_squared is None:
            figure = f"errors on held-out episodes are {missed:.0%} of the mean square"
        far = hopeless or missed > MISSED * max(attainable, LEAST_PREDICTABLE)
        found = [
            (
                self.overfit > (OVERFIT if self.untried is not None else OVERFIT_DENSE),
                "too few rows for the states: TD errors are much larger on held-out rows; try more "
                "data, fewer features or a larger regularisation",
            ),
            (
                far,
                f"values are far off: {figure}; try more features, another method, a smaller "
                "regularisation, transitions.numbered() if observations repeat or, for a network, "
                "more steps or a smaller learning rate",
            ),
            (
                self.unknown and not far and not self.worse,
                f"the quality of the fit is unknown: R² on held-out episodes is {r_squared:.2f}, "
                "and TD errors are larger than noise can be; try more data, or leave out numbers "
                "of the observations that do not matter",
            ),
            (
                (self.worse or 0.0) > 0.0,
                "values are worse than their mean on held-out episodes: R² is "
                f"{r_squared:.2f}; try more data, fewer features or a larger "
                "regularisation",
            ),
            (
                self.horizon < LEAST_HORIZON,
                "records are too short to judge the fit: its quality is measured with a discount "
                f"of {self.discount:.2g}; record longer episodes, or fit a smaller discount",
            ),
            (
                row_sums > ROW_SUMS,
                f"row sums are {row_sums:.0%} from 1 / (1 - discount) in the mean; try a smaller "
                "regularisation, more data or, for a network, more steps",
            ),
            (
                untried > UNTRIED,
                f"no row starts in {untried:.0%} of the states reached, whose values are unknown; "
                "try more data, or mark terminal states in terminated",
            ),
            (
                few > FEW_COMPONENTS * len(known),
                f"{few} of {len(known)} components rest on fewer than {FEWEST_ROWS:.0f} effective "
                "rows; try more data or fewer features",
            ),
        ]
        return [said for bad, said in found if bad]


def to_steps(data: Transitions) -> Steps:
    """Return the columns of transitions that least squares use."""
    return Steps(data.observation, data.action, data.next_observation, data.terminated)


def measure_quality(
    data: Transitions, held: np.ndarray, solution: LeastSquares, factors: Factors, seed: int
) -> Quality:
    """Measure the quality of a fit.

    ``held`` [N] marks the rows held out: whole episodes, or stretches of them. The solution is that
    of the other rows, and the factors are in its features. The seed decides the cumulants.
    """
    generator, kept = np.random.default_rng(seed), solution.rows
    cumulants, own = random_cumulants(data, generator), np.flatnonzero(held)
    rows = to_steps(data).at(own)
    few = kept.at(slice(None, None, max(1, len(kept.action) // _MOST_ROWS)))
    # A stretch ends with its episode, or before rows that are not held out.
    ends = data.ends[own] | np.append(np.diff(own) > 1, True)
    row_sums = None
    if not data.terminated.any():
        weights = solution.values(np.ones((len(kept.action), 1), np.float32))
        taken = solution.actions.weights(rows.action)
        sums = solution.valued(weights, rows.observation, taken)
        row_sums = float(np.abs((1.0 - solution.discount) * sums - 1.0).mean())
    discount = solution.discount
    gamma = _judged_discount(ends, rows.terminated, discount)
    solution = solution.at(gamma)
    weights = solution.values(cumulants(kept.next_observation))
    values, errors = _errors(solution, weights, cumulants, rows, ends)
    offsets = discounted_sums(errors, ends, gamma)
    scale = max(float(np.square(cumulants(rows.next_observation)).mean()), 1e-12)
    variance = max(float((values + offsets).var(axis=0).mean()), SPREAD**2 * scale)
    bounds = [discounted_sums(np.square(errors), ends, gamma**2)]
    squares = [np.square(_errors(solution, weights, cumulants, r)[1]).mean() for r in (rows, few)]
    if isinstance(solution.basis, DenseBasis) and not isinstance(solution.basis, FourierBasis):
        basis = FourierBasis.of(few.observation, _REFERENCE, 1.0, seed)
        other = LeastSquares(basis, solution.actions, few, gamma, 1e-4, solution.behaviour)
        weights = other.values(cumulants(few.next_observation))
        errors = _errors(other, weights, cumulants, rows, ends)[1]
        bounds.append(np.square(discounted_sums(errors, ends, gamma)))
    if isinstance(solution.basis, FourierBasis) and not data.continuous and data.repeats:
        numbered, table = data.numbered()
        if FEWEST_VISITS * len(table) <= len(data):
            steps = to_steps(numbered)
            other = LeastSquares(
                UnitVectors(len(table)),
                solution.actions,
                steps.at(~held),
                gamma,
                1e-6 / len(data),
                lambda states: solution.behaviour(table[states]),
            )
            of_states = cumulants(table)
            weights = other.values(of_states[other.rows.next_observation])
            errors = _errors(other, weights, of_states.__getitem__, steps.at(own), ends)[1]
            bounds.append(np.square(discounted_sums(errors, ends, gamma)))
    untried = None
    if data.num_states is not None:
        # States in which no row starts and no episode ended.
        known = np.union1d(data.observation, data.next_observation[data.terminated])
        untried = float(1.0 - np.isin(np.unique(data.next_observation), known).mean())
    return Quality(
        **_compared(
            values, offsets, bounds, _starts(ends, rows.terminated, gamma), generator, scale
        ),
        discount=gamma,
        horizon=(1.0 - discount) / (1.0 - gamma),
        overfit=float((squares[0] - squares[1]) / (variance * (1.0 - gamma**2))),
        row_sums=row_sums,
        untried=untried,
        effective_rows=_effective_rows(solution, factors),
    )


def discounted_sums(cumulants: np.ndarray, ends: np.ndarray, discount: float) -> np.ndarray:
    """Compute the discounted sum of cumulants from each row to the end of its episode, [N, k].

    Row t gets Σ_{j≥0} γʲ c(s_{t+j+1}). Its expectation given (s, a) is
    ∫ m(s, a, s⁺) c(s⁺) rho(ds⁺) if the episode is not cut.

    Args:
        cumulants: c(s') of every row, [N, k].
        ends: Whether a row is the last of its episode, [N].
        discount: γ.
    """
    sums = np.empty_like(cumulants)
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
    errors = _errors(solution, weights, cumulants, to_steps(other), other.ends)[1]
    return float(np.square(discounted_sums(errors, other.ends, solution.discount)).mean())


def random_cumulants(
    data: Transitions, generator: np.random.Generator
) -> Callable[[np.ndarray], np.ndarray]:
    """Draw functions of observations [m, ...] → [m, NUM_CUMULANTS].

    For indices they are random signs; for standardised observations z, random Fourier functions
    cos(ωᵀz + b) with ω of several scales.
    """
    if data.num_states is not None:
        signs = np.sign(generator.normal(size=(data.num_states, NUM_CUMULANTS))).astype(np.float32)
        return lambda states: signs[states]
    some = data.next_observation[:: max(1, len(data) // BLOCK)]
    some = some.reshape(len(some), -1).astype(np.float64)
    mean, deviation = some.mean(axis=0), some.std(axis=0)
    scale = np.resize(_SCALES, NUM_CUMULANTS) / math.sqrt(len(mean))
    frequencies = generator.normal(size=(len(mean), NUM_CUMULANTS)) * scale
    frequencies /= np.where(deviation > 0.0, deviation, 1.0)[:, None]
    phases = generator.uniform(0.0, 2.0 * math.pi, NUM_CUMULANTS)

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
    cumulants: Callable[[np.ndarray], np.ndarray],
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
    half = int(np.quantile(lengths, 1.0 - COMPLETE, method="lower")) // 2
    return min(discount, float(LACKING ** (1.0 / half))) if half >= 2 else discount


def _starts(ends: np.ndarray, terminated: np.ndarray, discount: float) -> np.ndarray:
    """Number the stretches of time in which complete sums start, [n]; -1 for other rows."""
    rows, lasts = np.arange(len(ends)), np.flatnonzero(ends)
    episode = np.searchsorted(lasts, rows)
    time = rows - np.append(0, lasts[:-1] + 1)[episode]
    whole = terminated[lasts][episode] | (discount ** (lasts[episode] - rows + 1.0) <= LACKING)
    share = np.bincount(time, whole) / np.maximum(np.bincount(time), 1)
    length = math.ceil(math.log(LACKING) / math.log(discount))
    return np.where(share[time] >= COMPLETE, episode * len(ends) + time // length, -1)


def _compared(
    values: np.ndarray,
    offsets: np.ndarray,
    bounds: list[np.ndarray],
    stretch: np.ndarray,
    generator: np.random.Generator,
    scale: float,
) -> dict[str, Any]:
    """Compare predicted sums [n, k] with realised sums: the first measures of ``Quality``.

    Args:
        values: Predicted sums.
        offsets: Realised sums less predicted sums.
        bounds: Squared errors, [n, k], that the fit's squared errors should not exceed on average.
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
    # One variance for all cumulants, since one of them may be (nearly) constant.
    mean, variance = realised.mean(axis=0), float(realised.var(axis=0).mean())
    varied = variance > SPREAD**2 * scale
    if not varied:
        variance = max(float(np.square(realised).mean()), 1e-12)
    lost = np.square(offsets).mean(axis=1) / variance
    least = [bound[starts].mean(axis=1) / variance for bound in bounds]
    group = np.unique(stretch[starts], return_inverse=True)[1]
    free, missed = int(group.max()), [0.0]
    constant = [np.ones_like(lost)] if varied else []
    for bound in (*least, *constant) if free else ():
        excess = lost - bound
        error = np.linalg.norm(np.bincount(group, excess - excess.mean())) / len(excess)
        error *= math.sqrt((free + 1) / free)  # The mean is fitted.
        missed.append(excess.mean() - scipy.stats.t.ppf(0.975, free) * error)
    some = [generator.integers(size, size=_POINTS) for size in values.shape]
    shown = [((sums - mean) / math.sqrt(variance))[*some].round(3) for sums in (values, realised)]
    return {
        "starts": len(starts),
        "r_squared": float(1.0 - lost.mean()) if varied else None,
        "attainable": float(1.0 - min(bound.mean() for bound in least)) if varied else None,
        "missed": float(max(missed)),
        "worse": float(max(0.0, missed[-1])) if varied else 0.0,
        "predicted": tuple(shown[0].tolist()),
        "realised": tuple(shown[1].tolist()),
    }


def _effective_rows(solution: LeastSquares, factors: Factors) -> tuple[float, ...]:
    """Return (Σ u²)² / Σ u⁴ over the rows of every left singular function, [d]."""
    # The scale of u does not matter: F = √σ u.
    u = solution.valued(factors.forward, solution.rows.observation, solution.taken)
    return tuple(np.where(factors.singular_values > 0.0, effective_number(u), 0.0).tolist())
