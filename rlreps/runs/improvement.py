"""Whether one method's runs are better than another's, with interval estimates.

Runs of two methods are not paired: seeds that they share are taken for different ones. So resamples
are drawn from each method's runs by themselves (stratified bootstrap; Agarwal et al. 2021, "Deep
Reinforcement Learning at the Edge of the Statistical Precipice").
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require, require_positive
from rlreps.runs.statistics import interquartile_mean

FloatArray = npt.NDArray[np.float64]

_RECENT = 3
"""Evaluations that ``samples_to_reach`` looks at together."""


class Estimate(NamedTuple):
    """A number with the ends of its interval, which are NaN where a method has one run."""

    value: float
    low: float
    high: float


def probability_of_improvement(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """P(X > Y) + P(X = Y) / 2 for a run X of one method and a run Y of another.

    Over several tasks it is the mean of the tasks' probabilities, and runs are resampled task by
    task (Agarwal et al. 2021, Section 4.3). Only the order of runs counts, so infinite values are
    allowed. For a measure that is better where it is smaller, swap the methods.

    Args:
        x: [runs] or [runs, tasks].
        y: [other runs] or [other runs, tasks].
        confidence: Share of the bootstrap distribution between the ends of the interval.
        resamples: Bootstrap samples.
        seed: Of the resampling.

    Returns:
        The probability, with its percentile bootstrap interval: 1/2 where neither is better. Where
        all runs of one lie above all of the other, every resample says 1 and the interval has no
        width; that is a limit of the method and no certainty.

    Raises:
        InputError: For other shapes, no runs, different tasks, NaN, a confidence outside (0, 1) or
            resamples below 1.
    """
    tables = _tables(x, y, finite=False)
    # A resample's share of pairs won is a weighted mean of these, [runs, other runs] of each task.
    won = [
        (one[:, None] > other).astype(np.float64) + 0.5 * (one[:, None] == other)
        for one, other in zip(tables[0].T, tables[1].T, strict=True)
    ]
    counts = [len(table) for table in tables]

    def resampled(generator: np.random.Generator, number: int) -> FloatArray:
        """Probabilities [number]: each pair counts as often as both of its runs were drawn."""
        total = np.zeros(number)
        for wins in won:
            # Counts, not shares: sums of halves are exact, and none comes out above 1.
            drawn = [
                generator.multinomial(count, np.full(count, 1.0 / count), size=number)
                for count in counts
            ]
            pairs = np.einsum("ri,ij,rj->r", drawn[0], wins, drawn[1], optimize=True)
            total += pairs / (counts[0] * counts[1])
        return total / len(won)

    value = float(np.mean([wins.mean() for wins in won]))
    return _with_interval(value, resampled, min(counts), confidence, resamples, seed)


def interquartile_mean_difference(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """The interquartile mean of one method's runs less that of another's.

    Args:
        x: [runs], finite; see ``rlreps.runs.statistics.aggregate`` for the interquartile mean.
        y: [other runs], finite.
        confidence: Share of the bootstrap distribution between the ends of the interval.
        resamples: Bootstrap samples.
        seed: Of the resampling.

    Returns:
        The difference, with its percentile bootstrap interval.

    Raises:
        InputError: For other shapes, no runs, values that are not finite, a confidence outside
            (0, 1) or resamples below 1.
    """
    tables = _tables(x, y, finite=True)
    require(tables[0].shape[1] == 1, "runs [runs] of one task", f"shape {np.shape(x)}")
    runs = [table[:, 0] for table in tables]

    def resampled(generator: np.random.Generator, number: int) -> FloatArray:
        one, other = (
            interquartile_mean(part[generator.integers(len(part), size=(len(part), number))])
            for part in runs
        )
        difference: FloatArray = one - other
        return difference

    value = float(interquartile_mean(runs[0]) - interquartile_mean(runs[1]))
    return _with_interval(value, resampled, min(map(len, runs)), confidence, resamples, seed)


def samples_to_reach(steps: npt.ArrayLike, curves: npt.ArrayLike, threshold: float) -> FloatArray:
    """Environment steps after which each run has reached a threshold.

    Evaluations are noisy, so one of them is not enough: the threshold is reached at the second
    evaluation at or above it of any three in a row. That is where a running median of the last
    three, with -∞ before the first, first is.

    Args:
        steps: When the runs were evaluated, [p], increasing.
        curves: What was found, [runs, p]; NaN, as of a diverged run, is below any threshold.
        threshold: What to reach.

    Returns:
        Steps [runs] (float64), infinite for a run that never reaches it.

    Raises:
        InputError: For shapes that do not fit together, steps that do not increase, or a threshold
            that is NaN.
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


def samples_difference(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    cap: float,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """``interquartile_mean_difference`` of samples to reach a threshold, none more than a cap.

    A run that never got there counts as one that got there at the cap, so the difference between a
    method that does and one that does not is a lower bound in size. Negative: x needs fewer.

    Args:
        x: Samples of one method's runs, [runs]; infinity for never.
        y: Samples of the other's, [other runs].
        cap: What counts at most, such as the length of training.
        confidence: Share of the bootstrap distribution between the ends of the interval.
        resamples: Bootstrap samples.
        seed: Of the resampling.

    Raises:
        InputError: As ``interquartile_mean_difference``, or for a cap that is not finite.
    """
    require(math.isfinite(cap), "a finite cap", cap)
    capped = [np.minimum(np.asarray(part, np.float64), cap) for part in (x, y)]
    return interquartile_mean_difference(
        *capped, confidence=confidence, resamples=resamples, seed=seed
    )


def _tables(x: npt.ArrayLike, y: npt.ArrayLike, *, finite: bool) -> list[FloatArray]:
    """Both methods' values as [runs, tasks], checked."""
    tables = []
    for part in (x, y):
        table = np.asarray(part, np.float64)
        require(
            table.ndim in (1, 2) and table.size > 0,
            "values [runs] or [runs, tasks] with at least one run and one task",
            f"shape {table.shape}",
        )
        table = table if table.ndim == 2 else table[:, None]
        bad = table[~np.isfinite(table)] if finite else table[np.isnan(table)]
        if bad.size:
            raise InputError(
                "expected values that can be compared; give a diverged run its worst value, got "
                f"{bad[0]} ({bad.size} of {table.size} values)"
            )
        tables.append(table)
    tasks = [table.shape[1] for table in tables]
    require(tasks[0] == tasks[1], "the same tasks of both methods", tuple(tasks))
    return tables


def _with_interval(
    value: float,
    resampled: Callable[[np.random.Generator, int], FloatArray],
    fewest_runs: int,
    confidence: float,
    resamples: int,
    seed: int,
) -> Estimate:
    require(0.0 < confidence < 1.0, "confidence strictly between 0 and 1", confidence)
    require_positive("resamples", resamples)
    if fewest_runs == 1:
        return Estimate(value, math.nan, math.nan)
    tail = 50.0 * (1.0 - confidence)
    drawn = resampled(np.random.default_rng(seed), resamples)
    low, high = np.percentile(drawn, (tail, 100.0 - tail))
    return Estimate(value, float(low), float(high))
