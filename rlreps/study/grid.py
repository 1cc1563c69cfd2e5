"""The grid of a sweep: its fields, their values, and the configuration at each point.

A field is named by its option of ``rlreps train`` (``learning-rate``, ``method``) or by its dotted
name (``optimizer.learning_rate``), with ``-`` or ``_``.
"""

import contextlib
import dataclasses
import difflib
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from rlreps.config import as_json, from_json, options
from rlreps.encoders import EVERY_ENCODER
from rlreps.errors import InputError, require, require_choice
from rlreps.losses import OBJECTIVES
from rlreps.training import Optimizer
from rlreps.training.config import METHODS, TrainingConfig

_MOST_POINTS = 10_000

FieldValue: TypeAlias = bool | int | float | str | tuple[int, ...] | None

_CHOICES: dict[str, tuple[str, dict[str, type]]] = {
    "method": ("objective", OBJECTIVES),
    "encoder": ("encoder", EVERY_ENCODER),
}
"""Field that names a class → (the configuration's part, name → class)."""

_WORDS: dict[str, bool | None] = {"none": None, "true": True, "false": False}


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
        grid: Swept field (``num_features``, ``method``, ``objective.kappa0``), at least one → its
            values.

    Raises:
        InputError: For values that are repeated, out of range or invalid together.
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
                place = ", ".join(f"{name}={as_text(value)}" for name, value in values.items())
                raise InputError(f"{error} (at the point {place})") from error
        return tuple(points)


def parse_grid(texts: Sequence[str]) -> dict[str, tuple[FieldValue, ...]]:
    """Read a grid from texts like ``num-features=5,10``.

    Values are separated by commas, numbers within a value by spaces; ``none`` stands for None,
    ``true`` and ``false`` for themselves.

    Raises:
        InputError: For a text without values, a field that is repeated, or an unknown field (the
            message lists the known ones).
    """
    known = sweepable_fields()
    short = {_short(dotted): dotted for dotted in known}
    grid: dict[str, tuple[FieldValue, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        require(bool(equals), "FIELD=VALUE,VALUE,... to sweep", text)
        field = name.strip().replace("-", "_")
        field = short.get(field, field)
        if field not in known:
            names = [_dashed(each) for each in (*short, *known)]
            close = difflib.get_close_matches(_dashed(field), names, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            listed = ", ".join(map(_dashed, known))
            raise InputError(f"expected a field to sweep of {listed}, got {name.strip()!r}{hint}")
        require(field not in grid, "each field to be swept once", field)
        grid[field] = tuple(_value(each.strip(), known[field]) for each in values.split(","))
    return grid


def with_fields(config: TrainingConfig, values: Mapping[str, FieldValue]) -> TrainingConfig:
    """Replace some fields of a configuration.

    If the method or the encoder changes, its options start from its own defaults.

    Raises:
        InputError: If values are invalid, alone or together, or belong to options that the method
            or encoder does not have.
    """
    stored = as_json(config)
    for field, (part, classes) in _CHOICES.items():
        if field in values:
            name = str(values[field])
            require_choice(field, name, [*classes])
            if stored[part]["name"] != name:
                stored[part] = {"name": name}
    for field, value in values.items():
        part, _, inner = field.rpartition(".")
        if field not in _CHOICES:
            own = stored[part] if part else stored
            # ``hidden`` is several numbers in some encoders and one number in others.
            several = _has_several(METHODS.get(own.get("name"), TrainingConfig), inner)
            if isinstance(value, tuple) and len(value) == 1 and not several:
                (value,) = value
            own[inner] = value
    return from_json(TrainingConfig, stored, METHODS)


def require_swept_once(config: TrainingConfig, grid: Iterable[str]) -> None:
    """Raise an ``InputError`` if a swept field also has a value of its own in the base."""
    given, plain = as_json(config), as_json(TrainingConfig())
    own = {field: given[part]["name"] for field, (part, _) in _CHOICES.items()}
    default = as_json(with_fields(TrainingConfig(), own))
    for field in grid:
        part, _, inner = field.rpartition(".")
        if field in _CHOICES:
            value, expected = own[field], plain[_CHOICES[field][0]]["name"]
        else:
            value, expected = (
                (stored[part] if part else stored).get(inner) for stored in (given, default)
            )
        flag = f"--{flag_of(field)}"
        require(value == expected, f"{flag} in the grid or as an option, not both", value)


def flag_of(field: str) -> str:
    """Return the option of ``rlreps train`` for a field, as readers know the field."""
    return _dashed(_short(field))


def as_text(value: FieldValue) -> str:
    """Write a value as ``parse_grid`` reads it."""
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@functools.cache
def sweepable_fields() -> Mapping[str, bool]:
    """Map every field that can be swept to whether it has several numbers in any class."""
    parts: dict[str, Iterable[type]] = {"optimizer": [Optimizer]}
    parts |= {part: classes.values() for part, classes in _CHOICES.values()}
    plain = [each.name for each in options(TrainingConfig) if each.name not in parts]
    found = dict.fromkeys([*_CHOICES, *plain], False)
    for part, classes in parts.items():
        for cls in classes:
            for each in options(cls):
                name = f"{part}.{each.name}"
                found[name] = found.get(name, False) or _has_several(cls, each.name)
    return found


def _has_several(cls: type, name: str) -> bool:
    """Tell whether a field of a class has several numbers."""
    return any(each.name == name and isinstance(each.default, tuple) for each in options(cls))


def _short(field: str) -> str:
    return "optimizer" if field == "optimizer.name" else field.rpartition(".")[2]


def _dashed(field: str) -> str:
    return field.replace("_", "-")


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _value(text: str, several: bool) -> FieldValue:
    """Read a value, or several numbers."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if several:
        return tuple(map(_number_or_text, text.split()))  # type: ignore[arg-type]
    value = _number_or_text(text)
    return value.replace("-", "_") if isinstance(value, str) else value
