"""PuddleWorld, BouncingBalls and any environment of the core contract for Gymnasium.

One copy, or a batch stepped by one jitted call.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlreps.envs.arenas import resolve_arena
from rlreps.envs.bouncing_balls import BouncingBalls
from rlreps.envs.core import (
    ArenaError,
    Environment,
    TimeStep,
    make_streams,
    name_actions,
    observation_bounds,
    observation_struct,
    reset_stream,
    step_or_reset,
    step_stream,
)
from rlreps.envs.forks import require_threads
from rlreps.envs.puddle_world import PuddleWorld
from rlreps.envs.rendering import Draw, draw_arena, render_video_frame

Observation = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
Rewards = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}


class JaxEnv(gymnasium.Env[Observation, np.int64]):
    """One environment.

    Seeding: ``reset(seed=s)`` starts a stream of random numbers that depends on ``s`` alone; later
    resets without a seed continue it.

    Args:
        environment: any whose observations lie in [0, 1] or are bytes.
        draw: draws a picture of a state.
        render_mode: "rgb_array" or None.

    Raises:
        ArenaError: the render mode cannot be used.
    """

    metadata = METADATA

    def __init__(self, environment: Environment, draw: Draw, render_mode: str | None) -> None:
        self.environment = environment
        self._draw = draw
        self.render_mode = _checked_render_mode(render_mode)
        self.observation_space = _observation_space(environment)
        self.action_space = spaces.Discrete(environment.num_actions)
        self._stream: jax.Array | None = None
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in a random state; ``options`` is not used."""
        require_threads()
        super().reset(seed=seed)
        if self._stream is None or seed is not None:
            self._stream = make_streams([_seed_or_draw(seed, self.np_random)])[0]
        self._stream, self._state, observation = reset_stream(self.environment, self._stream)
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action, numbered as in the environment.

        Raises:
            ArenaError: unknown action.
            gymnasium.error.ResetNeeded: the environment has not been reset.
        """
        require_threads()
        if not self.action_space.contains(action):
            valid = name_actions(self.environment)
            raise ArenaError(f"expected an action in {valid}, got {action!r}")
        if self._state is None or self._stream is None:
            raise gymnasium.error.ResetNeeded("expected reset() before step()")
        self._stream, taken = step_stream(
            self.environment, self._stream, self._state, np.int32(action)
        )
        self._state = taken.state
        observation = np.array(taken.observation)
        return observation, float(taken.reward), bool(taken.terminated), bool(taken.truncated), {}

    def render(self) -> Any:
        """Return the current picture, uint8 [h, w, 3], in render mode "rgb_array"; else None."""
        return None if self.render_mode is None else self._draw(self.environment, self._state)


class JaxVectorEnv(VectorEnv[Observation, npt.NDArray[np.int64], Any]):
    """A batch of environments stepped by one jitted JAX call.

    Copy i of a batch seeded with s does exactly what a ``JaxEnv`` seeded with s + i does. If the
    batch is seeded with a sequence, copy i uses element i. The step after an episode's end ignores
    its action and resets the copy, with reward 0.

    Args:
        environment: any whose observations lie in [0, 1] or are bytes.
        draw: draws a picture of a state.
        num_envs: number of copies, at least 1.
        render_mode: "rgb_array" or None.

    Raises:
        ArenaError: an argument cannot be used.
    """

    metadata = METADATA | {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self, environment: Environment, draw: Draw, num_envs: int, render_mode: str | None
    ) -> None:
        if num_envs < 1:
            raise ArenaError(f"expected num_envs of at least 1, got {num_envs}")
        self.environment = environment
        self._draw = draw
        self.num_envs = num_envs
        self.render_mode = _checked_render_mode(render_mode)
        self.single_observation_space = _observation_space(environment)
        self.single_action_space = spaces.Discrete(environment.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._streams: jax.Array | None = None
        self._states: Any = None
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every copy, from one seed or one each; ``options`` is not used."""
        require_threads()
        if seed is None or isinstance(seed, int):
            super().reset(seed=seed)
            if self._streams is None or seed is not None:
                first = _seed_or_draw(seed, self.np_random)
                self._streams = make_streams(range(first, first + self.num_envs))
        else:
            if len(seed) != self.num_envs:
                raise ArenaError(f"expected {self.num_envs} seeds, got {len(seed)}")
            super().reset(seed=int(seed[0]))
            self._streams = make_streams(seed)
        self._streams, self._states, observations = _reset_many(self.environment, self._streams)
        self._ended = np.zeros(self.num_envs, np.bool_)
        return np.array(observations), {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observation, Rewards, Flags, Flags, dict[str, Any]]:
        """Take one action in each copy, or reset the copy if its episode ended in the last step.

        Raises:
            ArenaError: wrong number of actions, or an unknown one.
            gymnasium.error.ResetNeeded: the environment has not been reset.
        """
        require_threads()
        chosen = np.asarray(actions)
        known = np.isin(chosen, np.arange(self.environment.num_actions)).all()
        if chosen.shape != (self.num_envs,) or not known:
            valid = name_actions(self.environment)
            raise ArenaError(
                f"expected {self.num_envs} actions in {valid}, got {np.array2string(chosen)}"
            )
        if self._states is None or self._streams is None:
            raise gymnasium.error.ResetNeeded("expected reset() before step()")
        self._streams, taken = _step_or_reset_many(
            self.environment, self._streams, self._states, chosen.astype(np.int32), self._ended
        )
        self._states = taken.state
        terminated, truncated = np.array(taken.terminated), np.array(taken.truncated)
        self._ended = terminated | truncated
        observations = np.array(taken.observation)
        return observations, np.array(taken.reward, np.float64), terminated, truncated, {}

    def render(self) -> Any:
        """Return one picture per copy, uint8 [h, w, 3], in render mode "rgb_array"; else None."""
        if self.render_mode is None:
            return None
        if self._states is None:
            return tuple(self._draw(self.environment, None) for _ in range(self.num_envs))
        states = jax.device_get(self._states)
        each = (jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(self.num_envs))
        return tuple(self._draw(self.environment, state) for state in each)


_reset_many = jax.jit(jax.vmap(reset_stream, in_axes=(None, 0)))


@jax.jit
def _step_or_reset_many(
    environment: Environment,
    streams: jax.Array,
    states: Any,
    actions: jax.Array,
    ended: jax.Array,
) -> tuple[jax.Array, TimeStep]:
    """Step each copy whose episode goes on; reset the others. Both spend one key of the stream."""
    split = jax.vmap(jax.random.split)(streams)
    taken = step_or_reset(environment, split[:, 1], states, actions, ended, jnp.any(ended))
    return split[:, 0], taken


def _seed_or_draw(seed: int | None, generator: np.random.Generator) -> int:
    return int(generator.integers(2**32)) if seed is None else seed


def _checked_render_mode(render_mode: str | None) -> str | None:
    if render_mode is not None and render_mode not in METADATA["render_modes"]:
        raise ArenaError(f"expected render_mode to be None or 'rgb_array', got {render_mode!r}")
    return render_mode


def _observation_space(environment: Environment) -> gymnasium.Space[Observation]:
    struct = observation_struct(environment)
    box = spaces.Box(*observation_bounds(struct.dtype), struct.shape, struct.dtype)
    # Box declares its own type as float or integer, whatever its dtype.
    return cast(gymnasium.Space[Observation], box)


class PuddleWorldEnv(JaxEnv):
    """One PuddleWorld; actions are 0 up, 1 right, 2 down, 3 left. Seeded as any ``JaxEnv``.

    Args:
        arena: the name of an arena, the path of a .toml file, or a ``PuddleWorld``.
        task: whether to switch on a goal (the arena's own, or the corner), the step penalty and the
            puddle penalty; if not, the arena is used as it is.
        render_mode: "rgb_array" or None.
        **fields: of ``PuddleWorld`` to replace, such as goal and observation.
    """

    environment: PuddleWorld

    def __init__(
        self,
        arena: str | Path | PuddleWorld = "sutton",
        *,
        task: bool = True,
        render_mode: str | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(resolve_arena(arena, task=task, **fields), draw_arena, render_mode)


class PuddleWorldVectorEnv(JaxVectorEnv):
    """A batch of PuddleWorlds, seeded and reset as any ``JaxVectorEnv``.

    Args:
        num_envs: number of copies, at least 1.
        arena: as for ``PuddleWorldEnv``.
        task: as for ``PuddleWorldEnv``.
        render_mode: "rgb_array" or None.
        max_episode_steps: steps after which an episode is truncated; None for the arena's own.
        **fields: as for ``PuddleWorldEnv``.
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
        **fields: Any,
    ) -> None:
        environment = resolve_arena(arena, task=task, **{"max_steps": max_episode_steps, **fields})
        super().__init__(environment, draw_arena, num_envs, render_mode)


class BouncingBallsEnv(JaxEnv):
    """One video of bouncing balls; observations are frames, and action 0, the only one, waits.

    Args:
        render_mode: "rgb_array", which shows the observation itself, or None.
        **parameters: of ``BouncingBalls``.
    """

    environment: BouncingBalls

    def __init__(self, *, render_mode: str | None = None, **parameters: Any) -> None:
        super().__init__(BouncingBalls(**parameters), render_video_frame, render_mode)


class BouncingBallsVectorEnv(JaxVectorEnv):
    """A batch of videos.

    Args:
        num_envs: number of copies, at least 1.
        render_mode: "rgb_array" or None.
        max_episode_steps: steps after which an episode is truncated; None for ``max_steps``.
        **parameters: of ``BouncingBalls``.
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
        if max_episode_steps is not None:
            parameters["max_steps"] = max_episode_steps
        super().__init__(BouncingBalls(**parameters), render_video_frame, num_envs, render_mode)
