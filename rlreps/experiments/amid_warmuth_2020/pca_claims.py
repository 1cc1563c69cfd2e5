"""Verdicts on losses of streaming rules, from runs that share their seeds."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.stats

from rlreps.experiments.amid_warmuth_2020.pca_findings import IMPLICIT, RuleRuns
from rlreps.experiments.results import Claim, all_hold

DoubleArray = npt.NDArray[np.float64]
Measure = Callable[[DoubleArray], DoubleArray]
"""Mean losses of several choices of runs, [..., choices] → what is compared, [choices]."""

Result = TypeVar("Result", bound=RuleRuns)

_UPPER_END = 0.975
_ROUNDING = 1e-12
"""Of a loss: differences that are no larger are those of sums taken in another order."""


def range_of_means(means: DoubleArray) -> DoubleArray:
    """Largest less smallest mean, [conditions, choices] → [choices]."""
    spread: DoubleArray = np.ptp(means, axis=0)
    return spread


class Entry(NamedTuple):
    """A rule in a comparison.

    Attributes:
        title: Its name.
        losses: Of its runs, NaN where one diverged, [runs] or [conditions, runs]; the runs of all
            rules in a comparison have the same seeds in the same order.
        text: What is compared, as the report shows it.
    """

    title: str
    losses: DoubleArray
    text: str


def is_less(
    ours: npt.ArrayLike, theirs: npt.ArrayLike, measure: Measure = lambda means: means
) -> bool | None:
    """Whether a figure of mean losses is less than another's, of runs paired by their seeds.

    What starts and orders of rows have in common drops out of the difference. Its interval is the
    jackknife's with Student's t for as many runs, of mean losses the interval of the paired t-test:
    a bootstrap's would be far too narrow for two or three runs.

    Args:
        ours: Losses [..., runs].
        theirs: Losses of runs of the same seeds, [..., runs].
        measure: What is compared; the mean losses themselves, of losses [runs].

    Returns:
        None where the 95 % interval of the difference holds 0, a run diverged or there is only one.
    """
    mine, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    runs = mine.shape[-1]
    if runs == 1 or not (np.isfinite(mine).all() and np.isfinite(other).all()):
        return None
    # All runs, then all but one: what each run moves the difference by.
    weights = np.column_stack([np.ones(runs) / runs, (1.0 - np.eye(runs)) / (runs - 1)])
    differences = measure(mine @ weights) - measure(other @ weights)
    pseudo_values = runs * differences[0] - (runs - 1) * differences[1:]
    margin = scipy.stats.t.ppf(_UPPER_END, runs - 1) * np.std(pseudo_values, ddof=1) / runs**0.5
    middle = pseudo_values.mean()
    return bool(middle < 0.0) if abs(middle) > margin + _ROUNDING * np.abs(mine).max() else None


def least_claim(
    statement: str,
    stated: str,
    ours: Entry,
    others: Sequence[Entry],
    *,
    measure: Measure = lambda means: means,
    complete: bool = True,
) -> Claim:
    """The claim that one rule has the least of all rules.

    Args:
        statement: What it is about.
        stated: What was stated beforehand.
        ours: The rule.
        others: The others.
        measure: What is compared, as for ``is_less``.
        complete: Whether all are there that the statement is about; nothing is told otherwise.
    """
    listed = ", ".join(f"{each.title} {each.text}" for each in others)
    verdict = all_hold(is_less(ours.losses, each.losses, measure) for each in others)
    return Claim(
        statement=statement,
        paper=stated,
        found=f"{ours.text}; {listed or 'no other rule'}",
        holds=verdict if complete else None,
    )


def implicit_claims(
    results: Sequence[Result],
    entry: Callable[[Result], Entry],
    statement: str,
    stated: str,
    *,
    measure: Measure = lambda means: means,
) -> list[Claim]:
    """For each k the claim that implicit Krasulina has the least of all rules.

    Args:
        results: For every rule and k.
        entry: What is compared of one.
        statement: What it is about, after the rule and k.
        stated: What was stated beforehand.
        measure: What is compared, as for ``is_less``.

    Returns:
        No claim of a k for which there is no implicit Krasulina, or nothing else.
    """
    claims = []
    for k in dict.fromkeys(each.k for each in results):
        entries = {each.rule: entry(each) for each in results if each.k == k}
        ours = entries.pop(IMPLICIT, None)
        if ours is not None and entries:
            others = list(entries.values())
            about = f"{ours.title}, k = {k}: {statement}"
            claims.append(least_claim(about, stated, ours, others, measure=measure))
    return claims
