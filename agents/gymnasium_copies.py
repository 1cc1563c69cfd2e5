"""Copies of an environment of Gymnasium."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
    import_named,
    picture_of,
    quietly,
    require_finite,
    require_images,
    single_precision,
)
from rlreps.agents.host_observations import Inputs, actions_of_space, observations_of_space
from rlreps.errors import InputError

_ATARI_LIMIT = "max_num_frames_per_episode"
"""The argument in which Atari games name their limit, which no specification of theirs does."""

_AsSeeds = Callable[[Sequence[int]], Any]


class GymnasiumCopies:
    """Copies of an environment of Gymnasium.

    Args:
        name: An id, with the module that registers it before a colon where that is needed.
        num_envs: Copies.
        max_episode_steps: Steps after which an episode is truncated where the id names no limit.
        render: Whether pictures will be asked for.

    Raises:
        InputError: As ``make_host_environments`` does.
    """

    def __init__(
        self, name: str, num_envs: int, max_episode_steps: int | None, render: bool
    ) -> None:
        self._name = name
        made = _make(name, num_envs, max_episode_steps, render)
        self._environments, self._as_seeds = made.environments, made.as_seeds
        self.max_episode_steps = made.max_episode_steps
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
            if render and not made.renders:
                require_images(self.observation_shape, name)
        except InputError:
            self.close()
            raise
        self._renders = render and made.renders
        self._latest: Inputs | None = None

    def reset(self, seeds: Sequence[int]) -> Inputs:
        """Start an episode in every copy, [n, *observation], each by its own seed [n]."""
        raw, _ = self._environments.reset(seed=self._as_seeds(seeds))
        return self._encode(raw)

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        """Take an action [n] in each copy, or start an episode where one ended."""
        chosen = np.asarray(actions, np.int64) + self._first_action
        raw, rewards, terminated, truncated, _ = self._environments.step(chosen)
        # Copies: an environment may write its next step into the same arrays.
        given = single_precision(rewards)
        require_finite("rewards", given, self._name)
        return HostStep(
            self._encode(raw),
            given,
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
        )

    def _encode(self, raw: Any) -> Inputs:
        self._latest = self._observations.encode(raw)
        require_finite("observations", self._latest, self._name)
        return self._latest

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


class _Made(NamedTuple):
    """Copies as Gymnasium makes them.

    Attributes:
        environments: The copies.
        renders: Whether they draw themselves, if told to.
        max_episode_steps: Steps within which episodes end; None if nobody knows.
        as_seeds: Seeds [n] → what the copies take for them.
    """

    environments: VectorEnv[Any, Any, Any]
    renders: bool
    max_episode_steps: int | None
    as_seeds: _AsSeeds


def _make(name: str, num_envs: int, max_episode_steps: int | None, render: bool) -> _Made:
    """The copies, which were told to draw themselves if ``render``."""
    with quietly(), explained(name):
        _import_games(name)
        spec = gymnasium.spec(_import_module(name))
        own = _make_own(spec, num_envs, render)
        if own is not None:
            return own
        if spec.entry_point is None:
            raise gymnasium.error.Error(
                "it has no copies with next-step autoreset, a limit of steps (max_episode_steps) "
                "and a seed for each"
            )
        return _make_singly(spec, num_envs, max_episode_steps, render)


def _make_singly(
    spec: EnvSpec, num_envs: int, max_episode_steps: int | None, render: bool
) -> _Made:
    """Copies that are made one by one, and cut where they name no limit of their own."""
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
    return _Made(copies, renders, spec.max_episode_steps, _as_list)


def _make_own(spec: EnvSpec, num_envs: int, render: bool) -> _Made | None:
    """Copies from an environment's own vector entry point; None if there is none that will do.

    It must end its episodes, begin the next ones in the step after that, and take a seed for each
    copy, without which an agent's episodes would depend on how many agents there are.
    """
    limit = spec.max_episode_steps or spec.kwargs.get(_ATARI_LIMIT)
    if spec.vector_entry_point is None or spec.additional_wrappers or limit is None:
        return None
    renders = "render_mode" in inspect.signature(_creator(spec.vector_entry_point)).parameters
    options: dict[str, Any] = {"render_mode": "rgb_array"} if render and renders else {}
    own = gymnasium.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", **options)
    if own.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
        as_seeds = _form_of_seeds(own)
        if as_seeds is not None:
            return _Made(own, renders, int(limit), as_seeds)
    own.close()
    return None


def _form_of_seeds(own: VectorEnv[Any, Any, Any]) -> _AsSeeds | None:
    """How copies of an own vector entry point take a seed for each; None if they do not."""
    forms: tuple[_AsSeeds, ...] = (_as_list, np.array)
    for form in forms:
        try:
            own.reset(seed=form(range(own.num_envs)))
        except Exception:  # Whatever it raises, it takes none.
            continue
        return form
    return None


def _as_list(seeds: Sequence[int]) -> list[int]:
    return list(seeds)


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
    import_named(module, name)
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
