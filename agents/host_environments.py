"""Environments that run on the host, many copies at a time: Gymnasium's and dm_env's alike."""

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

import dm_env  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import rlreps.envs  # noqa: F401 - registers its environments with Gymnasium
from rlreps.agents.host_observations import (
    FloatArray,
    actions_of_environment,
    actions_of_space,
    observations_of_space,
    observations_of_spec,
)
from rlreps.errors import InputError
from rlreps.validation import require, require_positive

FlagArray = npt.NDArray[np.bool_]
Picture = npt.NDArray[np.uint8]

DM_ENV = "dm_env:"
"""What the names of dm_env environments begin with."""


class HostStep(NamedTuple):
    """What came of a step in n copies.

    Attributes:
        observations: [n, *observation].
        rewards: [n].
        terminated: Whether it ended the task, [n].
        truncated: Whether it ended the episode and not the task, as a time limit does, [n].
    """

    observations: FloatArray
    rewards: FloatArray
    terminated: FlagArray
    truncated: FlagArray


class HostEnvironments(Protocol):
    """Copies of an environment that are stepped together.

    The step after an episode's end ignores that copy's action: it starts an episode, with reward 0
    and the first observation (Gymnasium's next-step autoreset).

    Attributes:
        num_envs: n, the copies.
        num_actions: Actions, numbered from 0 whatever the environment calls them.
        observation_shape: Of one observation.
    """

    num_envs: int
    num_actions: int
    observation_shape: tuple[int, ...]

    def reset(self, seed: int) -> FloatArray:
        """Start an episode in every copy, [n, *observation]; ``seed`` in [0, 2^31) decides all."""

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        """Take an action [n] in each copy whose episode goes on."""

    def render(self) -> Picture:
        """A picture of copy 0, [height, width, 3]."""

    def close(self) -> None:
        """Free what the copies hold."""


class HostDescription(NamedTuple):
    """What a network must know of an environment.

    Attributes:
        num_actions: Actions.
        observation_shape: Of one observation.
    """

    num_actions: int
    observation_shape: tuple[int, ...]


def describe(name: str) -> HostDescription:
    """Actions and observations of an environment, from a copy that is closed again.

    Raises:
        InputError: As ``make_host_environments`` does.
    """
    with closing(make_host_environments(name, 1)) as environments:
        return HostDescription(environments.num_actions, environments.observation_shape)


def make_host_environments(name: str, num_envs: int, *, render: bool = False) -> HostEnvironments:
    """Copies of an environment.

    Args:
        name: An id of Gymnasium, with the module that registers it before a colon where that is
            needed, or ``dm_env:MODULE:FUNCTION`` for what a function or class without required
            arguments makes. One that takes a ``seed`` is given one.
        num_envs: n, the copies.
        render: Whether pictures of copy 0 will be asked for.

    Returns:
        The environments. Bounded coordinates of observations are scaled to [0, 1], also those of
        images; numbers become unit vectors. Gymnasium's copies come from the environment's own
        vector entry point where it has one with next-step autoreset.

    Raises:
        InputError: For a name that stands for no environment, a missing package, actions that are
            not discrete, observations that are not one array, or pictures of an environment that
            cannot be drawn.
    """
    require_positive("num_envs", num_envs)
    if name.startswith(DM_ENV):
        return _DmEnvironments(name, num_envs, render)
    return _GymnasiumEnvironments(name, num_envs, render)


class _GymnasiumEnvironments:
    """Copies of an environment of Gymnasium.

    Copies that are made one by one have the seeds seed, seed + 1, ...; an own vector entry point
    does as it likes with the one seed.
    """

    def __init__(self, name: str, num_envs: int, render: bool) -> None:
        self._environments, renders = _make_gymnasium(name, num_envs, render)
        try:
            self.num_actions, self._first_action = actions_of_space(
                self._environments.single_action_space, name
            )
            self._observations = observations_of_space(
                self._environments.single_observation_space, name
            )
            self.num_envs, self.observation_shape = num_envs, self._observations.shape
            if render and not renders:
                _require_images(self.observation_shape, name)
        except InputError:
            self.close()
            raise
        self._renders = render and renders
        self._latest: FloatArray | None = None

    def reset(self, seed: int) -> FloatArray:
        raw, _ = self._environments.reset(seed=seed)
        self._latest = self._observations.encode(raw)
        return self._latest

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
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
        if not self._renders:
            return _picture_of(self._latest)
        with _quietly():
            if isinstance(self._environments, SyncVectorEnv):
                drawn: Any = self._environments.envs[0].render()
            else:
                pictures: Any = self._environments.render()
                drawn = pictures[0]
        return np.asarray(drawn, np.uint8)

    def close(self) -> None:
        self._environments.close()


def _make_gymnasium(name: str, num_envs: int, render: bool) -> tuple[VectorEnv[Any, Any, Any], bool]:
    """The copies, and whether they draw themselves, which they were told to if ``render``."""
    with _quietly(), _explained(name):
        _import_namespace(name)
        spec = gymnasium.spec(_import_module(name))
        if spec.vector_entry_point is not None and not spec.additional_wrappers:
            own, renders = _make_own_vector(spec, num_envs, render)
            if own.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
                return own, renders
            own.close()
        if spec.entry_point is None:
            raise gymnasium.error.Error("it has no copies with next-step autoreset")
        creator = _creator(spec.entry_point)
        modes = getattr(creator, "metadata", {}).get("render_modes", ["rgb_array"])
        renders = "rgb_array" in modes
        options = {"render_mode": "rgb_array"} if render and renders else {}

        def make_one() -> gymnasium.Env[Any, Any]:
            # The checker's remarks are for an environment's author.
            return gymnasium.make(spec, disable_env_checker=True, **options)

        copies = SyncVectorEnv([make_one] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
        return copies, renders


def _make_own_vector(
    spec: EnvSpec, num_envs: int, render: bool
) -> tuple[VectorEnv[Any, Any, Any], bool]:
    assert spec.vector_entry_point is not None
    parameters = inspect.signature(_creator(spec.vector_entry_point)).parameters
    renders = "render_mode" in parameters
    options = {"render_mode": "rgb_array"} if render and renders else {}
    return gymnasium.make_vec(
        spec, num_envs, vectorization_mode="vector_entry_point", **options
    ), renders


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


def _import_namespace(name: str) -> None:
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


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of environments and of packages that they import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turns what Gymnasium and imports say of a name into an ``InputError`` of one line."""
    try:
        yield
    except (gymnasium.error.Error, ImportError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"expected an environment that can be made, got {name!r}: {said}") from error


class _DmEnvironments:
    """Copies of an environment of dm_env.

    dm_env has no way of seeding. Each reset therefore makes the copies anew, with seeds seed,
    seed + 1, ... if what makes them takes a ``seed``. If it takes none, they are as different and
    as repeatable as it makes them.
    """

    def __init__(self, name: str, num_envs: int, render: bool) -> None:
        self._make = _dm_env_factory(name)
        self._copies = [self._make(0)]
        first = self._copies[0]
        require(
            isinstance(first, dm_env.Environment), f"{name} to make a dm_env.Environment", first
        )
        self.num_envs, self.num_actions = num_envs, actions_of_environment(first, name)
        self._observations = observations_of_spec(first.observation_spec(), name)
        self.observation_shape = self._observations.shape
        if render and not callable(getattr(first, "render", None)):
            _require_images(self.observation_shape, name)
        self._action_type = first.action_spec().dtype.type
        self._ended: FlagArray = np.zeros(num_envs, np.bool_)
        self._latest: FloatArray | None = None

    def reset(self, seed: int) -> FloatArray:
        self.close()
        with _quietly():
            self._copies = [self._make(seed + copy) for copy in range(self.num_envs)]
        self._ended = np.zeros(self.num_envs, np.bool_)
        return self._encode([copy.reset() for copy in self._copies])

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        taken = [
            copy.reset() if ended else copy.step(self._action_type(action))
            for copy, ended, action in zip(self._copies, self._ended, actions, strict=True)
        ]
        last = np.array([step.last() for step in taken], np.bool_)
        terminal = np.array([step.discount == 0.0 for step in taken], np.bool_)
        # At an episode's start dm_env gives None as reward and discount.
        rewards = [0.0 if step.reward is None else float(step.reward) for step in taken]
        self._ended = last
        return HostStep(
            self._encode(taken), np.array(rewards, np.float32), last & terminal, last & ~terminal
        )

    def _encode(self, taken: list[dm_env.TimeStep]) -> FloatArray:
        self._latest = self._observations.encode(np.stack([step.observation for step in taken]))
        return self._latest

    def render(self) -> Picture:
        draw = getattr(self._copies[0], "render", None)
        return np.asarray(draw(), np.uint8) if callable(draw) else _picture_of(self._latest)

    def close(self) -> None:
        for copy in self._copies:
            copy.close()
        self._copies = []
