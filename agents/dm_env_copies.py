"""Copies of an environment of dm_env."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import dm_env  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from rlreps.agents.host_interface import (
    FlagArray,
    HostStep,
    Picture,
    explained,
    import_named,
    picture_of,
    quietly,
    require_finite,
    require_images,
    single_precision,
)
from rlreps.agents.host_observations import Inputs, actions_of_environment, observations_of_spec
from rlreps.errors import require


class DmEnvCopies:
    """Copies of an environment of dm_env.

    dm_env has no way of seeding. Each reset therefore makes the copies anew, each with its seed if
    what makes them takes a ``seed``. If it takes none, they are as different and as repeatable as
    it makes them.

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
        self._name = name
        with quietly(), explained(name):
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
        self.max_episode_steps = max_episode_steps
        self._start()
        self._latest: Inputs | None = None

    def _start(self) -> None:
        self._ended: FlagArray = np.zeros(self.num_envs, np.bool_)
        self._lengths = np.zeros(self.num_envs, np.int64)

    def reset(self, seeds: Sequence[int]) -> Inputs:
        """Start an episode in every copy, [n, *observation], each by its own seed [n]."""
        self.close()
        with quietly(), explained(self._name):
            self._copies = [self._make(seed) for seed in seeds]
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
        if self.max_episode_steps is not None:
            self._ended |= self._lengths >= self.max_episode_steps
        # At an episode's start dm_env gives None as reward.
        rewards = single_precision(
            [0.0 if step.reward is None else float(step.reward) for step in taken]
        )
        require_finite("rewards", rewards, self._name)
        return HostStep(
            self._encode(taken),
            rewards,
            terminated,
            self._ended & ~terminated,
        )

    def _encode(self, taken: list[dm_env.TimeStep]) -> Inputs:
        self._latest = self._observations.encode(np.stack([step.observation for step in taken]))
        require_finite("observations", self._latest, self._name)
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
        InputError: If there is no such function, or it has required arguments.
        Exception: What the import of the module raises, and ``inspect`` of the function.
    """
    _, module, function = [*name.split(":"), "", ""][:3]
    require(name.count(":") == 2 and bool(module and function), "dm_env:MODULE:FUNCTION", name)
    make = getattr(import_named(module, name), function, None)
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
