"""Worlds by name, built from installed packages and kept in the user's cache folder."""

import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.resources
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import gymnasium
import jax
import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require, require_choice, require_positive
from rlreps.runs.machine import cache_folder
from rlreps.worlds.arenas import estimate_arena
from rlreps.worlds.from_gymnax import gymnax_environment
from rlreps.worlds.world import World

View: TypeAlias = Literal["image", "agent", "grid"]
"""Observation of MiniGrid: the whole picture, the agent's own view, or codes of all cells."""

_TILE = 8
"""Pixels along a side of a cell in pictures."""

_CACHE_FORMAT = 2
"""Version of how this module makes worlds; a change of tables or observations raises it."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a named world is made.

    Attributes:
        package: The package whose version decides what it is; "rlreps" for our own.
        extra: The extra of rlreps that installs the package; empty if it is always installed.
        game: The game in the package.
        build: (game, seed=, **options) → the world; takes ``view``, too, if the game has views.
        options: Options of the game.
        has_views: Whether an agent may see the game in several ways.
    """

    package: str
    extra: str
    game: str
    build: Callable[..., World]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    has_views: bool = False

    @property
    def title(self) -> str:
        """The game and its options."""
        return " ".join([self.game, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def version(self) -> str | None:
        """The installed version of the package; None if it is not installed."""
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(self.package)
        return None


def _minigrid(game: str, seed: int, view: View) -> World:
    """Enumerate a game of MiniGrid; success pays 1, however late."""
    from minigrid.core import world_object  # Registers the games.

    game = newest(game)
    options: dict[str, Any] = {"render_mode": "rgb_array", "tile_size": _TILE, "highlight": False}
    inner: Any = gymnasium.make(game, **options).unwrapped
    inner._reward = lambda: 1.0
    drawn = inner.gen_obs
    # Only the agent's own view needs the field of vision, which takes half of a step's time.
    inner.gen_obs = dict
    phases: dict[str, int] = {}

    def place(_: Any) -> list[float]:
        column, row = (int(each) for each in inner.agent_pos)
        label = _phase(inner)
        return [column, row, int(inner.agent_dir), phases.setdefault(label, len(phases))]

    looks: dict[str, Callable[[Any], npt.NDArray[Any]]] = {
        "image": lambda _: inner.get_frame(False, _TILE),
        "agent": lambda _: drawn()["image"],
        "grid": lambda _: codes_of(inner),
    }
    world = World.enumerate(
        inner,
        seeds=[seed],
        observe=looks[view],
        coordinates=place,
        constant=(world_object.Wall, world_object.Goal, world_object.Lava, world_object.Floor),
        names=("column", "row", "direction", "phase"),
        name=game,
    )
    directions = ["facing right", "facing down", "facing left", "facing up"]
    return _with_about(world, values={"direction": directions, "phase": list(phases)})


def _phase(inner: Any) -> str:
    """Describe what the agent carries and how the doors are."""
    carried = inner.carrying
    parts = [] if carried is None else [f"{carried.color} {carried.type} carried"]
    for each in inner.grid.grid:
        if each is not None and each.type == "door":
            state = "open" if each.is_open else "locked" if each.is_locked else "closed"
            parts.append(f"{each.color} door {state}")
    return ", ".join(parts)


def codes_of(inner: Any) -> npt.NDArray[np.uint8]:
    """Return codes of all cells with the agent among them, [width, height, 3], for networks."""
    codes = inner.grid.encode()
    codes[inner.agent_pos[0], inner.agent_pos[1]] = (10, 0, inner.agent_dir)
    return np.asarray(codes, np.uint8)


def _toy_text(game: str, seed: int, **options: Any) -> World:
    """Read the table of a toy text, which is the same for every seed."""
    return World.from_gymnasium_table(gymnasium.make(newest(game), **options).unwrapped)


def newest(game: str) -> str:
    """Return the id of a game's newest version."""
    versions = [
        int(identifier.removeprefix(f"{game}-v"))
        for identifier in gymnasium.registry
        if re.fullmatch(rf"{re.escape(game)}-v\d+", identifier)
    ]
    require(bool(versions), f"the game {game} in the installed packages", "none of this name")
    return f"{game}-v{max(versions)}"


class _JaxGame(gymnasium.Env[Any, Any]):
    """An environment of gymnax, one step at a time, whose keys come from ``np_random``."""

    def __init__(self, name: str) -> None:
        self.environment = gymnax_environment(name)
        self.action_space = gymnasium.spaces.Discrete(self.environment.num_actions)
        self.state: Any = None
        self._reset, self._step = jax.jit(self.environment.reset), jax.jit(self.environment.step)

    def _key(self) -> jax.Array:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self._reset(self._key())
        return np.asarray(self.state.observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        taken = self._step(self._key(), self.state, np.int32(action))
        self.state = taken.state
        seen = np.asarray(taken.observation)
        return seen, float(taken.reward), bool(taken.terminated), False, {}


def _gymnax(game: str, seed: int, *, fields: Sequence[str], resets: int) -> World:
    """Enumerate a game of gymnax from the first states of resets.

    States differ in the fields that hold positions, not in time or returns so far.
    """

    def positions(state: Any) -> list[float]:
        values = [np.ravel(np.asarray(getattr(state.inner, field))) for field in fields]
        return [float(value) for value in np.concatenate(values)]

    env = _JaxGame(game)
    env.reset(seed=seed)
    world = World.enumerate(
        env,
        seeds=range(seed, seed + resets),
        save=lambda env: env.state,
        restore=lambda env, state: setattr(env, "state", state),
        key=lambda state: tuple(positions(state)),
        coordinates=lambda env: positions(env.state),
        names=[f"{fields[0]} {i}" for i in range(2)] if len(fields) == 1 else fields,
        name=game,
    )
    # Games draw uniformly: the seeds find the first states, and tell nothing of their chances.
    first = world.start > 0.0
    return dataclasses.replace(world, start=first / np.count_nonzero(first))


def _atari(game: str, seed: int, *, horizon: int) -> World:
    """Enumerate the first steps of a game of Atari, as grey pictures of half size."""
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(game, frameskip=4, repeat_action_probability=0.0, obs_type="grayscale")
    inner: Any = env.unwrapped
    kept: dict[bytes, Any] = {}

    def save(_: Any) -> bytes:
        state = inner.ale.cloneState(include_rng=True)
        label: bytes = inner.ale.getRAM().tobytes()
        kept.setdefault(label, state)
        return label

    return World.enumerate(
        env,
        seeds=[seed],
        save=save,
        restore=lambda _, label: inner.ale.restoreState(kept[label]),
        key=lambda label: label,
        observe=lambda _: inner.ale.getScreenGrayscale()[::2, ::2, None],
        horizon=horizon,
        name=f"{game}:{horizon}",
    )


def _with_about(world: World, /, **more: Any) -> World:
    return dataclasses.replace(world, about={**world.about, **more})


_MINIGRID = (
    "Empty-5x5 Empty-8x8 Empty-16x16 FourRooms DoorKey-5x5 DoorKey-6x6 DoorKey-8x8 KeyCorridorS3R1 "
    "KeyCorridorS3R2 MultiRoom-N2-S4 MultiRoom-N4-S5 Unlock LavaGapS5 LavaGapS7 LavaCrossingS9N1 "
    "LavaCrossingS9N3 SimpleCrossingS9N1 SimpleCrossingS9N3 DistShift1 DistShift2 RedBlueDoors-6x6 "
    "RedBlueDoors-8x8 MemoryS7 MemoryS13 GoToDoor-5x5 Fetch-5x5-N2"
)

WORLDS: Mapping[str, Recipe] = {
    **{
        f"minigrid-{name.lower()}": Recipe(
            "minigrid", "minigrid", f"MiniGrid-{name}", _minigrid, has_views=True
        )
        for name in _MINIGRID.split()
    },
    **{
        name: Recipe("gymnasium", "", game, _toy_text, options)
        for name, game, options in (
            ("frozenlake-4x4", "FrozenLake", {"map_name": "4x4"}),
            ("frozenlake-8x8", "FrozenLake", {"map_name": "8x8"}),
            ("frozenlake-8x8-sure", "FrozenLake", {"map_name": "8x8", "is_slippery": False}),
            ("taxi", "Taxi", {}),
            ("cliffwalking", "CliffWalking", {}),
        )
    },
    **{
        f"gymnax-{name}": Recipe(
            "gymnax",
            "gymnax",
            f"gymnax:{game}",
            functools.partial(_gymnax, fields=fields, resets=resets),
        )
        for name, game, fields, resets in (
            ("fourrooms", "FourRooms-misc:fail_prob=0", ("pos",), 1),
            ("deepsea-10", "DeepSea-bsuite:size=10", ("column", "row"), 1),
            # A reset draws the ball's column.
            ("catch", "Catch-bsuite", ("ball_x", "ball_y", "paddle_x"), 50),
        )
    },
    **{
        # Reaching the goal, a disc (x, y, radius), pays 1 and ends.
        f"maze-{game.replace('_', '-')}": Recipe(
            "rlreps", "", game, estimate_arena, {"bins": 20, "goal": (0.9, 0.9, 0.08)}
        )
        for game in ("five_corridors", "four_rooms", "spiral")
    },
    **{
        f"atari-{game.lower()}-{horizon}": Recipe(
            "ale-py", "atari", f"ALE/{game}-v5", _atari, {"horizon": horizon}
        )
        for game, horizon in (("Freeway", 10), ("Pong", 5))
    },
}
"""Name → how the world is made."""


def known_rules() -> dict[str, dict[str, str]]:
    """Return the package and the ``rules_digest`` of each world of seed 0, as published.

    Mazes are missing: they are sampled, and their last bits differ from machine to machine.
    """
    place = importlib.resources.files("rlreps.worlds") / "digests.json"
    found: dict[str, dict[str, str]] = json.loads(place.read_text())
    return found


def build(
    name: str,
    *,
    seed: int = 0,
    view: View | None = None,
    any_version: bool = False,
) -> World:
    """Build a world from the installed package.

    Args:
        name: A name of ``WORLDS``.
        seed: Seed of the reset, which decides a layout that is drawn.
        view: What an agent sees of MiniGrid, "image" by default; None for other worlds.
        any_version: Whether to accept other rules than the published ones.

    Raises:
        InputError: For an unknown name, a view of another world than MiniGrid's, a package that is
            not installed, or a version of it whose game has other rules than those published for
            seed 0.
    """
    recipe, version, view = _recipe(name, seed, view)
    began = time.perf_counter()
    seen = {"view": view} if recipe.has_views else {}
    world = _with_about(
        recipe.build(recipe.game, seed=seed, **recipe.options, **seen),
        world=name,
        package=f"{recipe.package} {version}",
        seed=seed,
        view=view,
        seconds=round(time.perf_counter() - began, 2),
    )
    return world if any_version else _of_known_rules(world, name, seed)


def _of_known_rules(world: World, name: str, seed: int) -> World:
    """Refuse a world with other rules than those published, if any are."""
    published = known_rules().get(name) if seed == 0 else None
    if published is not None and published["rules"] != world.rules_digest:
        raise InputError(
            f"expected {name} with the rules of {published['package']}, got others from "
            f"{world.about.get('package')}; install that version, accept others (any_version), or "
            "give a world's file"
        )
    return world


def load(
    name: str | Path,
    *,
    seed: int = 0,
    view: View | None = None,
    any_version: bool = False,
) -> World:
    """Load a world by name, or from a file; a world that is not in the cache is built.

    The cache is the user's cache folder, or ``RLREPS_CACHE_DIR``. The name of a file there
    includes the version of the package: a file of another version is not used. A damaged file is
    an error that names it; delete it, or build the world anew (``rlreps worlds build``).

    Args:
        name: A name of ``WORLDS``, or the path of a file that ``World.save`` has written, which
            decides the seed and the view.
        seed: As for ``build``.
        view: As for ``build``.
        any_version: As for ``build``.

    Raises:
        InputError: As for ``build``, for a damaged file, or a seed or view of a file.
    """
    if isinstance(name, str | Path) and Path(name).suffix == ".npz":
        require(view is None and seed == 0, f"no seed or view of the file {name}", (seed, view))
        return World.load(name)
    path = cached(str(name), seed, view)
    if path.is_file():
        found = World.load(path)
        return found if any_version else _of_known_rules(found, str(name), seed)
    world = build(str(name), seed=seed, view=view, any_version=any_version)
    with contextlib.suppress(OSError):  # The world is usable without the cache.
        path.parent.mkdir(parents=True, exist_ok=True)
        world.save(path)
    return world


def cached(name: str, seed: int = 0, view: View | None = None) -> Path:
    """Return the place of a world in the cache.

    Raises:
        InputError: As for ``build``.
    """
    recipe, version, view = _recipe(name, seed, view)
    seen = f"-{view}" if recipe.has_views else ""
    made = f"{name}{seen}-{seed}-{recipe.package}-{version}-{_CACHE_FORMAT}.npz"
    return cache_folder() / "worlds" / made


def _recipe(name: str, seed: int, view: View | None) -> tuple[Recipe, str, View | None]:
    """Return how a world is made, the version of its package, and the view if there are several."""
    require_positive("seed", seed, least=0)
    require_choice("the name of a world", name, list(WORLDS))
    recipe = WORLDS[name]
    if view is not None:
        require_choice("view", view, list(get_args(View)))
        require(recipe.has_views, f"a view of a world of MiniGrid, not of {name}", view)
    elif recipe.has_views:
        view = "image"
    version = recipe.version
    if version is None:
        raise InputError(
            f"expected the package {recipe.package} for {name}, got none: "
            f'pip install "rlreps[{recipe.extra}]"'
        )
    return recipe, version, view
