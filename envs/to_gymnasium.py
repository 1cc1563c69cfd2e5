"""PuddleWorld for Gymnasium: one copy, or a batch stepped by one jitted call."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlreps.envs.arenas import resolve_arena
from rlreps.envs.core import (
    Environment,
    TimeStep,
    make_streams,
    observation_struct,
    reset_stream,
    step_or_reset,
    step_stream,
)
from rlreps.envs.puddle_world import PuddleWorld
from rlreps.envs.rendering import render_frame
from rlreps.errors import require, require_positive

ObservationArray = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
Rewards = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}


class PuddleWorldEnv(gymnasium.Env[ObservationArray, np.int64]):
    """One PuddleWorld; actions are 0 up, 1 right, 2 down, 3 left.

    Seeding: ``reset(seed=s)`` starts a stream of random numbers that depends on ``s`` alone; later
    resets without a seed continue it.

    Args:
        *arguments: the arena: a name, the path of a TOML file, or a ``PuddleWorld``; by default
            "sutton".
        render_mode: "rgb_array" or None.
        **parameters: ``task`` (False leaves out goal and penalties), ``max_steps``, and fields of
            ``PuddleWorld`` to replace, such as ``goal`` and ``observation``.
    """

    metadata = METADATA
    make: ClassVar[Callable[..., Any]] = staticmethod(resolve_arena)

    def __init__(self, *arguments: Any, render_mode: str | None = None, **parameters: Any) -> None:
        self.environment = self.make(*arguments, **parameters)
        self.render_mode = render_mode
        self.observation_space = _observation_space(self.environment)
        self.action_space = spaces.Discrete(self.environment.num_actions)
        self._stream: jax.Array | None = None
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationArray, dict[str, Any]]:
        """Start an episode in a random state; ``options`` is not used."""
        super().reset(seed=seed)
        if self._stream is None or seed is not None:
            self._stream = make_streams([_seed_or_draw(seed, self.np_random)])[0]
        self._stream, self._state, observation = reset_stream(self.environment, self._stream)
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[ObservationArray, float, bool, bool, dict[str, Any]]:
        """Take an action, numbered as in the environment.

        Raises:
            InputError: unknown action.
            gymnasium.error.ResetNeeded: the environment has not been reset.
        """
        known = self.action_space.contains(action)
        require(known, f"an action in [0, {self.environment.num_actions})", action)
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
        if self.render_mode is None:
            return None
        return render_frame(self.environment, None if self._state is None else self._state.position)


class PuddleWorldVectorEnv(VectorEnv[ObservationArray, npt.NDArray[np.int64], Any]):
    """A batch of PuddleWorlds stepped by one jitted JAX call.

    Copy i of a batch seeded with s does exactly what one copy seeded with s + i does. If the
    batch is seeded with a sequence, copy i uses element i, and continues its random numbers if the
    element is None. The step after an episode's end ignores its action and resets the copy, with
    reward 0.

    Args:
        num_envs: number of copies, at least 1.
        render_mode: "rgb_array" or None.
        max_episode_steps: steps after which an episode is truncated; None for the arena's own.
        **parameters: ``arena``, and the parameters of ``PuddleWorldEnv``.
    """

    metadata = METADATA | {"autoreset_mode": AutoresetMode.NEXT_STEP}
    make: ClassVar[Callable[..., Any]] = staticmethod(resolve_arena)

    def __init__(
        self,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **parameters: Any,
    ) -> None:
        require_positive("num_envs", num_envs)
        self.environment = self.make(**{"max_steps": max_episode_steps, **parameters})
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = _observation_space(self.environment)
        self.single_action_space = spaces.Discrete(self.environment.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._streams: jax.Array | None = None
        self._states: Any = None
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | npt.NDArray[np.integer[Any]] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[ObservationArray, dict[str, Any]]:
        """Start an episode in every copy.

        Args:
            seed: one seed, or one for each copy; a copy with None continues its random numbers.
            options: not used.

        Raises:
            InputError: the number of seeds is not that of the copies, or ``options`` have a
                ``reset_mask``: copies start again by themselves.
        """
        require(
            "reset_mask" not in (options or {}), "no reset_mask: copies reset themselves", options
        )
        count = self.num_envs
        seeds: list[Any] = [None] * count
        if isinstance(seed, Sequence | np.ndarray):
            seeds = [*seed]
        elif seed is not None:
            seeds = [operator.index(seed) + i for i in range(count)]
        require(len(seeds) == count, f"{count} seeds", len(seeds))
        given = {i: operator.index(value) for i, value in enumerate(seeds) if value is not None}
        super().reset(seed=next(iter(given.values()), None))
        if self._streams is None:
            first = _seed_or_draw(None, self.np_random)
            self._streams = make_streams(range(first, first + count))
        if given:
            own = make_streams(given.values())
            self._streams = self._streams.at[np.array([*given])].set(own)
        reset = _reset_many(self.environment, self._streams)
        self._streams, self._states, observations = reset
        self._ended = np.zeros(count, np.bool_)
        return np.array(observations), {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[ObservationArray, Rewards, Flags, Flags, dict[str, Any]]:
        """Take one action in each copy, or reset the copy if its episode ended in the last step.

        Raises:
            InputError: wrong number of actions, or an unknown one.
            gymnasium.error.ResetNeeded: the environment has not been reset.
        """
        chosen, count = np.asarray(actions), self.environment.num_actions
        known = np.isin(chosen, np.arange(count)).all() and chosen.shape == (self.num_envs,)
        require(bool(known), f"{self.num_envs} actions in [0, {count})", chosen.tolist())
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
        positions = [None] * self.num_envs
        if self._states is not None:
            positions = [*jax.device_get(self._states.position)]
        return tuple(render_frame(self.environment, position) for position in positions)


_reset_many = jax.jit(jax.vmap(reset_stream, in_axes=(None, 0)))


@jax.jit
def _step_or_reset_many(
    environment: Environment,
    streams: jax.Array,
    states: Any,
    actions: jax.Array,
    ended: jax.Array,
) -> tuple[jax.Array, TimeStep]:
    """Step each copy whose episode goes on; reset the others. Each copy spends one key."""
    split = jax.vmap(jax.random.split)(streams)
    taken = step_or_reset(environment, split[:, 1], states, actions, ended, jnp.any(ended))
    return split[:, 0], taken


def _seed_or_draw(seed: int | None, generator: np.random.Generator) -> int:
    return int(generator.integers(2**32)) if seed is None else seed


def _observation_space(environment: Environment) -> gymnasium.Space[ObservationArray]:
    struct = observation_struct(environment)
    dtype = np.dtype(struct.dtype)
    low: float
    high: float
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "b" or isinstance(environment, PuddleWorld):
        low, high = 0, 1
    else:
        low, high = -np.inf, np.inf
    box = spaces.Box(low, high, struct.shape, dtype.type)
    # Box declares its own type as float or integer, whatever its dtype.
    return cast(gymnasium.Space[ObservationArray], box)
