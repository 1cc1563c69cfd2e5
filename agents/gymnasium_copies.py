"""Copies of an environment of Gymnasium."""

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import rlreps.envs  # noqa: F401 - registers its environments with Gymnasium
from rlreps.agents.host_interface import (
    HostStep,
    Picture,
    explained,
    picture_of,
    quietly,
    require_images,
)
from rlreps.agents.host_observations import Inputs, actions_of_space, observations_of_space
from rlreps.errors import InputError


class GymnasiumCopies:
    """Copies of an environment of Gymnasium.

    Copies that are made one by one have the seeds seed, seed + 1, ...; an own vector entry point
    does as it likes with the one seed.

    Args:
        name: An id, with the module that registers it before a colon where that is needed.
        num_envs: Copies.
        max_episode_steps: Steps after which an episode is truncated where the id names no limit and
            copies are made one by one.
        render: Whether pictures will be asked for.

    Raises:
        InputError: As ``make_host_environments`` does.
    """

    def __init__(
        self, name: str, num_envs: int, max_episode_steps: int | None, render: bool
    ) -> None:
        self._environments, renders = _make(name, num_envs, max_episode_steps, render)
        try:
            self.num_actions, self._first_action = actions_of_space(
                self._environments.single_action_space, name
            )
            self._observations = observations_of_space(
                self._environments.single_observation_space, name
            )
            self.num_envs = num_envs
            self.observation_shape = self._observations.shape
            self.observation_dtype = self._observations.dtype
            if render and not renders:
                require_images(self.observation_shape, name)
        except InputError:
            self.close()
            raise
        self._renders = render and renders
        self._latest: Inputs | None = None

    def reset(self, seed: int) -> Inputs:
        """Start an episode in every copy, [n, *observation]."""
        raw, _ = self._environments.reset(seed=seed)
        self._latest = self._observations.encode(raw)
        return self._latest

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        """Take an action [n] in each copy, or start an episode where one ended."""
        chosen = np.asarray(actions, np.int64) + self._first_action
        raw, rewards, terminated, truncated, _ = self._environments.step(chosen)
        self._latest = self._observations.encode(raw)
        # Copies: an environment may write its next step into the same arrays.
        return HostStep(
            self._latest,
            np.array(rewards, np.float32),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
        )

    def render(self) -> Picture:
        """A picture of copy 0, drawn by itself or its observation."""
        if not self._renders:
            return picture_of(self._latest)
        with quietly():
            if isinstance(self._environments, SyncVectorEnv):
                drawn: Any = self._environments.envs[0].render()
            else:
                pictures: Any = self._environments.render()
                drawn = pictures[0]
        return np.asarray(drawn, np.uint8)

    def close(self) -> None:
        """Free what the copies hold."""
        self._environments.close()


def _make(
    name: str, num_envs: int, max_episode_steps: int | None, render: bool
) -> tuple[VectorEnv[Any, Any, Any], bool]:
    """The copies, and whether they draw themselves, which they were told to if ``render``."""
    with quietly(), explained(name):
        _import_games(name)
        spec = gymnasium.spec(_import_module(name))
        if spec.vector_entry_point is not None and not spec.additional_wrappers:
            own, renders = _make_own(spec, num_envs, render)
            if own.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
                return own, renders
            own.close()
        if spec.entry_point is None:
            raise gymnasium.error.Error("it has no copies with next-step autoreset")
        if spec.max_episode_steps is None:
            spec = dataclasses.replace(spec, max_episode_steps=max_episode_steps)
        modes = getattr(_creator(spec.entry_point), "metadata", {}).get("render_modes", [])
        renders = "rgb_array" in modes
        render_mode = "rgb_array" if render and renders else None

        def make_one() -> gymnasium.Env[Any, Any]:
            # The checker's remarks are for an environment's author.
            options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
            return gymnasium.make(spec, disable_env_checker=True, **options)

        copies = SyncVectorEnv([make_one] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
        return copies, renders


def _make_own(spec: EnvSpec, num_envs: int, render: bool) -> tuple[VectorEnv[Any, Any, Any], bool]:
    """Copies from an environment's own vector entry point, and whether they draw themselves."""
    renders = "render_mode" in inspect.signature(_creator(spec.vector_entry_point)).parameters
    options: dict[str, Any] = {"render_mode": "rgb_array"} if render and renders else {}
    own = gymnasium.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", **options)
    return own, renders


def _creator(entry_point: Any) -> Callable[..., Any]:
    creator: Callable[..., Any] = (
        load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    )
    return creator


def _import_module(name: str) -> str:
    """The id, once the module before its colon, if any, has been imported."""
    module, colon, rest = name.partition(":")
    if not colon:
        return name
    importlib.import_module(module)
    return rest


def _import_games(name: str) -> None:
    """Atari games register themselves when their package is imported, which Gymnasium does not."""
    if not name.startswith("ALE/"):
        return
    try:
        import ale_py
    except ImportError as error:
        raise InputError(
            f'expected the package ale-py for {name}, got none: pip install "rlreps[atari]"'
        ) from error
    # Its banner would break the progress bar.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
