"""Claims as data: what is stated, and the comparison that judges it."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlreps.config import as_json
from rlreps.experiments.harness.frame import NotRunError
from rlreps.experiments.harness.results import Results, Text, text_of
from rlreps.runs.contrasts import Sample, Verdict

NOT_RUN = "not run in this preset"
"""Found of a statement whose runs a preset leaves out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """A claim with what a run found.

    Attributes:
        statement: What it is about.
        stated: What the paper states, or its number; of an experiment of ours, the goal.
        found: What was found, or its number.
        holds: Whether what was found agrees; None where this run cannot tell.
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
        stated: What the paper states, or its number; of an experiment of ours, the goal.
        judge: Results → verdict, by comparisons of samples; ``NotRunError``, which samples raise
            where their runs are left out, says so.
        in_any_preset: Whether it is judged in runs that are not the paper's too.
    """

    statement: Text
    stated: Text
    judge: Callable[[Results[Any]], Verdict]
    in_any_preset: bool = False

    def judged(self, results: Results[Any], *, decided: bool) -> Found:
        """Judge the claim; None where the run is not one that decides it."""
        try:
            verdict = self.judge(results)
        except NotRunError:
            verdict = Verdict(None, NOT_RUN)
        if not (decided or self.in_any_preset):
            verdict = verdict.open()
        return Found(
            statement=text_of(self.statement, results),
            stated=text_of(self.stated, results),
            found=verdict.words,
            holds=verdict.holds,
        )


Claims = Sequence[Claim] | Callable[[Results[Any]], Sequence[Claim]]
"""Claims, or what makes them of the results: one for each maze, say."""


def follows(config: Any, paper: Any, free: Iterable[str] = ()) -> bool:
    """Return whether a configuration is that of the paper but for fields that are free to differ.

    Verdicts on a paper's statements need this; free are fields that change no run, or on which the
    paper is silent, dotted as in ``config.json``.
    """
    spared = {*free}

    def flat(value: Any, path: str = "") -> dict[str, Any]:
        if not isinstance(value, dict) or path in spared:
            return {} if path in spared else {path: value}
        return {
            name: leaf
            for key, each in value.items()
            for name, leaf in flat(each, f"{path}.{key}".lstrip(".")).items()
        }

    return flat(as_json(config)) == flat(as_json(paper))


HALVED = "judged: the mean distance ends below half of what it was at the start"
"""The yardstick of ``halved``, in words."""


def halved(start: Sample, end: Sample) -> Verdict:
    """Judge that a mean distance ends below half of what it was at the start."""
    verdict = end < 0.5 * start
    return dataclasses.replace(verdict, words=f"{start.mean:.2f} to {end.mean:.3f}")
