"""PuddleWorld for dm_env."""

from functools import partial
from typing import Any

import dm_env  # type: ignore[import-untyped]
from dm_env import specs

from rlreps.envs.registration import MAZE_STEPS
from rlreps.envs.rendering import Picture
from rlreps.envs.to_gymnasium import PuddleWorldEnv


class PuddleWorldDmEnv(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """One PuddleWorld; actions are those of ``PuddleWorld``.

    Args:
        arena: a name, the path of a TOML file, or a ``PuddleWorld``.
        seed: seed of all random numbers; at least 0, of any size.
        **arguments: ``task`` (False leaves out goal and penalties), ``max_steps``, and fields of
            ``PuddleWorld`` to replace, such as ``goal`` and ``observation``.
    """

    interface: type[PuddleWorldEnv] = PuddleWorldEnv

    def __init__(self, arena: Any = "sutton", *, seed: int = 0, **arguments: Any) -> None:
        copy = self._copy = self.interface(arena, render_mode="rgb_array", **arguments)
        self._seed: int | None = seed
        self._running = False
        self.environment = copy.environment
        seen: Any = copy.observation_space
        self._observation_spec = specs.BoundedArray(
            seen.shape,
            seen.dtype,
            seen.low.min(),
            seen.high.max(),
            name=copy.environment.observation.name,
        )
        self._action_spec = specs.DiscreteArray(copy.environment.num_actions, name="direction")

    def reset(self) -> dm_env.TimeStep:
        """Start an episode in a random state."""
        # The first reset starts the stream of random numbers, and others continue it.
        observation, _ = self._copy.reset(seed=self._seed)
        self._seed, self._running = None, True
        return dm_env.restart(observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        """Take an action; start an episode instead if none is running.

        Raises:
            InputError: unknown action.
        """
        if not self._running:
            return self.reset()
        observation, reward, terminated, truncated, _ = self._copy.step(action)
        self._running = not (terminated or truncated)
        if terminated:
            return dm_env.termination(reward, observation)
        if truncated:
            return dm_env.truncation(reward, observation)
        return dm_env.transition(reward, observation)

    def render(self) -> Picture:
        """Return a picture of the current state, [h, w, 3]; dm_env itself asks for none."""
        picture: Picture = self._copy.render()
        return picture

    def observation_spec(self) -> specs.BoundedArray:
        """Float32 arrays in [0, 1], or bytes."""
        return self._observation_spec

    def action_spec(self) -> specs.DiscreteArray:
        """Actions, numbered from 0."""
        return self._action_spec


FiveCorridorsDmEnv = partial(PuddleWorldDmEnv, "five_corridors", max_steps=MAZE_STEPS)
SpiralDmEnv = partial(PuddleWorldDmEnv, "spiral", max_steps=MAZE_STEPS)
FourRoomsDmEnv = partial(PuddleWorldDmEnv, "four_rooms", max_steps=MAZE_STEPS)
TwoRoomDmEnv = partial(PuddleWorldDmEnv, "two_room", max_steps=MAZE_STEPS)
