"""Grids over the fields of a training configuration.

A field goes by its dotted name (``num_features``, ``optimizer.learning_rate``) or by its flag of
``rlreps train`` (``learning-rate``, ``method``), with ``-`` or ``_``.
"""

import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args, get_origin
from typing import get_type_hints as type_hints

from rlreps.config import as_json, options
from rlreps.configs.flags import MethodName
from rlreps.configs.training import TrainingConfig
from rlreps.errors import InputError, require, require_choice
from rlreps.losses import OBJECTIVES, Objective

FieldValue: TypeAlias = bool | int | float | str | tuple[int, ...] | None


class GridAxis(NamedTuple):
    """One swept field.

    Attributes:
        field: Its dotted name, with underscores.
        values: Its values, all different.
    """

    field: str
    values: tuple[FieldValue, ...]


class GridPoint(NamedTuple):
    """One point of a grid.

    Attributes:
        values: Field → value, in the order of the grid's axes.
        config: The runs there.
    """

    values: dict[str, FieldValue]
    config: TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Training runs at every point of a grid.

    Attributes:
        base: What all points share; its values of swept fields do not matter.
        grid: The swept fields, at least one.

    Raises:
        InputError: For a field that does not exist or comes twice, for values that are none, come
            twice or do not fit, or do not fit together at a point.
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
        # All points are built here: one that cannot be is refused before any is trained. The first
        # stands for the base, so that sweeps that differ in what does not matter are the same.
        object.__setattr__(self, "base", self.points[0].config)

    @functools.cached_property
    def points(self) -> tuple[GridPoint, ...]:
        """All points; the last field varies fastest."""
        return tuple(self._points())

    def _points(self) -> Iterator[GridPoint]:
        names = [axis.field for axis in self.grid]
        for combination in itertools.product(*(axis.values for axis in self.grid)):
            values = dict(zip(names, combination, strict=True))
            try:
                yield GridPoint(values, with_fields(self.base, values))
            except InputError as error:
                place = ", ".join(f"{name}={as_text(value)}" for name, value in values.items())
                raise InputError(f"{error} (at the point {place})") from error

    def as_json(self) -> dict[str, Any]:
        """The sweep as JSON values."""
        return {
            "base": as_json(self.base),
            "grid": {axis.field: [_plain(value) for value in axis.values] for axis in self.grid},
        }


def parse_grid(texts: Sequence[str]) -> tuple[GridAxis, ...]:
    """Axes from texts like ``num-features=5,10``.

    Values are separated by commas, numbers within a value by spaces; ``none`` stands for None,
    ``true`` and ``false`` for themselves.

    Raises:
        InputError: For a text that is none, a field that does not exist (saying which do), or a
            value that is not of the field's type.
    """
    return tuple(_parse_axis(text) for text in texts)


def _plain(value: FieldValue) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _parse_axis(text: str) -> GridAxis:
    name, equals, values = text.partition("=")
    require(bool(equals), "FIELD=VALUE,VALUE,... to sweep", text)
    field = name.strip().replace("-", "_")
    field = _flags().get(field, field)
    require(field in sweepable_fields(), _a_field(), name.strip())
    parse = _parser(sweepable_fields()[field])
    try:
        return GridAxis(field, tuple(parse(value.strip()) for value in values.split(",")))
    except InputError as error:
        raise InputError(f"{error} for {_words(field)}") from None


def with_fields(config: TrainingConfig, values: Mapping[str, FieldValue]) -> TrainingConfig:
    """A configuration with other values of some fields, named by their dotted names.

    Raises:
        InputError: If the values do not fit or do not fit together.
    """
    changes: dict[str, Any] = {}
    nested: dict[str, dict[str, FieldValue]] = {}
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        if dot:
            nested.setdefault(outer, {})[inner] = value
        else:
            changes[name] = value
    for outer, inside in nested.items():
        section = getattr(config, outer)
        is_objective = isinstance(section, Objective)
        changes[outer] = (
            _with_options(section, inside)
            if is_objective
            else dataclasses.replace(section, **inside)
        )
    return dataclasses.replace(config, **changes)


def _with_options(objective: Objective, values: Mapping[str, FieldValue]) -> Objective:
    """An objective with other options; another method keeps those options that both have."""
    name = str(values.get("name", objective.name))
    require_choice("method", name, tuple(OBJECTIVES))
    cls = OBJECTIVES[name]
    known = [field.name for field in options(cls)]
    given = {option: value for option, value in values.items() if option != "name"}
    for option in given:
        require(option in known, f"an option of {name} ({', '.join(known)})", option)
    kept = {f.name: getattr(objective, f.name) for f in options(objective) if f.name in known}
    sizes: dict[str, Any] = {**kept, **given}
    return cls(**sizes)


def field_value(config: TrainingConfig, field: str) -> FieldValue:
    """The value of a field, named by its dotted name."""
    section: Any = config
    for name in field.split("."):
        section = getattr(section, name)
    value: FieldValue = section
    return value


def flag_of(field: str) -> str:
    """The name of a field's flag of ``rlreps train``: what a reader knows it by."""
    short = {dotted: flag for flag, dotted in _flags().items()}
    return _words(short.get(field, field))


def as_text(value: FieldValue) -> str:
    """A value as ``parse_grid`` reads it."""
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@functools.cache
def sweepable_fields() -> Mapping[str, Any]:
    """Dotted name → type of every field of a training configuration."""
    found: dict[str, Any] = {}
    for name, hint in type_hints(TrainingConfig).items():
        if hint is Objective:
            found |= {f"{name}.{inner}": kind for inner, kind in _options_of_objectives().items()}
        elif dataclasses.is_dataclass(hint):
            found |= {f"{name}.{inner}": kind for inner, kind in type_hints(hint).items()}
        else:
            found[name] = hint
    return found


@functools.cache
def _flags() -> Mapping[str, str]:
    """Flag of ``rlreps train``, with underscores → dotted name, of nested fields."""
    found = {}
    for outer, section in type_hints(TrainingConfig).items():
        if section is Objective:
            for inner in _options_of_objectives():
                found["method" if inner == "name" else inner] = f"{outer}.{inner}"
        elif dataclasses.is_dataclass(section):
            for inner, hint in type_hints(section, include_extras=True).items():
                # Tyro's mark renames the flag: a nested name takes the name of what it names.
                marks = hint.__metadata__ if get_origin(hint) is Annotated else ()
                found[marks[0].name if marks else inner] = f"{outer}.{inner}"
    return found


def _options_of_objectives() -> dict[str, Any]:
    """Option → type of all methods together, after the method's name."""
    found: dict[str, Any] = {"name": MethodName}
    for cls in OBJECTIVES.values():
        hints = type_hints(cls)
        found |= {field.name: hints[field.name] for field in options(cls)}
    return found


def _a_field() -> str:
    return f"a field to sweep of {', '.join(map(_words, sweepable_fields()))}"


def _words(field: str) -> str:
    return field.replace("_", "-")


def _parser(hint: Any) -> Callable[[str], FieldValue]:
    """What reads a value of a type from its text, or raises an ``InputError``."""
    if get_origin(hint) is types.UnionType:
        (inner,) = (kind for kind in get_args(hint) if kind is not type(None))
        parse = _parser(inner)
        return lambda text: None if text.lower() == "none" else parse(text)
    if get_origin(hint) is tuple:
        return lambda text: tuple(_number(int, part) for part in text.split() or [text])
    if get_origin(hint) is Literal:
        return lambda text: _choice({name: name for name in get_args(hint)}, text)
    if hint is bool:
        return lambda text: _choice({"true": True, "false": False}, text.lower())
    return functools.partial(_number, hint)


def _choice(choices: Mapping[str, FieldValue], text: str) -> FieldValue:
    require(text in choices, f"one of {', '.join(choices)}", text)
    return choices[text]


def _number(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        expected = "an integer" if kind is int else "a number"
        raise InputError(f"expected {expected}, got {text!r}") from None
