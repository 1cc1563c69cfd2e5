"""Environments in pure JAX, with Gymnasium and dm_env adapters.

Names load on first use: importing this package registers them with Gymnasium, which is quick,
and leaves JAX alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rlreps.envs.registration import register

if TYPE_CHECKING:
    from rlreps.envs.arenas import ARENAS, arena_from_settings, arena_settings, load_arena
    from rlreps.envs.bouncing_balls import BouncingBalls, BouncingBallsState
    from rlreps.envs.core import ArenaError, Environment, TimeStep
    from rlreps.envs.dm_env_adapter import BouncingBallsDmEnv, PuddleWorldDmEnv
    from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
    from rlreps.envs.gymnasium_adapter import (
        BouncingBallsEnv,
        BouncingBallsVectorEnv,
        PuddleWorldEnv,
        PuddleWorldVectorEnv,
    )
    from rlreps.envs.puddle_world import Puddle, PuddleWorld, PuddleWorldState
    from rlreps.envs.rendering import render_frame, render_video_frame

_HOMES = {
    "ARENAS": "arenas",
    "ArenaError": "core",
    "BouncingBalls": "bouncing_balls",
    "BouncingBallsDmEnv": "dm_env_adapter",
    "BouncingBallsEnv": "gymnasium_adapter",
    "BouncingBallsState": "bouncing_balls",
    "BouncingBallsVectorEnv": "gymnasium_adapter",
    "Capsule": "geometry",
    "ConvexPolygon": "geometry",
    "Disc": "geometry",
    "Environment": "core",
    "Puddle": "puddle_world",
    "PuddleWorld": "puddle_world",
    "PuddleWorldDmEnv": "dm_env_adapter",
    "PuddleWorldEnv": "gymnasium_adapter",
    "PuddleWorldState": "puddle_world",
    "PuddleWorldVectorEnv": "gymnasium_adapter",
    "Shape": "geometry",
    "TimeStep": "core",
    "arena_from_settings": "arenas",
    "arena_settings": "arenas",
    "load_arena": "arenas",
    "render_frame": "rendering",
    "render_video_frame": "rendering",
}

__all__ = [
    "ARENAS",
    "ArenaError",
    "BouncingBalls",
    "BouncingBallsDmEnv",
    "BouncingBallsEnv",
    "BouncingBallsState",
    "BouncingBallsVectorEnv",
    "Capsule",
    "ConvexPolygon",
    "Disc",
    "Environment",
    "Puddle",
    "PuddleWorld",
    "PuddleWorldDmEnv",
    "PuddleWorldEnv",
    "PuddleWorldState",
    "PuddleWorldVectorEnv",
    "Shape",
    "TimeStep",
    "arena_from_settings",
    "arena_settings",
    "load_arena",
    "register",
    "render_frame",
    "render_video_frame",
]

register()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"rlreps.envs.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rlreps.envs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
