"""Arenas by name, and custom ones from TOML files."""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.observations import Position
from rlreps.envs.puddle_world import Puddle, PuddleWorld
from rlreps.errors import InputError, reason_of, require, require_choice


def _arena(multiplier: float, *shapes: Shape) -> PuddleWorld:
    return PuddleWorld(puddles=tuple(Puddle(shape, multiplier) for shape in shapes))


def _rectangle(left: float, bottom: float, right: float, top: float) -> ConvexPolygon:
    return ConvexPolygon(((left, bottom), (right, bottom), (right, top), (left, top)))


_HALF_THICKNESS = 0.01
"""Half the thickness of a maze's walls."""


def _maze(*walls: tuple[float, float, float, float]) -> PuddleWorld:
    """Build thin walls along the segments (x, y) to (x, y), horizontal or vertical.

    A wall is its segment and everything within 0.01 of it along either axis. Walls that meet
    overlap, so that no agent slips through the line where they touch.
    """
    half = np.array([-1.0, -1.0, 1.0, 1.0]) * _HALF_THICKNESS
    corners = np.round(np.clip(np.asarray(walls) + half, 0.0, 1.0), 6).tolist()
    return _arena(0.0, *(_rectangle(*wall) for wall in corners))


_SUTTON = (Capsule((0.1, 0.75), (0.45, 0.75), 0.1), Capsule((0.45, 0.4), (0.45, 0.8), 0.1))
_WALLS = (_rectangle(0.4, 0.6, 0.6, 1.0), _rectangle(0.4, 0.0, 0.6, 0.4))

ARENAS: dict[str, PuddleWorld] = {
    "empty": PuddleWorld(),
    # Two capsules that halve the speed (Sutton 1996).
    "sutton": _arena(0.5, *_SUTTON),
    # Two concentric discs that each halve the speed: the inner disc leaves a quarter of it.
    "hydrogen": _arena(0.5, Disc((0.5, 0.5), 0.3), Disc((0.5, 0.5), 0.15)),
    # A wall with a door in the middle.
    "two_room": _arena(0.0, *_WALLS),
    # The same wall as a puddle that halves the speed.
    "two_room_slow": _arena(0.5, *_WALLS),
    # Mazes: thin walls without gaps along lines at fifths of the square, which are lines of every
    # grid whose bins are a multiple of 5. The goal corner is a corridor's end or a room's corner.
    # Five corridors up and down, joined in turn above and below, as one serpentine.
    "five_corridors": _maze(
        (0.2, 0.0, 0.2, 0.8), (0.4, 0.2, 0.4, 1.0), (0.6, 0.0, 0.6, 0.8), (0.8, 0.2, 0.8, 1.0)
    ),
    # One corridor from the goal corner left, down, right and up, and round again to the middle.
    "spiral": _maze(
        (0.2, 0.8, 1.0, 0.8),
        (0.2, 0.2, 0.2, 0.8),
        (0.2, 0.2, 0.8, 0.2),
        (0.8, 0.2, 0.8, 0.6),
        (0.4, 0.6, 0.8, 0.6),
        (0.4, 0.4, 0.4, 0.6),
        (0.4, 0.4, 0.6, 0.4),
    ),
    # Four rooms of different sizes in a ring, with doors a tenth of the square wide.
    "four_rooms": _maze(
        (0.6, 0.0, 0.6, 0.14),
        (0.6, 0.26, 0.6, 0.64),
        (0.6, 0.76, 0.6, 1.0),
        (0.0, 0.4, 0.24, 0.4),
        (0.36, 0.4, 0.74, 0.4),
        (0.86, 0.4, 1.0, 0.4),
    ),
}
"""The arenas that come with the package, by name."""

SHAPES: dict[str, type[Capsule] | type[Disc] | type[ConvexPolygon]] = {
    "capsule": Capsule,
    "disc": Disc,
    "polygon": ConvexPolygon,
}
"""Names for ``shape`` in an arena file; the shape's other keys are its class's fields."""


def load_arena(name_or_path: str | Path, **overrides: Any) -> PuddleWorld:
    """Return an arena by name, or read one from a TOML file.

    A file has one ``[[puddles]]`` table per puddle, with ``multiplier``, ``shape`` and the shape's
    fields: "capsule" (start, end, radius), "disc" (centre, radius) or "polygon" (vertices). It may
    also set any other field of ``PuddleWorld``: step_size, noise, goal (a bool, or [x, y, radius]),
    step_penalty, puddle_penalty, max_steps, observation ("position", "code" or "image", or a table
    of that name and options).

    Args:
        name_or_path: a key of ``ARENAS``, or the path of a file that ends in .toml.
        **overrides: fields of ``PuddleWorld`` to replace.

    Raises:
        InputError: unknown name, unreadable file, or a value outside its range.
    """
    name = str(name_or_path)
    if name.endswith(".toml"):
        arena = _read_arena(Path(name))
    else:
        known = f"an arena ({', '.join(ARENAS)}) or the path of a .toml file"
        require(name in ARENAS, known, name)
        arena = ARENAS[name]
    _check_keys(overrides, _fields(PuddleWorld), place="override")
    return dataclasses.replace(arena, **overrides)


def resolve_arena(
    arena: str | Path | PuddleWorld = "sutton",
    *,
    task: bool = True,
    max_steps: int | None = None,
    **overrides: Any,
) -> PuddleWorld:
    """Return the arena that an interface was given by name, by path or as a world.

    Args:
        arena: as for ``load_arena``, or a world.
        task: whether to switch on a goal (the arena's own, or the corner), the step penalty and the
            puddle penalty; if not, the arena is used as it is.
        max_steps: steps after which an episode is truncated; None for the arena's own limit.
        **overrides: fields of ``PuddleWorld`` to replace, such as goal and observation.

    Raises:
        InputError: as ``load_arena``.
    """
    if max_steps is not None:
        overrides["max_steps"] = max_steps
    world = arena if isinstance(arena, PuddleWorld) else load_arena(arena)
    environment = dataclasses.replace(world, **overrides)
    return environment.with_task() if task else environment


def _read_arena(path: Path) -> PuddleWorld:
    try:
        return arena_from_settings(tomllib.loads(path.read_bytes().decode()))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (OSError, RecursionError, ValueError) as error:  # Also of bytes that are not UTF-8.
        raise InputError(f"expected an arena in TOML, got {path} ({reason_of(error)})") from error


def arena_settings(environment: PuddleWorld) -> dict[str, Any]:
    """Return an arena as plain JSON values; ``arena_from_settings`` makes it again."""
    names: dict[type, str] = {shape: name for name, shape in SHAPES.items()}
    puddles = []
    for puddle in environment.puddles:
        values = {key: np.asarray(value).tolist() for key, value in vars(puddle.shape).items()}
        name, multiplier = names[type(puddle.shape)], float(puddle.multiplier)
        puddles.append({"shape": name, "multiplier": multiplier, **values})
    kept = ("goal", "step_penalty", "puddle_penalty", "max_steps")
    settings = {field: getattr(environment, field) for field in kept}
    if isinstance(environment.goal, Disc):
        centre, radius = environment.goal.centre, environment.goal.radius
        settings["goal"] = [float(number) for number in (*centre, radius)]
    # Left out if it is the position, as in stores of earlier versions.
    if environment.observation != Position():
        seen = environment.observation
        settings["observation"] = {"name": seen.name, **dataclasses.asdict(seen)}
    numbers = {"step_size": float(environment.step_size), "noise": float(environment.noise)}
    return {**settings, **numbers, "puddles": puddles}


def arena_from_settings(settings: Mapping[str, Any]) -> PuddleWorld:
    """Return the arena that settings in the form of an arena file describe.

    Args:
        settings: fields of ``PuddleWorld``; ``puddles`` is a list of mappings.

    Raises:
        InputError: an unknown or missing key, or a value outside its range.
    """
    _check_keys(settings, _fields(PuddleWorld), place="arena")
    tables = settings.get("puddles", [])
    tabled = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
    require(tabled, "puddles to be an array of tables [[puddles]]", tables)
    puddles = []
    for index, table in enumerate(tables):
        try:
            puddles.append(_puddle_from_settings(table))
        except InputError as error:
            raise InputError(f"puddles[{index}]: {error}") from error
    return PuddleWorld(**{**settings, "puddles": tuple(puddles)})


def _puddle_from_settings(table: Mapping[str, Any]) -> Puddle:
    name: Any = table.get("shape")
    require_choice("shape", name, list(SHAPES))
    shape_fields = _fields(SHAPES[name])
    required = {"shape", "multiplier", *shape_fields}
    missing = sorted(required - table.keys())
    require(not missing, f"{', '.join(missing)} among the keys of {name}", "none")
    _check_keys(table, required, place=name)
    shape: Shape = SHAPES[name](**{field: table[field] for field in shape_fields})
    return Puddle(shape, table["multiplier"])


def _fields(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls) if field.init}


def _check_keys(table: Mapping[str, Any], allowed: set[str], *, place: str) -> None:
    unknown = sorted(table.keys() - allowed)
    require(not unknown, f"only {', '.join(sorted(allowed))} as keys of {place}", unknown)
