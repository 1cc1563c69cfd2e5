"""Environments in pure JAX, with Gymnasium and dm_env adapters.

Names load on first use. Importing this package registers the environments with Gymnasium, which is
quick and does not load JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rlreps.envs.registration import register as register

if TYPE_CHECKING:
    from rlreps.envs.arenas import ARENAS as ARENAS
    from rlreps.envs.arenas import arena_from_settings as arena_from_settings
    from rlreps.envs.arenas import arena_settings as arena_settings
    from rlreps.envs.arenas import load_arena as load_arena
    from rlreps.envs.bouncing_balls import BouncingBalls as BouncingBalls
    from rlreps.envs.bouncing_balls import BouncingBallsState as BouncingBallsState
    from rlreps.envs.core import ArenaError as ArenaError
    from rlreps.envs.core import Environment as Environment
    from rlreps.envs.core import TimeStep as TimeStep
    from rlreps.envs.dm_env_adapter import FiveCorridorsDmEnv as FiveCorridorsDmEnv
    from rlreps.envs.dm_env_adapter import FourRoomsDmEnv as FourRoomsDmEnv
    from rlreps.envs.dm_env_adapter import PuddleWorldDmEnv as PuddleWorldDmEnv
    from rlreps.envs.dm_env_adapter import SpiralDmEnv as SpiralDmEnv
    from rlreps.envs.dm_env_adapter import TwoRoomDmEnv as TwoRoomDmEnv
    from rlreps.envs.geometry import Capsule as Capsule
    from rlreps.envs.geometry import ConvexPolygon as ConvexPolygon
    from rlreps.envs.geometry import Disc as Disc
    from rlreps.envs.geometry import Shape as Shape
    from rlreps.envs.gymnasium_adapter import PuddleWorldEnv as PuddleWorldEnv
    from rlreps.envs.gymnasium_adapter import PuddleWorldVectorEnv as PuddleWorldVectorEnv
    from rlreps.envs.observations import OBSERVATIONS as OBSERVATIONS
    from rlreps.envs.observations import Code as Code
    from rlreps.envs.observations import Image as Image
    from rlreps.envs.observations import Observation as Observation
    from rlreps.envs.observations import Position as Position
    from rlreps.envs.puddle_world import Puddle as Puddle
    from rlreps.envs.puddle_world import PuddleWorld as PuddleWorld
    from rlreps.envs.puddle_world import PuddleWorldState as PuddleWorldState
    from rlreps.envs.rendering import render_frame as render_frame
    from rlreps.envs.shaping import ShapedEnvironment as ShapedEnvironment

_NAMES = {
    "arenas": "ARENAS arena_from_settings arena_settings load_arena",
    "bouncing_balls": "BouncingBalls BouncingBallsState",
    "core": "ArenaError Environment TimeStep",
    "dm_env_adapter": "FiveCorridorsDmEnv FourRoomsDmEnv PuddleWorldDmEnv SpiralDmEnv TwoRoomDmEnv",
    "geometry": "Capsule ConvexPolygon Disc Shape",
    "gymnasium_adapter": "PuddleWorldEnv PuddleWorldVectorEnv",
    "observations": "Code Image OBSERVATIONS Observation Position",
    "puddle_world": "Puddle PuddleWorld PuddleWorldState",
    "rendering": "render_frame",
    "shaping": "ShapedEnvironment",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOME, "register"])

register()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlreps.envs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlreps.envs.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
