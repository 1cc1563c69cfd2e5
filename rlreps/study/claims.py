"""Claims as data: what is stated, and the comparison that judges it."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlreps.stats import Sample, Verdict, all_of
from rlreps.study.frame import NotRunError
from rlreps.study.results import Results, text_of

NOT_RUN = "not run in this preset"
"""Finding of a claim if the preset leaves out the runs that would judge it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """A claim with a run's finding.

    Attributes:
        statement: What it is about.
        stated: The paper's statement or number; for our own experiments, the goal.
        found: The finding, or its number.
        holds: Whether the finding agrees; None if this run cannot tell.
    """

    statement: str
    stated: object
    found: object
    holds: bool | None


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement and how the results judge it.

    Attributes:
        statement: What it is about.
        stated: The paper's statement or number; for our own experiments, the goal.
        judge: The verdict, or a function results → verdict that compares samples. A sample raises
            ``NotRunError`` if the preset leaves out its runs.
        in_any_preset: Whether every preset may judge the claim, not only the paper's.
    """

    statement: str
    stated: str
    judge: Verdict | Callable[[Results[Any]], Verdict]
    in_any_preset: bool = False

    def judged(self, results: Results[Any], *, decided: bool) -> JudgedClaim:
        """Judge the claim; None if the run cannot decide it."""
        try:
            verdict = self.judge if isinstance(self.judge, Verdict) else self.judge(results)
        except NotRunError:
            verdict = Verdict(None, NOT_RUN)
        if not (decided or self.in_any_preset):
            verdict = verdict.open()
        return JudgedClaim(
            statement=text_of(self.statement, results),
            stated=text_of(self.stated, results),
            found=verdict.words,
            holds=verdict.holds,
        )


Claims = Iterable[Claim] | Callable[[Results[Any]], Iterable[Claim]]
"""Claims, or a function that makes them from the results, for example one per maze."""


HALVED = "judged: the mean distance ends below half of what it was at the start"
"""The criterion of ``halved``, in words."""


def halved(start: Sample, end: Sample) -> Verdict:
    """Judge that a mean distance ends below half of what it was at the start."""
    return (end < 0.5 * start).saying(f"{start.mean:.2f} to {end.mean:.3f}")


def falling(samples: Mapping[str, Sample]) -> Verdict:
    """Judge that each mean is below the one before."""
    pairs = itertools.pairwise(samples.items())
    return all_of({label: after < before for (_, before), (label, after) in pairs})
