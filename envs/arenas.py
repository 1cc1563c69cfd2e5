"""Arenas by name, and custom ones from TOML files."""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.envs.core import ArenaError
from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.puddle_world import Puddle, PuddleWorld


def _empty() -> PuddleWorld:
    """No puddle at all."""
    return PuddleWorld()


def _sutton() -> PuddleWorld:
    """Two capsules that halve the speed (Sutton 1996)."""
    capsules = (Capsule((0.1, 0.75), (0.45, 0.75), 0.1), Capsule((0.45, 0.4), (0.45, 0.8), 0.1))
    return PuddleWorld(puddles=tuple(Puddle(capsule, 0.5) for capsule in capsules))


def _hydrogen() -> PuddleWorld:
    """Two concentric discs that halve the speed: a quarter of it in the inner one."""
    return PuddleWorld(puddles=tuple(Puddle(Disc((0.5, 0.5), r), 0.5) for r in (0.3, 0.15)))


def _two_room() -> PuddleWorld:
    """A wall with a door in the middle."""
    return _two_room_with(0.0)


def _two_room_slow() -> PuddleWorld:
    """The wall of two_room as a puddle that halves the speed."""
    return _two_room_with(0.5)


def _two_room_with(multiplier: float) -> PuddleWorld:
    walls = (_rectangle(0.4, 0.6, 0.6, 1.0), _rectangle(0.4, 0.0, 0.6, 0.4))
    return PuddleWorld(puddles=tuple(Puddle(wall, multiplier) for wall in walls))


def _rectangle(left: float, bottom: float, right: float, top: float) -> ConvexPolygon:
    return ConvexPolygon(((left, bottom), (right, bottom), (right, top), (left, top)))


ARENAS: dict[str, Callable[[], PuddleWorld]] = {
    "empty": _empty,
    "sutton": _sutton,
    "hydrogen": _hydrogen,
    "two_room": _two_room,
    "two_room_slow": _two_room_slow,
}
"""The arenas that come with the package, by name."""

SHAPES: dict[str, type[Capsule] | type[Disc] | type[ConvexPolygon]] = {
    "capsule": Capsule,
    "disc": Disc,
    "polygon": ConvexPolygon,
}
"""What ``shape`` may be in an arena file; the shape's other keys are its class's fields."""


def load_arena(name_or_path: str | Path, **overrides: Any) -> PuddleWorld:
    """Return an arena by name, or read one from a TOML file.

    A file has one ``[[puddles]]`` table per puddle, with ``multiplier``, ``shape`` and the shape's
    fields: "capsule" (start, end, radius), "disc" (centre, radius) or "polygon" (vertices). Beside
    them it may set any other field of ``PuddleWorld``: step_size, noise, goal, step_penalty,
    puddle_penalty, max_steps.

    Args:
        name_or_path: a key of ``ARENAS``, or the path of a file that ends in .toml.
        **overrides: fields of ``PuddleWorld`` to replace.

    Raises:
        ArenaError: unknown name, unreadable file, or a value outside its range.
    """
    name = str(name_or_path)
    if name.endswith(".toml"):
        arena = _read_arena(Path(name))
    elif name in ARENAS:
        arena = ARENAS[name]()
    else:
        raise ArenaError(
            f"expected an arena ({', '.join(ARENAS)}) or the path of a .toml file, got {name!r}"
        )
    _check_keys(overrides, allowed=_fields(PuddleWorld), required=set(), place="override")
    return dataclasses.replace(arena, **overrides)


def resolve_arena(arena: str | Path | PuddleWorld, *, task: bool) -> PuddleWorld:
    """Return an arena given by name, path or itself; with every part of the task on if ``task``.

    Raises:
        ArenaError: as ``load_arena``.
    """
    environment = arena if isinstance(arena, PuddleWorld) else load_arena(arena)
    return environment.with_task() if task else environment


def _read_arena(path: Path) -> PuddleWorld:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArenaError(
            f"expected a readable arena file, got {path} ({error.strerror})"
        ) from error
    except ValueError as error:  # broken TOML, and bytes that are no UTF-8
        raise ArenaError(f"expected TOML, got {path} ({error})") from error
    try:
        return arena_from_settings(settings)
    except ArenaError as error:
        raise ArenaError(f"{path}: {error}") from error


def arena_settings(environment: PuddleWorld) -> dict[str, Any]:
    """Return an arena as plain JSON values; ``arena_from_settings`` makes it again.

    Raises:
        ArenaError: a puddle has a shape that arena files do not know.
    """
    settings: dict[str, Any] = {
        field.name: getattr(environment, field.name)
        for field in dataclasses.fields(environment)
        if field.name != "puddles"
    }
    settings["step_size"] = float(environment.step_size)
    settings["noise"] = float(environment.noise)
    settings["puddles"] = [_puddle_settings(puddle) for puddle in environment.puddles]
    return settings


def _puddle_settings(puddle: Puddle) -> dict[str, Any]:
    names: dict[type, str] = {shape: name for name, shape in SHAPES.items()}
    name = names.get(type(puddle.shape))
    if name is None:
        raise ArenaError(f"expected a shape among {', '.join(SHAPES)}, got {puddle.shape!r}")
    values = {key: np.asarray(value).tolist() for key, value in vars(puddle.shape).items()}
    return {"shape": name, "multiplier": float(puddle.multiplier), **values}


def arena_from_settings(settings: Mapping[str, Any]) -> PuddleWorld:
    """Return the arena that settings in the form of an arena file describe.

    Args:
        settings: fields of ``PuddleWorld``; ``puddles`` is a list of mappings.

    Raises:
        ArenaError: an unknown or missing key, or a value outside its range.
    """
    _check_keys(settings, allowed=_fields(PuddleWorld), required=set(), place="arena")
    tables = settings.get("puddles", [])
    if not isinstance(tables, list):
        raise ArenaError(f"expected puddles to be an array of tables [[puddles]], got {tables!r}")
    puddles = []
    for index, table in enumerate(tables):
        try:
            puddles.append(_puddle_from_settings(table))
        except ArenaError as error:
            raise ArenaError(f"puddles[{index}]: {error}") from error
    return PuddleWorld(**{**settings, "puddles": tuple(puddles)})


def _puddle_from_settings(table: Any) -> Puddle:
    if not isinstance(table, dict):
        raise ArenaError(f"expected a table with shape and multiplier, got {table!r}")
    name = table.get("shape")
    if not isinstance(name, str) or name not in SHAPES:
        raise ArenaError(f"expected shape to be one of {', '.join(SHAPES)}, got {name!r}")
    shape_fields = _fields(SHAPES[name])
    required = {"shape", "multiplier", *shape_fields}
    _check_keys(table, allowed=required, required=required, place=name)
    shape: Shape = SHAPES[name](**{field: table[field] for field in shape_fields})
    return Puddle(shape, table["multiplier"])


def _fields(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def _check_keys(
    found: Mapping[str, Any], *, allowed: set[str], required: set[str], place: str
) -> None:
    unknown, missing = sorted(found.keys() - allowed), sorted(required - found.keys())
    if unknown:
        raise ArenaError(
            f"expected only {', '.join(sorted(allowed))} as keys of {place}, got {unknown[0]!r}"
        )
    if missing:
        raise ArenaError(
            f"expected {', '.join(sorted(required))} as keys of {place}, got no {missing[0]!r}"
        )
