"""PuddleWorld for Gymnasium: one environment, or a batch stepped by one jitted call."""

import dataclasses
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
from rlreps.envs.core import TimeStep
from rlreps.envs.errors import ArenaError
from rlreps.envs.puddle_world import PuddleWorld, PuddleWorldState
from rlreps.envs.rendering import render_frame
from rlreps.envs.streams import make_streams, reset_stream, step_stream

Observation = npt.NDArray[np.float32]
Rewards = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

RENDER_MODES = ["rgb_array"]
RENDER_FPS = 20


class PuddleWorldEnv(gymnasium.Env[Observation, np.int64]):
    """One PuddleWorld.

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

    metadata: dict[str, Any] = {  # noqa: RUF012 - as the base class declares it
        "render_modes": RENDER_MODES,
        "render_fps": RENDER_FPS,
    }

    def __init__(
        self,
        arena: str | Path | PuddleWorld = "sutton",
        *,
        task: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self.environment = resolve_arena(arena, task=task)
        self.render_mode = _checked_render_mode(render_mode)
        self.observation_space = _observation_space()
        self.action_space = spaces.Discrete(self.environment.num_actions)
        self._stream: jax.Array | None = None
        self._state: PuddleWorldState | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode at a random position; ``options`` is not used."""
        super().reset(seed=seed)
        if self._stream is None or seed is not None:
            self._stream = make_streams(_seed_or_draw(seed, self.np_random), 1)[0]
        self._stream, self._state = reset_stream(self.environment, self._stream)
        return np.array(self.environment.observe(self._state), np.float32), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action: 0 up, 1 right, 2 down, 3 left.

        Raises:
            ArenaError: unknown action.
            gymnasium.error.ResetNeeded: the environment has not been reset.
        """
        if not self.action_space.contains(action):
            raise ArenaError(f"expected an action in {{0, 1, 2, 3}}, got {action!r}")
        if self._state is None or self._stream is None:
            raise gymnasium.error.ResetNeeded("expected reset() before step()")
        self._stream, taken = step_stream(
            self.environment, self._stream, self._state, np.int32(action)
        )
        self._state = taken.state
        observation = np.array(taken.observation, np.float32)
        return observation, float(taken.reward), bool(taken.terminated), bool(taken.truncated), {}

    def render(self) -> Any:
        """Return the current picture, uint8 [h, w, 3], in render mode "rgb_array"; else None."""
        if self.render_mode is None:
            return None
        return render_frame(self.environment, None if self._state is None else self._state.position)


class PuddleWorldVectorEnv(VectorEnv[Observation, npt.NDArray[np.int64], Any]):
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

    metadata: dict[str, Any] = {  # noqa: RUF012 - as the base class declares it
        "render_modes": RENDER_MODES,
        "render_fps": RENDER_FPS,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        *,
        arena: str | Path | PuddleWorld = "sutton",
        task: bool = True,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        if num_envs < 1:
            raise ArenaError(f"expected num_envs of at least 1, got {num_envs}")
        environment = resolve_arena(arena, task=task)
        if max_episode_steps is not None:
            environment = dataclasses.replace(environment, max_steps=max_episode_steps)
        self.environment = environment
        self.num_envs = num_envs
        self.render_mode = _checked_render_mode(render_mode)
        self.single_observation_space = _observation_space()
        self.single_action_space = spaces.Discrete(environment.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._streams: jax.Array | None = None
        self._states: PuddleWorldState | None = None
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every copy; ``options`` is not used."""
        super().reset(seed=seed)
        if self._streams is None or seed is not None:
            self._streams = make_streams(_seed_or_draw(seed, self.np_random), self.num_envs)
        self._streams, self._states = _reset_many(self.environment, self._streams)
        self._ended = np.zeros(self.num_envs, np.bool_)
        return np.array(self._states.position, np.float32), {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observation, Rewards, Flags, Flags, dict[str, Any]]:
        """Take one action in each copy, or reset it where its episode ended in the last step.

        Args:
            actions: integers [num_envs].

        Raises:
            ArenaError: wrong number of actions, or an unknown one.
            gymnasium.error.ResetNeeded: the environment has not been reset.
        """
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,) or not np.isin(chosen, np.arange(4)).all():
            raise ArenaError(
                f"expected {self.num_envs} actions in {{0, 1, 2, 3}}, got {np.array2string(chosen)}"
            )
        if self._states is None or self._streams is None:
            raise gymnasium.error.ResetNeeded("expected reset() before step()")
        self._streams, taken = _step_or_reset_many(
            self.environment, self._streams, self._states, chosen.astype(np.int32), self._ended
        )
        self._states = taken.state
        terminated, truncated = np.array(taken.terminated), np.array(taken.truncated)
        self._ended = terminated | truncated
        observations = np.array(taken.observation, np.float32)
        return observations, np.array(taken.reward, np.float64), terminated, truncated, {}

    def render(self) -> Any:
        """Return one picture per copy, uint8 [h, w, 3], in render mode "rgb_array"; else None."""
        if self.render_mode is None:
            return None
        if self._states is None:
            return (render_frame(self.environment),) * self.num_envs
        positions = np.asarray(self._states.position)
        return tuple(render_frame(self.environment, position) for position in positions)


_reset_many = jax.jit(jax.vmap(reset_stream, in_axes=(None, 0)))
_step_many = jax.vmap(step_stream, in_axes=(None, 0, 0, 0))


@jax.jit
def _step_or_reset_many(
    environment: PuddleWorld,
    streams: jax.Array,
    states: PuddleWorldState,
    actions: jax.Array,
    ended: jax.Array,
) -> tuple[jax.Array, TimeStep]:
    """Step each copy whose episode goes on; reset the others. Both spend one key of the stream."""
    next_streams, taken = _step_many(environment, streams, states, actions)

    def with_resets(taken: TimeStep) -> TimeStep:
        _, fresh = _reset_many(environment, streams)
        restarted = TimeStep(
            state=fresh,
            observation=jax.vmap(environment.observe)(fresh),
            reward=jnp.zeros_like(taken.reward),
            terminated=jnp.zeros_like(taken.terminated),
            truncated=jnp.zeros_like(taken.truncated),
        )

        def choose(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(ended.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        chosen: TimeStep = jax.tree.map(choose, restarted, taken)
        return chosen

    return next_streams, jax.lax.cond(jnp.any(ended), with_resets, lambda step: step, taken)


def _seed_or_draw(seed: int | None, generator: np.random.Generator) -> int:
    return int(generator.integers(2**32)) if seed is None else seed


def _checked_render_mode(render_mode: str | None) -> str | None:
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ArenaError(f"expected render_mode to be None or 'rgb_array', got {render_mode!r}")
    return render_mode


def _observation_space() -> gymnasium.Space[Observation]:
    # Box's own type says float or integer, whatever its dtype.
    return cast(gymnasium.Space[Observation], spaces.Box(0.0, 1.0, (2,), np.float32))
