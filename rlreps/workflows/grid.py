"""The grid of a sweep: its fields, their values, and the configuration at each point.

A field is named by its option of ``rlreps train`` (``learning-rate``, ``method``) or by its dotted
name (``optimizer.learning_rate``), with ``-`` or ``_``.
"""

import dataclasses
import difflib
import functools
import itertools
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from rlreps.config import as_json, options
from rlreps.encoders import ENCODERS
from rlreps.errors import InputError, require
from rlreps.losses import OBJECTIVES
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig

MOST_POINTS = 10_000

FieldValue: TypeAlias = bool | int | float | str | tuple[int, ...] | None

_CHOICES: dict[str, tuple[str, dict[str, type]]] = {
    "method": ("objective", OBJECTIVES),
    "encoder": ("encoder", ENCODERS),
}
"""Field that names a class → (the configuration's part, name → class)."""


class GridAxis(NamedTuple):
    """One swept field.

    Attributes:
        field: Its name: ``num_features``, ``method``, ``objective.kappa0``.
        values: Its values, all different.
    """

    field: str
    values: tuple[FieldValue, ...]


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
        grid: The swept fields, at least one.

    Raises:
        InputError: For a field that does not exist or is repeated, or for values that are missing,
            repeated, out of range or invalid together.
    """

    base: TrainingConfig
    grid: tuple[GridAxis, ...]

    def __post_init__(self) -> None:
        if not self.grid:
            raise InputError("expected at least one field to sweep, got none")
        names = [axis.field for axis in self.grid]
        for axis in self.grid:
            require(axis.field in sweepable_fields(), _a_field(), axis.field)
            require(names.count(axis.field) == 1, "each field to be swept once", axis.field)
            require(
                len(axis.values) >= 1 and len({*axis.values}) == len(axis.values),
                f"different values of {axis.field}, at least one",
                axis.values,
            )
        count = math.prod(len(axis.values) for axis in self.grid)
        require(count <= MOST_POINTS, f"at most {MOST_POINTS:,} points of a grid", count)
        # Build all points here, so that an invalid one is refused before training. The first point
        # replaces the base, so that values that do not matter do not make sweeps differ.
        object.__setattr__(self, "base", self.points[0].config)

    @functools.cached_property
    def points(self) -> tuple[GridPoint, ...]:
        """All points; the last field varies fastest."""
        names = [axis.field for axis in self.grid]
        points = []
        for combination in itertools.product(*(axis.values for axis in self.grid)):
            values = dict(zip(names, combination, strict=True))
            try:
                points.append(GridPoint(values, with_fields(self.base, values)))
            except InputError as error:
                place = ", ".join(f"{name}={as_text(value)}" for name, value in values.items())
                raise InputError(f"{error} (at the point {place})") from error
        return tuple(points)

    def as_json(self) -> dict[str, Any]:
        """Return the sweep as JSON values."""
        grid = {axis.field: as_json(axis.values) for axis in self.grid}
        return {"base": as_json(self.base), "grid": grid}


def parse_grid(texts: Sequence[str]) -> tuple[GridAxis, ...]:
    """Read axes from texts like ``num-features=5,10``.

    Values are separated by commas, numbers within a value by spaces; ``none`` stands for None,
    ``true`` and ``false`` for themselves.

    Raises:
        InputError: For a text without values, an unknown field (the message lists the known ones),
            or a value that is not of the field's type.
    """
    short = {_short(dotted): dotted for dotted in sweepable_fields()}
    axes = []
    for text in texts:
        name, equals, values = text.partition("=")
        require(bool(equals), "FIELD=VALUE,VALUE,... to sweep", text)
        field = name.strip().replace("-", "_")
        field = short.get(field, field)
        if field not in sweepable_fields():
            close = difflib.get_close_matches(
                _dashed(field), map(_dashed, [*short, *short.values()]), 1
            )
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InputError(f"expected {_a_field()}, got {name.strip()!r}{hint}")
        hint = sweepable_fields()[field]
        try:
            found = tuple(_read(hint, value.strip()) for value in values.split(","))
            axes.append(GridAxis(field, found))
        except InputError as error:
            raise InputError(f"{error} for {_dashed(field)}") from None
    return tuple(axes)


def with_fields(config: TrainingConfig, values: Mapping[str, FieldValue]) -> TrainingConfig:
    """Replace some fields of a configuration.

    Another method or encoder comes with its own defaults.

    Raises:
        InputError: If values are invalid, alone or together, or belong to options that the method
            or encoder does not have.
    """
    changes: dict[str, Any] = {}
    parts: dict[str, dict[str, FieldValue]] = {}
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        if name in _CHOICES:
            part, classes = _CHOICES[name]
            if type(getattr(config, part)) is not classes[str(value)]:
                changes[part] = classes[str(value)]()
        elif dot:
            parts.setdefault(outer, {})[inner] = value
        else:
            changes[name] = value
    for outer, inside in parts.items():
        part = changes.get(outer, getattr(config, outer))
        known = [field.name for field in options(part)]
        for inner in inside:
            require(inner in known, f"an option of {part.name} ({', '.join(known)})", inner)
        changes[outer] = dataclasses.replace(part, **inside)
    return dataclasses.replace(config, **changes)


def flag_of(field: str) -> str:
    """Return the option of ``rlreps train`` for a field, which readers know it by."""
    return _dashed(_short(field))


def as_text(value: FieldValue) -> str:
    """Write a value as ``parse_grid`` reads it."""
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@functools.cache
def sweepable_fields() -> Mapping[str, Any]:
    """Map the name of every field that can be swept to its type, over all classes that have it."""
    found: dict[str, Any] = {
        name: Literal[tuple(sorted(classes))] for name, (_, classes) in _CHOICES.items()
    }
    hints = get_type_hints(TrainingConfig)
    parts = {"objective": OBJECTIVES.values(), "encoder": ENCODERS.values()}
    found |= {name: hint for name, hint in hints.items() if name not in (*parts, "optimizer")}
    for part, classes in {**parts, "optimizer": [Optimizer]}.items():
        for cls in classes:
            inner = get_type_hints(cls)
            for field in options(cls):
                name, hint = f"{part}.{field.name}", inner[field.name]
                found[name] = found.get(name, hint) | hint
    return found


def _short(field: str) -> str:
    return "optimizer" if field == "optimizer.name" else field.rpartition(".")[2]


def _dashed(field: str) -> str:
    return field.replace("_", "-")


def _a_field() -> str:
    return f"a field to sweep of {', '.join(map(_dashed, sweepable_fields()))}"


def _read(hint: Any, text: str) -> FieldValue:
    """Read a value of a type, or of the first of several types that the text fits."""
    if get_origin(hint) in (types.UnionType, Union):
        kinds = get_args(hint)
        if type(None) in kinds and text.lower() == "none":
            return None
        expected = []
        for kind in kinds:
            if kind is not type(None):
                try:
                    return _read(kind, text)
                except InputError as error:
                    expected.append(str(error).removeprefix("expected ").rpartition(", got ")[0])
        raise InputError(f"expected {' or '.join(expected)}, got {text!r}")
    if get_origin(hint) is tuple:
        return tuple(_number(int, part) for part in text.split() or [text])
    if get_origin(hint) is Literal:
        name = text.replace("-", "_")
        require(name in get_args(hint), f"one of {', '.join(get_args(hint))}", text)
        return name
    if hint is bool:
        require(text.lower() in ("true", "false"), "one of true, false", text)
        return text.lower() == "true"
    return text if hint is str else _number(hint, text)


def _number(kind: Any, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        expected = "an integer" if kind is int else "a number"
        raise InputError(f"expected {expected}, got {text!r}") from None
