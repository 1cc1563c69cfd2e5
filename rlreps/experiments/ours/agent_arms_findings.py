"""Whether arms improve on the first one, with intervals, and what to claim of it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlreps.experiments.ours.agent_arms import ArmRuns, Comparison
from rlreps.experiments.ours.agent_arms_config import FEWEST_SEEDS
from rlreps.experiments.results import Claim
from rlreps.report.table import format_number
from rlreps.runs.intervals import (
    Interval,
    interquartile_mean_difference,
    probability_of_improvement,
    samples_difference,
)

CONFIDENCE = 0.95
_RESAMPLES = 20_000
"""Enough for the tails of corrected intervals."""


class Advantage(NamedTuple):
    """What an arm has over another.

    Attributes:
        label: The arm.
        probability: That an agent of it has the greater mean return over training.
        mean_return: Difference of interquartile means of the mean return over training.
        samples: Of environment steps to the threshold, at most the length of training; negative
            where it needs fewer.
    """

    label: str
    probability: Interval
    mean_return: Interval
    samples: Interval

    @property
    def better_return(self) -> bool:
        """Whether the interval of the mean return lies above 0."""
        return bool(self.mean_return.low > 0.0)

    @property
    def fewer_samples(self) -> bool:
        """Whether the interval of the samples lies below 0."""
        return bool(self.samples.high < 0.0)


def advantage(
    x: ArmRuns, y: ArmRuns, threshold: float, *, confidence: float = CONFIDENCE
) -> Advantage:
    """What one arm has over another, with percentile bootstrap intervals."""
    means, samples = (
        (x.mean_returns, y.mean_returns),
        (x.samples(threshold), y.samples(threshold)),
    )
    return Advantage(
        x.label,
        probability_of_improvement(*means, confidence=confidence, resamples=_RESAMPLES),
        interquartile_mean_difference(*means, confidence=confidence, resamples=_RESAMPLES),
        samples_difference(*samples, x.config.steps, confidence=confidence, resamples=_RESAMPLES),
    )


def advantages(comparison: Comparison, *, confidence: float = CONFIDENCE) -> list[Advantage]:
    """What each arm has over the first."""
    return [
        advantage(run, comparison.baseline, comparison.threshold, confidence=confidence)
        for run in comparison.others
    ]


def corrected_confidence(comparison: Comparison) -> float:
    """Bonferroni's: that all intervals of all arms and both measures hold together at 95 %."""
    return 1.0 - (1.0 - CONFIDENCE) / num_comparisons(comparison)


def num_comparisons(comparison: Comparison) -> int:
    """Intervals that a comparison looks at: both measures of every arm but the first."""
    return 2 * len(comparison.others)


def overall_improvement(comparisons: Sequence[Comparison]) -> dict[str, Interval]:
    """Probability of improvement over all environments together, by arm that all of them have.

    Arms with other numbers of agents in other environments are left out.
    """
    found = {}
    for label in [run.label for run in comparisons[0].others]:
        pairs = [
            (run.mean_returns, comparison.baseline.mean_returns)
            for comparison in comparisons
            for run in comparison.others
            if run.label == label
        ]
        sizes = {tuple(map(len, pair)) for pair in pairs}
        if len(pairs) == len(comparisons) and len(sizes) == 1:
            ours, theirs = (np.stack(part, axis=1) for part in zip(*pairs, strict=True))
            found[label] = probability_of_improvement(ours, theirs, resamples=_RESAMPLES)
    return found


def enough_seeds(runs: Sequence[ArmRuns]) -> bool:
    """Whether there are agents enough for a verdict."""
    return all(len(run.returns) >= FEWEST_SEEDS for run in runs)


def improvement_claims(
    comparison: Comparison, *, subject: str, labels: Sequence[str] | None = None
) -> list[Claim]:
    """That at least one arm beats the first, in return or in samples.

    Args:
        comparison: The arms.
        subject: What an arm is, such as "auxiliary objective".
        labels: Arms that count; None is all. Intervals are corrected for all, as in the tables.
    """
    counted = [run.label for run in comparison.others] if labels is None else labels
    plain = [each for each in advantages(comparison) if each.label in counted]
    strict = advantages(comparison, confidence=corrected_confidence(comparison))
    corrected = [each for each in strict if each.label in counted]
    count, against = len(plain), comparison.baseline.label
    known = enough_seeds(comparison.runs)
    goal = "a 95 % interval that excludes 0" + (
        f", not corrected for the {count} arms" if count > 1 else ""
    )
    where, threshold = comparison.environment, comparison.threshold_text

    def verdict(found: Sequence[bool]) -> bool | None:
        return any(found) if known else None

    return [
        Claim(
            statement=f"{where}: at least one {subject} beats {against} in mean return over "
            "training",
            paper=goal,
            found="; ".join(f"{each.label} {signed(each.mean_return)}" for each in plain),
            holds=verdict([each.better_return for each in plain]),
        ),
        Claim(
            statement=f"{where}: at least one {subject} beats {against} in environment steps to a "
            f"return of {threshold}",
            paper=goal,
            found="; ".join(f"{each.label} {signed(each.samples)}" for each in plain),
            holds=verdict([each.fewer_samples for each in plain]),
        ),
        Claim(
            statement=f"{where}: at least one {subject} beats {against} in one of the two",
            paper=f"the same, corrected for {num_comparisons(comparison)} comparisons "
            f"(Bonferroni: intervals at {100 * corrected_confidence(comparison):.2f} %)",
            found="; ".join(
                f"{each.label}: return {signed(each.mean_return)}, steps {signed(each.samples)}"
                for each in corrected
            ),
            holds=verdict([each.better_return or each.fewer_samples for each in corrected]),
        ),
    ]


def signed(estimate: Interval) -> str:
    """A difference with its interval."""
    value, low, high = (
        ("+" if number > 0.0 else "") + format_number(number) for number in estimate
    )
    return value if np.isnan(estimate.low) else f"{value} [{low}, {high}]"
