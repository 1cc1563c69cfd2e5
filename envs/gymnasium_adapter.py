"""PuddleWorld and BouncingBalls for Gymnasium, one at a time and in batches."""

import dataclasses
from pathlib import Path
from typing import Any

from rlreps.envs.arenas import resolve_arena
from rlreps.envs.bouncing_balls import BouncingBalls
from rlreps.envs.gymnasium_core import JaxEnv, JaxVectorEnv
from rlreps.envs.puddle_world import PuddleWorld
from rlreps.envs.rendering import draw_arena, render_video_frame


class PuddleWorldEnv(JaxEnv):
    """One PuddleWorld; actions are 0 up, 1 right, 2 down, 3 left.

    Seeding: ``reset(seed=s)`` starts a stream of random numbers that depends on ``s`` alone; later
    resets without a seed go on with it.

    Args:
        arena: the name of an arena, the path of a .toml file, or a ``PuddleWorld``.
        task: whether to switch on the goal corner, the step penalty and the puddle penalty; if not,
            the arena is used as it is.
        render_mode: "rgb_array" or None.

    Raises:
        ArenaError: the arena or the render mode cannot be used.
    """

    environment: PuddleWorld

    def __init__(
        self,
        arena: str | Path | PuddleWorld = "sutton",
        *,
        task: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(resolve_arena(arena, task=task), draw_arena, render_mode)


class PuddleWorldVectorEnv(JaxVectorEnv):
    """A batch of PuddleWorlds stepped by one jitted JAX call.

    Copy i of a batch seeded with s does exactly what ``PuddleWorldEnv`` seeded with s + i does. The
    step after an episode's end ignores its action and resets that copy: its reward is 0.

    Args:
        num_envs: number of copies, at least 1.
        arena: as for ``PuddleWorldEnv``.
        task: as for ``PuddleWorldEnv``.
        render_mode: "rgb_array" or None.
        max_episode_steps: steps after which an episode is truncated; None for the arena's own.

    Raises:
        ArenaError: an argument cannot be used.
    """

    environment: PuddleWorld

    def __init__(
        self,
        num_envs: int = 1,
        *,
        arena: str | Path | PuddleWorld = "sutton",
        task: bool = True,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        environment = resolve_arena(arena, task=task)
        if max_episode_steps is not None:
            environment = dataclasses.replace(environment, max_steps=max_episode_steps)
        super().__init__(environment, draw_arena, num_envs, render_mode)


class BouncingBallsEnv(JaxEnv):
    """One video of bouncing balls; observations are frames, and action 0, the only one, waits.

    Seeded as ``PuddleWorldEnv`` is.

    Args:
        render_mode: "rgb_array", which shows the observation itself, or None.
        **parameters: of ``BouncingBalls``.

    Raises:
        ArenaError: a parameter or the render mode cannot be used.
    """

    environment: BouncingBalls

    def __init__(self, *, render_mode: str | None = None, **parameters: Any) -> None:
        super().__init__(BouncingBalls(**parameters), render_video_frame, render_mode)


class BouncingBallsVectorEnv(JaxVectorEnv):
    """A batch of videos stepped by one jitted JAX call.

    Seeded and reset as ``PuddleWorldVectorEnv`` is.

    Args:
        num_envs: number of copies, at least 1.
        render_mode: "rgb_array" or None.
        max_episode_steps: steps after which an episode is truncated; None for ``max_steps``.
        **parameters: of ``BouncingBalls``.

    Raises:
        ArenaError: an argument cannot be used.
    """

    environment: BouncingBalls

    def __init__(
        self,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **parameters: Any,
    ) -> None:
        environment = BouncingBalls(**parameters)
        if max_episode_steps is not None:
            environment = dataclasses.replace(environment, max_steps=max_episode_steps)
        super().__init__(environment, render_video_frame, num_envs, render_mode)
