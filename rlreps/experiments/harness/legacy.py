"""What experiments that write their own report use; it goes with the last of them."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from rlreps.runs.intervals import Interval, aggregate

Config = TypeVar("Config")


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Combine verdicts: False if one is, else None if one is or there is none, else True."""
    known = set(verdicts)
    return False if False in known else None if None in known or not known else True


def agrees(config: Config, paper: Config, free: Iterable[str] = ()) -> bool:
    """Return whether a configuration is that of the paper but for fields that are free to differ.

    Verdicts on a paper's statements need this; free are fields that change no run, or on which the
    paper is silent.
    """
    names = {field.name for field in dataclasses.fields(cast(Any, paper))} - {*free}
    return all(getattr(config, name) == getattr(paper, name) for name in names)


LEARNED = "judged: the mean distance ends below half of what it was at the start"
"""The yardstick of ``learned``, in words."""


def learned(start: Interval, end: Interval) -> bool | None:
    """Return whether a mean distance ends below half of what it was at the start."""
    return end.below(Interval(*(0.5 * part for part in start)))


def curve_rows(
    steps: npt.ArrayLike, runs: npt.ArrayLike, **described: object
) -> list[dict[str, object]]:
    """Aggregate distances [runs, p] at each step [p], a row of a result file for each."""
    found = aggregate(runs, within=(0.0, 1.0))
    count = found.pop("runs")
    return [
        {**described, "step": step, "runs": count, **dict(zip(found, parts, strict=True))}
        for step, *parts in zip(np.asarray(steps).tolist(), *found.values(), strict=True)
    ]
