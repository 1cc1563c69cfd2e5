"""Aggregates over independent runs with interval estimates, for plots and tables alike.

Intervals are percentile bootstraps (``scipy.stats.bootstrap``), except those of arithmetic means of
fewer than 20 runs, which are Student's: at 95 % a percentile interval of the mean of five runs of a
normal variable would contain the truth about 84 times in 100, and of ten runs 90 times. Bootstraps
of other statistics of few runs are too narrow. If runs of two methods share seeds, and with them
starts and fresh networks, compare them by their differences (``sign_flip_p_value``) and state which
difference they could have detected (``smallest_detectable``). Otherwise each method's runs are
resampled separately (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice").
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require, require_positive

FloatArray = npt.NDArray[np.float64]

FEWEST_BANDED = 5
"""Least number of runs for which pages and figures show an interval instead of the runs."""
_FEWEST_RESAMPLED = 20
"""Least number of runs for which the interval of a mean is a bootstrap."""
_TRIMMED = 0.25
_BATCH_ENTRIES = 2**22
"""Resampled values in memory at a time: 32 MiB."""
_RECENT = 3
"""Number of evaluations in a row that ``samples_to_reach`` examines."""


class Interval(NamedTuple):
    """An estimate with the ends of its interval.

    Attributes:
        value: A number, or [points].
        low: Lower end, of the same shape; NaN for one run.
        high: Upper end.
    """

    value: Any
    low: Any
    high: Any

    def within(self, low: float, high: float) -> "Interval":
        """Return the estimate with ends clipped to the smallest and the largest possible value."""
        return Interval(self.value, np.clip(self.low, low, high), np.clip(self.high, low, high))


def interquartile_mean(values: npt.ArrayLike, axis: int = 0) -> Any:
    """Compute the mean over an axis without the lowest and the highest quarter, rounded down."""
    import scipy.stats  # Deferred: it takes half a second to load.

    return scipy.stats.trim_mean(np.asarray(values, np.float64), _TRIMMED, axis=axis)


def mean_interval(values: npt.ArrayLike, **options: Any) -> Interval:
    """Compute the arithmetic mean over runs with its interval, Student's for fewer than 20 runs.

    Student's interval covers the mean of a normal variable as often as it states, for any number of
    runs from two on. A bootstrap resamples the same runs for all points.

    Args:
        values: [runs] or [runs, points], all finite.
        **options: ``confidence`` (0.95), and for bootstraps ``resamples`` (2000) and ``seed`` (0;
            the same values and seed give the same interval).

    Raises:
        InputError: For other shapes, no runs, values that are not finite, a confidence outside
            (0, 1) or resamples below 1. The functions below raise it likewise, unless they say that
            they accept the value.
    """
    if len(_table(values)) >= _FEWEST_RESAMPLED:
        return _one_sample(np.mean, values, **options)
    return _student(values, **options)


def interquartile_mean_interval(values: npt.ArrayLike, **options: Any) -> Interval:
    """Compute the interquartile mean over runs with its interval, as ``mean_interval`` does."""
    return _one_sample(interquartile_mean, values, **options)


def median_interval(values: npt.ArrayLike) -> Interval:
    """Compute the median of runs, which may be infinite, with its 95 % interval.

    The ends are order statistics, which assume nothing; NaN for fewer than six runs. For an even
    number of runs the median is the greater of the middle two: their mean could be infinite.

    Args:
        values: [runs], such as times to reach something; infinity for a run that never does.
    """
    from scipy import stats

    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    middle, rank = float(ordered[count // 2]), int(stats.binom.ppf(0.025, count, 0.5))
    if rank < 1:
        return Interval(middle, math.nan, math.nan)
    return Interval(middle, float(ordered[rank - 1]), float(ordered[count - rank]))


def aggregate(
    values: npt.ArrayLike, *, within: tuple[float, float] | None = None, **options: Any
) -> dict[str, Any]:
    """Compute both means for ``mean_interval``'s arguments, as columns of result files.

    Args:
        values: As for ``mean_interval``.
        within: Smallest and largest possible value, to which intervals are clipped.
        **options: As for ``mean_interval``.

    Returns:
        ``mean``, ``mean_low``, ``mean_high`` and ``interquartile_mean`` with the same ends, numbers
        or [points], and ``runs``.
    """
    found: dict[str, Any] = {}
    for name, interval in (
        ("mean", mean_interval(values, **options)),
        ("interquartile_mean", interquartile_mean_interval(values, **options)),
    ):
        interval = interval if within is None else interval.within(*within)
        found |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {**found, "runs": len(np.asarray(values))}


def pseudo_values(statistic: Callable[[FloatArray], FloatArray], runs: npt.ArrayLike) -> FloatArray:
    """Compute the jackknife's pseudo-values of a statistic of means over runs (Tukey 1958).

    Let θ be the statistic of the means of all n runs and θ₋ᵢ that without run i. The pseudo-values
    are n θ − (n − 1) θ₋ᵢ. Their mean interval is one of θ; if θ is the mean itself, they are the
    runs. They are linear in θ: pseudo-values of methods whose runs share seeds compare in pairs.

    Args:
        statistic: Means [..., choices] → [choices], for each choice of runs.
        runs: [..., runs].

    Returns:
        [runs]; for one run, the statistic itself.
    """
    table = np.asarray(runs, np.float64)
    count = table.shape[-1]
    if count == 1:
        return statistic(table)
    weights = np.column_stack([np.ones(count) / count, (1.0 - np.eye(count)) / (count - 1)])
    found = statistic(table @ weights)
    values: FloatArray = count * found[0] - (count - 1) * found[1:]
    return values


def probability_of_improvement(x: npt.ArrayLike, y: npt.ArrayLike, **options: Any) -> Interval:
    """Compute P(X > Y) + P(X = Y) / 2 for a run X of one method and a run Y of another.

    Over several tasks it is the mean of the tasks' probabilities, and runs are resampled task by
    task (Agarwal et al. 2021, Section 4.3). Only the order of runs counts, so infinite values are
    allowed. If a smaller measure is better, swap the methods.

    Args:
        x: [runs] or [runs, tasks].
        y: [other runs] or [other runs, tasks].
        **options: As for ``mean_interval``.

    Returns:
        The probability with its interval: 1/2 if neither is better. If all runs of one lie above
        all of the other, every resample gives 1 and the interval has no width, which is a limit of
        the method, not certainty.
    """
    ours, theirs = _table(x, finite=False), _table(y, finite=False)
    require(
        ours.shape[1] == theirs.shape[1],
        "the same tasks of both methods",
        (ours.shape[1], theirs.shape[1]),
    )

    def probability(*samples: FloatArray, axis: int = -1) -> Any:
        """Samples [..., runs] of the first and the second method alternate, task after task."""
        found = []
        for one, other in zip(samples[::2], samples[1::2], strict=True):
            above = one[..., :, None] > other[..., None, :]
            equal = one[..., :, None] == other[..., None, :]
            found.append((above + 0.5 * equal).mean(axis=(-2, -1)))
        return np.mean(found, axis=0)

    samples = [part for pair in zip(ours.T, theirs.T, strict=True) for part in pair]
    return _bootstrap(samples, probability, entries=ours.size * len(theirs), **options)


_FLIPS = 2**14
"""Largest number of sign flips: all flips of 14 pairs."""


def sign_flip_p_value(x: npt.ArrayLike, y: npt.ArrayLike, *, seed: int = 0) -> float:
    """Compute the two-sided p-value of the mean of x - y over pairs, by flips of their signs.

    Exact, by all 2^runs flips, up to 14 pairs; with more, by 16,384 random flips. If the methods
    are alike, both signs of a pair's difference are equally likely.

    Args:
        x: One method's runs, [runs].
        y: The other's with the same seeds in the same order, [runs].
        seed: Seed of the random flips.

    Returns:
        In (0, 1]; at least 2^(1 - runs).
    """
    import scipy.stats

    differences = _differences(x, y)
    if len(differences) < 2:
        return 1.0
    found = scipy.stats.permutation_test(
        (differences, -differences),
        lambda one, other, axis=-1: (one - other).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_FLIPS,
        axis=-1,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Adjust p-values [k] for their number (Holm 1979): those below α hold together at level α."""
    given = np.asarray(p_values, np.float64)
    inside = given.ndim == 1 and bool(np.all((given >= 0.0) & (given <= 1.0)))
    require(inside, "p-values [k] in [0, 1]", given.tolist())
    order = np.argsort(given, kind="stable")
    steps = (given.size - np.arange(given.size)) * given[order]
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def smallest_detectable(differences: npt.ArrayLike, level: float, power: float = 0.8) -> float:
    """Compute the smallest mean difference that a two-sided paired t-test would detect.

    It is what the design could have detected: a verdict of "no effect" excludes only larger
    differences. The test's statistic has a noncentral t distribution (``scipy.stats.nct``), whose
    normal approximation would promise too much for few pairs. Differences are assumed independent
    and normal with the standard deviation of these; their mean does not enter. Sign flips detect
    about as much, but not with very few pairs, whose p-value is at least 2^(1 - runs).

    Args:
        differences: Difference between the methods in each pair, [runs].
        level: Level of the test, corrected for the number of tests.
        power: Probability of detecting it, above the level.

    Returns:
        The difference; 0 if all pairs differ equally, infinite for one pair.
    """
    values = _runs(differences, "differences")
    return _detected_errors(len(values) - 1, level, power) * _standard_error(values)


def welch_interval(x: npt.ArrayLike, y: npt.ArrayLike) -> Interval:
    """Compute the mean of x less that of y with its 95 % interval, for unpaired runs.

    The interval is Welch's (1947, "The generalization of Student's problem when several different
    population variances are involved"): Student's t with the degrees of freedom of Satterthwaite.

    Args:
        x: One method's runs, [runs].
        y: Another's, [other runs].

    Returns:
        The difference with its interval; NaN ends where a method has one run.
    """
    import scipy.stats

    ours, theirs = _runs(x, "x"), _runs(y, "y")
    error, freedom = _welch(ours, theirs)
    half = float(scipy.stats.t.ppf(0.975, freedom)) * error if freedom > 0.0 else math.nan
    value = float(ours.mean() - theirs.mean())
    return Interval(value, value - half, value + half)


def welch_detectable(x: npt.ArrayLike, y: npt.ArrayLike, level: float, power: float = 0.8) -> float:
    """Compute the smallest difference that Welch's test would detect; see ``smallest_detectable``.

    Args:
        x: As for ``welch_interval``.
        y: Likewise.
        level: Of the test, corrected for the number of tests.
        power: Chance of detecting it, above the level.

    Returns:
        The difference; infinite where a method has one run.
    """
    error, freedom = _welch(_runs(x, "x"), _runs(y, "y"))
    return _detected_errors(freedom, level, power) * error


def _welch(ours: FloatArray, theirs: FloatArray) -> tuple[float, float]:
    """Compute the standard error of a difference of means, and its degrees of freedom.

    The degrees are 0 where a sample has one run.
    """
    if min(len(ours), len(theirs)) < 2:
        return math.inf, 0.0
    parts = np.array([_standard_error(each) ** 2 for each in (ours, theirs)])
    degrees = np.array([len(ours) - 1, len(theirs) - 1])
    error = float(np.sqrt(parts.sum()))
    # Without any spread every number of degrees gives the same interval.
    return error, float(error**4 / np.sum(parts**2 / degrees)) if error > 0.0 else 1.0


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def _runs(values: npt.ArrayLike, name: str) -> FloatArray:
    """Check the values of runs and return them as [runs]."""
    table = _table(values)
    require(table.shape[1] == 1, f"{name} [runs]", np.shape(values))
    return table[:, 0]


def _detected_errors(freedom: float, level: float, power: float) -> float:
    """Find the effect in standard errors that a two-sided t-test detects with a power."""
    import scipy.optimize
    import scipy.stats

    require(0.0 < level < 1.0, "a level strictly between 0 and 1", level)
    require(level < power < 1.0, f"a power strictly between the level, {level}, and 1", power)
    if freedom <= 0.0:
        return math.inf
    critical = float(scipy.stats.t.isf(level / 2.0, freedom))

    def missing(effect: float) -> float:
        """The missing power for a mean of this many standard errors."""
        # Two-sided; SciPy's own lower tail is NaN where it is small.
        ways = scipy.stats.nct.sf(critical, freedom, np.array([effect, -effect]))
        return float(power - np.sum(ways))

    high = 2.0 * critical
    while missing(high) > 0.0:
        high *= 2.0
    return float(scipy.optimize.brentq(missing, 0.0, high))


def sign_test(differences: npt.ArrayLike) -> float:
    """Compute the two-sided exact p-value of the sign test of pairs; McNemar's test if all are ±1.

    Pairs that do not differ do not count (Conover 1999, Section 3.4).
    """
    import scipy.stats

    values = np.asarray(differences, np.float64)
    more, fewer = int(np.sum(values > 0.0)), int(np.sum(values < 0.0))
    if more + fewer == 0:
        return 1.0
    return float(scipy.stats.binomtest(more, more + fewer).pvalue)


def sign_test_detectable(differences: npt.ArrayLike, level: float, power: float = 0.8) -> float:
    """Compute the smallest difference of shares that the exact sign test of pairs would detect.

    The design has as many pairs as these, and the same share of them differs against the trend.
    Exact, by the trinomial distribution of pairs that differ one way, the other way, or not.

    Args:
        differences: Differences of pairs, [pairs]; their signs count.
        level: Level of the two-sided test.
        power: Probability of detecting it.

    Returns:
        The share of pairs that differ one way less the share that differ the other way; infinite
        if even the largest possible share is not detectable.
    """
    import scipy.optimize
    import scipy.stats

    values = np.asarray(differences, np.float64)
    pairs = len(values)
    against = min(np.sum(values > 0.0), np.sum(values < 0.0)) / pairs
    more, fewer = np.indices((pairs + 1, pairs + 1))
    fewest = np.minimum(more, fewer)
    shown = 2.0 * scipy.stats.binom.cdf(fewest, more + fewer, 0.5) < level

    def missing(gained: float) -> float:
        """The missing power for a share of pairs that gain."""
        others = against / (1.0 - gained) if gained < 1.0 else 0.0
        chances = scipy.stats.binom.pmf(more, pairs, gained)
        chances = chances * scipy.stats.binom.pmf(fewer, pairs - more, min(others, 1.0))
        return float(power - np.sum(chances[shown]))

    if missing(1.0 - against) > 0.0:
        return math.inf
    return float(scipy.optimize.brentq(missing, against, 1.0 - against)) - against


def _differences(x: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """Check runs [runs] of two methods that share seeds, and return their differences."""
    ours, theirs = _table(x), _table(y)
    same = ours.shape == theirs.shape and ours.shape[1] == 1
    require(same, "runs [runs] of both methods, with the same seeds", (np.shape(x), np.shape(y)))
    differences: FloatArray = (ours - theirs)[:, 0]
    return differences


def samples_to_reach(steps: npt.ArrayLike, curves: npt.ArrayLike, threshold: float) -> FloatArray:
    """Count the environment steps after which each run has reached a threshold.

    Evaluations are noisy, so one is not enough: the threshold is reached at the second evaluation
    at or above it of any three in a row. This is where a running median of the last three, with -∞
    before the first, first reaches it.

    Args:
        steps: Steps of the evaluations, [p], increasing.
        curves: Their results, [runs, p]; NaN, as of a diverged run, is below any threshold.
        threshold: The threshold.

    Returns:
        Steps [runs] (float64), infinite for a run that never reaches it.
    """
    when, table = np.asarray(steps, np.float64), np.asarray(curves, np.float64)
    require(when.ndim == 1 and when.size >= 1, "steps [p]", f"shape {when.shape}")
    require(bool(np.all(np.diff(when) > 0.0)), "steps that increase", when.tolist())
    require(
        table.ndim == 2 and table.shape[1] == when.size,
        f"curves [runs, {when.size}]",
        f"shape {table.shape}",
    )
    require(not math.isnan(threshold), "a threshold", threshold)
    above = np.pad(table >= threshold, ((0, 0), (_RECENT - 1, 0)))
    recent = np.lib.stride_tricks.sliding_window_view(above, _RECENT, axis=1).sum(axis=2)
    reached = 2 * recent > _RECENT
    first: FloatArray = np.where(reached.any(axis=1), when[reached.argmax(axis=1)], np.inf)
    return first


def _table(values: npt.ArrayLike, *, finite: bool = True) -> FloatArray:
    """Check values and return them as [runs, points]."""
    table = np.asarray(values, dtype=np.float64)
    require(
        table.ndim in (1, 2) and table.size > 0,
        "values [runs] or [runs, points] with at least one run and one point",
        f"shape {table.shape}",
    )
    bad = table[~np.isfinite(table)] if finite else table[np.isnan(table)]
    if bad.size:
        raise InputError(
            f"expected {'finite values' if finite else 'values that can be compared'}; give a "
            f"diverged run its worst value, got {bad[0]} ({bad.size} of {table.size} values)"
        )
    return table if table.ndim == 2 else table[:, None]


def _one_sample(statistic: Callable[..., Any], values: npt.ArrayLike, **options: Any) -> Interval:
    table = _table(values)
    # A single point is a number, not an array of one estimate.
    sample = table[:, 0] if np.ndim(values) == 1 else table.T
    return _bootstrap([sample], statistic, entries=table.size, **options)


def _student(
    values: npt.ArrayLike, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Compute the mean over runs with Student's t interval; the last two options are not used."""
    import scipy.stats

    del seed
    require(0.0 < confidence < 1.0, "confidence strictly between 0 and 1", confidence)
    require_positive("resamples", resamples)
    table = _table(values)
    table = table[:, 0] if np.ndim(values) == 1 else table
    runs, value = len(table), np.asarray(table.mean(axis=0))
    half = np.full(value.shape, math.nan)
    if runs > 1:
        quantile = float(scipy.stats.t.ppf(0.5 + confidence / 2.0, runs - 1))
        half = np.asarray(quantile * table.std(axis=0, ddof=1) / math.sqrt(runs))
    return _interval(value, value - half, value + half)


def _interval(value: FloatArray, low: FloatArray, high: FloatArray) -> Interval:
    """Make an interval of numbers or [points]."""
    parts = (value, low, high)
    return Interval(*((float(part) for part in parts) if value.ndim == 0 else parts))


def _bootstrap(
    samples: Sequence[FloatArray],
    statistic: Callable[..., Any],
    *,
    entries: int,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Estimate a statistic of independent samples, runs last, with its percentile interval."""
    require(0.0 < confidence < 1.0, "confidence strictly between 0 and 1", confidence)
    require_positive("resamples", resamples)
    value = np.asarray(statistic(*samples, axis=-1), np.float64)
    low = high = np.full(value.shape, math.nan)
    if min(sample.shape[-1] for sample in samples) > 1:
        import scipy.stats

        found = scipy.stats.bootstrap(
            samples,
            statistic,
            n_resamples=resamples,
            batch=max(1, _BATCH_ENTRIES // entries),
            vectorized=True,
            axis=-1,
            confidence_level=confidence,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        low, high = np.asarray(found.low), np.asarray(found.high)
    return _interval(value, low, high)
