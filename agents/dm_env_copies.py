"""Copies of an environment of dm_env."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import dm_env  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from rlreps.agents.host_interface import (
    FlagArray,
    HostStep,
    Picture,
    explained,
    picture_of,
    quietly,
    require_images,
)
from rlreps.agents.host_observations import (
    Inputs,
    actions_of_environment,
    observations_of_spec,
)
from rlreps.validation import require


class DmEnvCopies:
    """Copies of an environment of dm_env.

    dm_env has no way of seeding. Each reset therefore makes the copies anew, with seeds seed,
    seed + 1, ... if what makes them takes a ``seed``. If it takes none, they are as different and
    as repeatable as it makes them.

    An episode's end with discount 0 is a termination; with any other, a truncation. Discounts
    before it are not used: the agent has its own.

    Args:
        name: ``dm_env:MODULE:FUNCTION``.
        num_envs: Copies.
        max_episode_steps: Steps after which an episode is truncated, if it has not ended; dm_env
            environments do not tell whether they have a limit of their own.
        render: Whether pictures will be asked for. They come from a method ``render``, of which
            dm_env knows nothing, or from observations that are images.

    Raises:
        InputError: As ``make_host_environments`` does.
    """

    def __init__(
        self, name: str, num_envs: int, max_episode_steps: int | None, render: bool
    ) -> None:
        self._make = _factory(name)
        self._copies = [self._make(0)]
        first = self._copies[0]
        require(
            isinstance(first, dm_env.Environment), f"{name} to make a dm_env.Environment", first
        )
        self.num_envs, self.num_actions = num_envs, actions_of_environment(first, name)
        self._observations = observations_of_spec(first.observation_spec(), name)
        self.observation_shape = self._observations.shape
        self.observation_dtype = self._observations.dtype
        if render and not callable(getattr(first, "render", None)):
            require_images(self.observation_shape, name)
        self._action_type = first.action_spec().dtype.type
        self._max_episode_steps = max_episode_steps
        self._start()
        self._latest: Inputs | None = None

    def _start(self) -> None:
        self._ended: FlagArray = np.zeros(self.num_envs, np.bool_)
        self._lengths = np.zeros(self.num_envs, np.int64)

    def reset(self, seed: int) -> Inputs:
        """Start an episode in every copy, [n, *observation]."""
        self.close()
        with quietly():
            self._copies = [self._make(seed + copy) for copy in range(self.num_envs)]
        self._start()
        return self._encode([copy.reset() for copy in self._copies])

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        """Take an action [n] in each copy, or start an episode where one ended."""
        taken = [
            copy.reset() if ended else copy.step(self._action_type(action))
            for copy, ended, action in zip(self._copies, self._ended, actions, strict=True)
        ]
        self._lengths = np.where(self._ended, 0, self._lengths + 1)
        terminated = np.array([step.last() and step.discount == 0.0 for step in taken], np.bool_)
        self._ended = np.array([step.last() for step in taken], np.bool_)
        if self._max_episode_steps is not None:
            self._ended |= self._lengths >= self._max_episode_steps
        # At an episode's start dm_env gives None as reward.
        rewards = [0.0 if step.reward is None else float(step.reward) for step in taken]
        return HostStep(
            self._encode(taken),
            np.array(rewards, np.float32),
            terminated,
            self._ended & ~terminated,
        )

    def _encode(self, taken: list[dm_env.TimeStep]) -> Inputs:
        self._latest = self._observations.encode(np.stack([step.observation for step in taken]))
        return self._latest

    def render(self) -> Picture:
        """A picture of copy 0, drawn by itself or its observation."""
        draw = getattr(self._copies[0], "render", None)
        return np.asarray(draw(), np.uint8) if callable(draw) else picture_of(self._latest)

    def close(self) -> None:
        """Free what the copies hold."""
        for copy in self._copies:
            copy.close()
        self._copies = []


def _factory(name: str) -> Callable[[int], dm_env.Environment]:
    """Seed → environment, for a name ``dm_env:MODULE:FUNCTION``.

    Raises:
        InputError: If there is no such module or function, or it has required arguments.
    """
    _, module, function = [*name.split(":"), "", ""][:3]
    require(name.count(":") == 2 and bool(module and function), "dm_env:MODULE:FUNCTION", name)
    with quietly(), explained(name):
        make = getattr(importlib.import_module(module), function, None)
    require(callable(make), f"a function {function} in {module}", name)
    assert make is not None
    parameters = inspect.signature(make).parameters
    needed = [
        of.name
        for of in parameters.values()
        if of.default is of.empty
        and of.name != "seed"
        and of.kind not in (of.VAR_POSITIONAL, of.VAR_KEYWORD)
    ]
    require(not needed, f"{name} to need no arguments but a seed", ", ".join(needed))
    if "seed" in parameters:
        return lambda seed: make(seed=seed)
    return lambda seed: make()
