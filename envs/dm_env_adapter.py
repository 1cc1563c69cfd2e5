"""PuddleWorld and BouncingBalls for dm_env."""

from functools import partial
from pathlib import Path
from typing import Any

import dm_env  # type: ignore[import-untyped]
import numpy as np
from dm_env import specs

from rlreps.envs.arenas import resolve_arena
from rlreps.envs.bouncing_balls import BouncingBalls
from rlreps.envs.core import (
    ArenaError,
    Environment,
    make_streams,
    name_actions,
    observation_bounds,
    observation_struct,
    reset_stream,
    step_stream,
)
from rlreps.envs.forks import require_threads
from rlreps.envs.puddle_world import PuddleWorld
from rlreps.envs.registration import MAZE_STEPS
from rlreps.envs.rendering import Draw, Picture, draw_arena, render_video_frame


class JaxDmEnv(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """One environment of the core contract.

    Args:
        environment: any whose observations lie in [0, 1] or are bytes.
        seed: decides everything random; of any size, from 0 on.
        observation_name: what the specification calls an observation.
        action_name: what the specification calls an action.
        draw: what shows a state of it as a picture.
    """

    def __init__(
        self,
        environment: Environment,
        seed: int,
        observation_name: str,
        action_name: str,
        draw: Draw,
    ) -> None:
        require_threads()
        self.environment = environment
        self._draw = draw
        self._stream = make_streams([seed])[0]
        self._state: Any = None
        self._running = False
        struct = observation_struct(environment)
        bounds = observation_bounds(struct.dtype)
        self._observation_spec = specs.BoundedArray(
            struct.shape, struct.dtype, *bounds, name=observation_name
        )
        self._action_spec = specs.DiscreteArray(environment.num_actions, name=action_name)

    def reset(self) -> dm_env.TimeStep:
        """Start an episode in a random state."""
        require_threads()
        self._stream, self._state, observation = reset_stream(self.environment, self._stream)
        self._running = True
        return dm_env.restart(np.array(observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Take an action; start an episode instead where none is running.

        Raises:
            ArenaError: unknown action.
        """
        require_threads()
        if not self._running:
            return self.reset()
        if not 0 <= int(action) < self.environment.num_actions:
            valid = name_actions(self.environment)
            raise ArenaError(f"expected an action in {valid}, got {action!r}")
        self._stream, taken = step_stream(
            self.environment, self._stream, self._state, np.int32(action)
        )
        terminated, truncated = bool(taken.terminated), bool(taken.truncated)
        self._state, self._running = taken.state, not (terminated or truncated)
        reward, observation = float(taken.reward), np.array(taken.observation)
        if terminated:
            return dm_env.termination(reward, observation)
        if truncated:
            return dm_env.truncation(reward, observation)
        return dm_env.transition(reward, observation)

    def render(self) -> Picture:
        """Return a picture of the current state, [h, w, 3]; dm_env itself asks for none."""
        return self._draw(self.environment, self._state)

    def observation_spec(self) -> specs.BoundedArray:
        """Float32 arrays in [0, 1], or bytes."""
        return self._observation_spec

    def action_spec(self) -> specs.DiscreteArray:
        """Actions, numbered from 0."""
        return self._action_spec


class PuddleWorldDmEnv(JaxDmEnv):
    """One PuddleWorld; actions as in ``PuddleWorld``, observations called by their kind.

    Args:
        arena: the name of an arena, the path of a .toml file, or a ``PuddleWorld``.
        task: whether to switch on a goal (the arena's own, or the corner), the step penalty and the
            puddle penalty; if not, the arena is used as it is.
        max_steps: steps after which an episode is truncated; None for the arena's own limit.
        seed: as for ``JaxDmEnv``.
        **fields: of ``PuddleWorld`` to replace, such as goal and observation.
    """

    def __init__(
        self,
        arena: str | Path | PuddleWorld = "sutton",
        *,
        task: bool = True,
        max_steps: int | None = None,
        seed: int = 0,
        **fields: Any,
    ) -> None:
        environment = resolve_arena(arena, task=task, max_steps=max_steps, **fields)
        super().__init__(environment, seed, environment.observation.name, "direction", draw_arena)


FiveCorridorsDmEnv = partial(PuddleWorldDmEnv, "five_corridors", max_steps=MAZE_STEPS)
SpiralDmEnv = partial(PuddleWorldDmEnv, "spiral", max_steps=MAZE_STEPS)
FourRoomsDmEnv = partial(PuddleWorldDmEnv, "four_rooms", max_steps=MAZE_STEPS)
TwoRoomDmEnv = partial(PuddleWorldDmEnv, "two_room", max_steps=MAZE_STEPS)


class BouncingBallsDmEnv(JaxDmEnv):
    """One video of bouncing balls; observations are frames, and action 0, the only one, waits.

    Args:
        seed: as for ``JaxDmEnv``.
        **parameters: of ``BouncingBalls``.
    """

    def __init__(self, *, seed: int = 0, **parameters: Any) -> None:
        super().__init__(BouncingBalls(**parameters), seed, "frame", "wait", render_video_frame)
