"""Claims as data: what is stated, and the comparison that judges it."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from rlreps.config import as_json
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


def flatten_json(value: Any, path: str = "") -> dict[str, Any]:
    """List the leaves of JSON values by their dotted paths.

    A list is a leaf unless it holds mappings; the path of a mapping in a list includes its index.
    """
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    above = f"{path}." if path else ""
    parts = (flatten_json(each, f"{above}{name}") for name, each in value.items())
    return {inner: leaf for part in parts for inner, leaf in part.items()}


def scalars(value: Any) -> set[Any]:
    """Return every text, number and truth value in JSON values."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return {each for part in inner for each in scalars(part)}
    return {value}


def list_changed_fields(
    config: Any, paper: Any, free: Collection[str] = ()
) -> dict[str, tuple[object, object]]:
    """List the fields in which a configuration differs from the paper's.

    Args:
        config: The configuration.
        paper: The paper's configuration.
        free: Fields to leave out, with everything below them, dotted as in ``config.json``.

    Returns:
        Dotted path of a field → its values in the paper's configuration and in this one; None
        stands for a configuration without the field.
    """
    theirs, ours = flatten_json(as_json(paper)), flatten_json(as_json(config))
    return {
        path: (theirs.get(path), ours.get(path))
        for path in {**theirs, **ours}
        if theirs.get(path) != ours.get(path)
        and not any(f"{path}.".startswith(f"{each}.") for each in free)
    }


def follows(config: Any, paper: Any, free: Collection[str] = ()) -> bool:
    """Return whether a configuration equals the paper's except for free fields.

    Only such a configuration may judge a paper's statements. A free field does not change the
    result, or the paper does not specify it.
    """
    return not list_changed_fields(config, paper, free)


HALVED = "judged: the mean distance ends below half of what it was at the start"
"""The criterion of ``halved``, in words."""


def halved(start: Sample, end: Sample) -> Verdict:
    """Judge that a mean distance ends below half of what it was at the start."""
    return (end < 0.5 * start).saying(f"{start.mean:.2f} to {end.mean:.3f}")


def falling(samples: Mapping[str, Sample]) -> Verdict:
    """Judge that each mean is below the one before."""
    pairs = itertools.pairwise(samples.items())
    return all_of({label: after < before for (_, before), (label, after) in pairs})
