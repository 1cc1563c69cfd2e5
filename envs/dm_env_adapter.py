"""PuddleWorld for dm_env."""

from pathlib import Path

import dm_env
import jax
import numpy as np
from dm_env import specs

from rlreps.envs.arenas import load_arena
from rlreps.envs.errors import ArenaError
from rlreps.envs.puddle_world import PuddleWorld, PuddleWorldState


class PuddleWorldDmEnv(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """One PuddleWorld. Observations are positions, float32 [2]; actions 0 up, 1 right, 2 down, 3 left.

    Args:
        arena: the name of an arena, the path of a .toml file, or a ``PuddleWorld``.
        task: whether to switch on the goal corner, the step penalty and the puddle penalty; if not,
            the arena is used as it is.
        max_steps: steps after which an episode is truncated; None for the arena's own limit.
        seed: decides everything random.

    Raises:
        ArenaError: an argument cannot be used.
    """
