"""The grid of a sweep: options of ``rlreps train``, their values, and the configuration at a point.

A field is an option (``learning-rate``, ``method``), with ``-`` or ``_``. A value is what the user
writes after it: a number or words; ``none``, ``true`` and ``false`` stand for themselves.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from rlreps.app.jobs.train import CHOICES, NAMES
from rlreps.app.options import Options
from rlreps.errors import InputError, require
from rlreps.training.config import TrainingConfig

_MOST_POINTS = 10_000

FieldValue: TypeAlias = int | float | str


class GridPoint(NamedTuple):
    """One point of a grid.

    Attributes:
        values: Field → value, in the order of the grid's axes.
        config: The configuration of its runs.
    """

    values: dict[str, FieldValue]
    config: TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Training runs at every point of a grid.

    Attributes:
        base: Configuration that all points share; its values of swept fields do not matter.
        grid: Swept field (``num_features``, ``method``, ``kappa0``), at least one → its values.

    Raises:
        InputError: For values that are repeated, out of range or invalid together, and for a field
            that a point's method and encoder do not have.
    """

    base: TrainingConfig
    grid: Mapping[str, tuple[FieldValue, ...]]

    def __post_init__(self) -> None:
        require(len(self.grid) >= 1, "at least one field to sweep", "none")
        for name, values in self.grid.items():
            require(len({*values}) == len(values), f"different values of {name}", values)
        count = math.prod(map(len, self.grid.values()))
        require(count <= _MOST_POINTS, f"at most {_MOST_POINTS:,} points of a grid", count)
        # Build all points here, so that an invalid point is refused before training. The first
        # point replaces the base, so that sweeps with the same points have the same configuration.
        object.__setattr__(self, "base", self.points[0].config)
        drawn: dict[str, set[int]] = {}
        for point in self.points:
            alone = repr(dataclasses.replace(point.config, seed=0, num_seeds=1))
            seeds, known = {*point.config.seeds}, drawn.setdefault(alone, set())
            twice = f"seed {min(known & seeds, default=0)} in two of them"
            require(known.isdisjoint(seeds), "points without a run in common", twice)
            known |= seeds

    @functools.cached_property
    def points(self) -> tuple[GridPoint, ...]:
        """All points; the last field varies fastest."""
        points = []
        for combination in itertools.product(*self.grid.values()):
            values = dict(zip(self.grid, combination, strict=True))
            try:
                points.append(GridPoint(values, with_fields(self.base, values)))
            except InputError as error:
                place = ", ".join(f"{name}={value}" for name, value in values.items())
                raise InputError(f"{error} (at the point {place})") from error
        return tuple(points)


def parse_grid(texts: Sequence[str]) -> dict[str, tuple[FieldValue, ...]]:
    """Read a grid from texts like ``num-features=5,10``.

    Values are separated by commas, numbers within a value by spaces.

    Raises:
        InputError: For a text without values, or a field that is repeated.
    """
    grid: dict[str, tuple[FieldValue, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        require(bool(equals), "FIELD=VALUE,VALUE,... to sweep", text)
        field = name.strip().replace("-", "_")
        require(field not in grid, "each field to be swept once", field)
        grid[field] = tuple(_value(each.strip()) for each in values.split(","))
    return grid


def with_fields(config: TrainingConfig, values: Mapping[str, FieldValue]) -> TrainingConfig:
    """Replace some fields of a configuration, as options of ``rlreps train`` would.

    If the method or the encoder changes, its options start from its own defaults.
    """
    words = list[str]()
    for field, value in values.items():
        name, text = option_of(field), str(value)
        text = text.lower() if text.lower() in ("true", "false", "none") else text
        if text in ("true", "false"):
            words.append(f"--{name}" if text == "true" else f"--no-{name}")
        else:
            words += [f"--{name}", *("None" if text == "none" else text).split()]
    asked = Options(words, "rlreps train", CHOICES, NAMES, {})
    build = asked.add(TrainingConfig, config)
    changed: TrainingConfig = build(asked.parse())
    return changed


def option_of(field: str) -> str:
    """Return the option of ``rlreps train`` for a field, without dashes before it."""
    return field.replace("_", "-")


def _value(text: str) -> FieldValue:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.replace("-", "_")
