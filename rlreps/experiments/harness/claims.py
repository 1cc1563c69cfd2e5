"""Claims as data: what is stated, and the comparison that judges it."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from rlreps.config import as_json
from rlreps.experiments.harness.frame import NotRunError
from rlreps.experiments.harness.results import Results, Text, text_of
from rlreps.runs.contrasts import Sample, Verdict, all_of

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
        judge: The verdict, or results → verdict, by comparisons of samples; ``NotRunError``, which
            samples raise where their runs are left out, says so.
        in_any_preset: Whether it is judged in runs that are not the paper's too.
    """

    statement: Text
    stated: Text
    judge: Verdict | Callable[[Results[Any]], Verdict]
    in_any_preset: bool = False

    def judged(self, results: Results[Any], *, decided: bool) -> Found:
        """Judge the claim; None where the run is not one that decides it."""
        try:
            verdict = self.judge if isinstance(self.judge, Verdict) else self.judge(results)
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


Claims = Iterable[Claim] | Callable[[Results[Any]], Iterable[Claim]]
"""Claims, or what makes them of the results: one for each maze, say."""


def differences(
    config: Any, paper: Any, free: Collection[str] = ()
) -> dict[str, tuple[object, object]]:
    """List the fields in which a configuration is not that of the paper.

    Args:
        config: The configuration.
        paper: The paper's.
        free: Fields to leave out with what they hold, dotted as in ``config.json``.

    Returns:
        Field, dotted → its value in the paper's configuration and in this one; None where it has
        no such field. Of parts with different names, the names alone.
    """
    return _differences(as_json(paper), as_json(config), "", free)


def follows(config: Any, paper: Any, free: Collection[str] = ()) -> bool:
    """Return whether a configuration is that of the paper but for fields that are free to differ.

    Verdicts on a paper's statements need this; free are fields that change no run, or on which the
    paper is silent.
    """
    return not differences(config, paper, free)


def _differences(
    theirs: Any, ours: Any, path: str, free: Collection[str]
) -> dict[str, tuple[object, object]]:
    """Compare JSON values leaf by leaf; lists are leaves unless they hold mappings."""
    if path in free or theirs == ours:
        return {}
    theirs, ours = _by_index(theirs), _by_index(ours)
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return {path: (_name_of(theirs), _name_of(ours))}
    if theirs.get("name") != ours.get("name"):
        return {path: (_name_of(theirs), _name_of(ours))}
    found: dict[str, tuple[object, object]] = {}
    for key in dict.fromkeys([*theirs, *ours]):
        inner = f"{path}.{key}".lstrip(".")
        found |= _differences(theirs.get(key), ours.get(key), inner, free)
    return found


def _by_index(value: Any) -> Any:
    """Return a list that holds mappings, or an empty one, as index → element."""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return {str(index): each for index, each in enumerate(value)}
    return value


def _name_of(value: Any) -> Any:
    return value.get("name", value) if isinstance(value, dict) else value


HALVED = "judged: the mean distance ends below half of what it was at the start"
"""The yardstick of ``halved``, in words."""


def halved(start: Sample, end: Sample) -> Verdict:
    """Judge that a mean distance ends below half of what it was at the start."""
    return (end < 0.5 * start).saying(f"{start.mean:.2f} to {end.mean:.3f}")


def falling(samples: Mapping[str, Sample]) -> Verdict:
    """Judge that each mean is below the one before."""
    pairs = itertools.pairwise(samples.items())
    return all_of({label: after < before for (_, before), (label, after) in pairs})
