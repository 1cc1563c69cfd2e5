"""Environments that run on the host, many copies at a time: Gymnasium's and dm_env's alike.

Agents see bounded coordinates scaled to [0, 1], images as bytes, and numbers as unit vectors.
"""

import dataclasses
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import dm_env  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import numpy.typing as npt
from dm_env import specs
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import rlreps.envs  # noqa: F401 - registers its environments with Gymnasium
from rlreps.errors import InputError, require, require_positive

Inputs = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
"""Observations as agents see them: float32, or bytes, which a Q-network divides by 255."""

FlagArray = npt.NDArray[np.bool_]
Picture = npt.NDArray[np.uint8]

DM_ENV = "dm_env:"
"""What the names of dm_env environments begin with."""

LARGEST_BOUND = 1e6
"""A coordinate with a bound beyond this counts as unbounded: it would be scaled to nothing."""

_ATARI_LIMIT = "max_num_frames_per_episode"
"""The argument in which Atari games name their limit, which no specification of theirs does."""

_AsSeeds = Callable[[Sequence[int]], Any]


class HostStep(NamedTuple):
    """What came of a step in n copies.

    Attributes:
        observations: [n, *observation].
        rewards: [n].
        terminated: Whether it ended the task, [n].
        truncated: Whether it ended the episode and not the task, as a time limit does, [n].
    """

    observations: Inputs
    rewards: npt.NDArray[np.float32]
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
        observation_dtype: float32, or uint8 for images.
        max_episode_steps: Steps within which every episode ends; None if nobody knows.
    """

    num_envs: int
    num_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: npt.DTypeLike
    max_episode_steps: int | None

    def reset(self, seeds: Sequence[int]) -> Inputs:
        """Start an episode in every copy, [n, *observation].

        Args:
            seeds: In [0, 2^31), one for each copy: it alone decides what is random in that copy,
                up to the next reset and whatever the other copies do.

        Raises:
            InputError: For observations that are NaN or infinite.
        """

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        """Take an action [n] in each copy whose episode goes on.

        Raises:
            InputError: For observations or rewards that are NaN or infinite.
        """

    def render(self) -> Picture:
        """Return a picture of copy 0, [height, width, 3]."""

    def close(self) -> None:
        """Free what the copies hold."""


class HostDescription(NamedTuple):
    """What a network must know of an environment.

    Attributes:
        num_actions: Actions.
        observation_shape: Of one observation.
        observation_dtype: float32, or uint8 for images.
    """

    num_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: npt.DTypeLike


def describe(name: str) -> HostDescription:
    """Find an environment's actions and observations, from a copy that is closed again.

    Raises:
        InputError: As ``make_host_environments`` does.
    """
    with closing(make_host_environments(name, 1)) as environments:
        return HostDescription(
            environments.num_actions,
            environments.observation_shape,
            environments.observation_dtype,
        )


def make_host_environments(
    name: str, num_envs: int, *, max_episode_steps: int | None = None, render: bool = False
) -> HostEnvironments:
    """Make copies of an environment.

    Args:
        name: An id of Gymnasium, with the module that registers it before a colon where that is
            needed, or ``dm_env:MODULE:FUNCTION`` for what a function or class without required
            arguments makes. One that takes a ``seed`` is given one.
        num_envs: n, the copies.
        max_episode_steps: Steps after which an episode is truncated where the environment names no
            limit of its own, as dm_env's cannot; None is none.
        render: Whether pictures of copy 0 will be asked for.

    Returns:
        The environments. Bounded coordinates of observations are scaled to [0, 1], images of bytes
        stay bytes, and numbers become unit vectors. Gymnasium's copies come from the environment's
        own vector entry point where it has one with next-step autoreset, a limit of steps and a
        seed for each copy.

    Raises:
        InputError: For a name that stands for no environment, a missing package, actions that are
            not discrete, observations that are not one array, or pictures of an environment that
            cannot be drawn.
    """
    require_positive("num_envs", num_envs)
    if name.startswith(DM_ENV):
        return DmEnvCopies(name, num_envs, max_episode_steps, render)
    return GymnasiumCopies(name, num_envs, max_episode_steps, render)


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
        """Return a picture of copy 0, drawn by itself or its observation."""
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
    """Make the copies, which are told to draw themselves if ``render``."""
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
    """Make copies one by one, and cut their episodes where they name no limit of their own."""
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
    """Make copies by an environment's own vector entry point; None if there is none that fits.

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
    """Find how copies of an own vector entry point take a seed each; None if they do not."""
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
    """Import the module before an id's colon, if any, and return the id."""
    module, colon, rest = name.partition(":")
    if not colon:
        return name
    import_named(module, name)
    return rest


def _import_games(name: str) -> None:
    """Import ale_py, whose import registers the Atari games, where a name is one of them."""
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
        """Return a picture of copy 0, drawn by itself or its observation."""
        draw = getattr(self._copies[0], "render", None)
        return np.asarray(draw(), np.uint8) if callable(draw) else picture_of(self._latest)

    def close(self) -> None:
        """Free what the copies hold."""
        for copy in self._copies:
            copy.close()
        self._copies = []


def _factory(name: str) -> Callable[[int], dm_env.Environment]:
    """Find the function seed → environment of a name ``dm_env:MODULE:FUNCTION``.

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


@dataclasses.dataclass(frozen=True)
class Observations:
    """How observations become an agent's inputs.

    Attributes:
        shape: Of one input.
        dtype: float32, or uint8 for images.
        encode: Observations as the environment gives them, [n, ...], → inputs, [n, *shape].
    """

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    encode: Callable[[Any], Inputs]


def observations_of_space(space: gymnasium.Space[Any], name: str) -> Observations:
    """Describe the observations of a space of Gymnasium.

    Args:
        space: A ``Box``, whose bounded coordinates are scaled to [0, 1] and whose others are left
            as they are, or a ``Discrete``, whose numbers become unit vectors. Images of bytes stay
            what they are.
        name: The environment's, for messages.

    Raises:
        InputError: For any other.
    """
    if isinstance(space, spaces.Discrete):
        return _unit_vectors(int(space.n), int(space.start))
    if isinstance(space, spaces.Box):
        return _of_box(space.low, space.high, space.dtype)
    raise InputError(f"expected {name} to have observations in a Box or Discrete, got {space}")


def observations_of_spec(spec: Any, name: str) -> Observations:
    """Describe those of a dm_env spec: an array of numbers, bounded or not, or ``DiscreteArray``.

    Raises:
        InputError: For nested ones and for those of other than numbers.
    """
    if isinstance(spec, specs.DiscreteArray):
        return _unit_vectors(int(spec.num_values), 0)
    if isinstance(spec, specs.BoundedArray):
        low, high = (np.broadcast_to(of, spec.shape) for of in (spec.minimum, spec.maximum))
        return _of_box(low, high, spec.dtype)
    if isinstance(spec, specs.Array) and np.dtype(spec.dtype).kind in "biuf":
        unbounded = np.full(spec.shape, np.inf)
        return _of_box(-unbounded, unbounded, spec.dtype)
    raise InputError(f"expected {name} to have observations in one array of numbers, got {spec}")


def actions_of_space(space: gymnasium.Space[Any], name: str) -> tuple[int, int]:
    """Return the number of actions of a space of Gymnasium, and the first.

    Raises:
        InputError: Unless it is ``Discrete``.
    """
    if not isinstance(space, spaces.Discrete):
        raise InputError(f"expected {name} to have discrete actions, got {space}")
    return int(space.n), int(space.start)


def actions_of_environment(environment: dm_env.Environment, name: str) -> int:
    """Return the number of actions of an environment of dm_env, whose rewards must be scalars.

    Raises:
        InputError: Unless its actions are a ``DiscreteArray`` without axes, and its rewards scalar.
    """
    actions, rewards = environment.action_spec(), environment.reward_spec()
    if not isinstance(actions, specs.DiscreteArray):
        raise InputError(f"expected {name} to have discrete actions, got {actions}")
    if getattr(rewards, "shape", None) != ():
        raise InputError(f"expected {name} to have scalar rewards, got {rewards}")
    return int(actions.num_values)


def _unit_vectors(count: int, first: int) -> Observations:
    rows = np.eye(count, dtype=np.float32)
    return Observations((count,), np.float32, lambda raw: rows[np.asarray(raw).reshape(-1) - first])


def _of_box(low: npt.NDArray[Any], high: npt.NDArray[Any], dtype: npt.DTypeLike) -> Observations:
    shape, arrange = _arranged(low.shape)
    if dtype == np.uint8 and len(shape) == 3 and np.all(low == 0) and np.all(high == 255):
        # A copy: the environment may draw its next image into the same array.
        return Observations(shape, np.uint8, lambda raw: arrange(np.array(raw, np.uint8)))
    scale = _scaling(low, high)
    return Observations(shape, np.float32, lambda raw: arrange(scale(raw)))


def _scaling(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Callable[[Any], Inputs]:
    """Map coordinates with two bounds onto [0, 1] and leave the others as they are."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = (np.abs(low) <= LARGEST_BOUND) & (np.abs(high) <= LARGEST_BOUND) & (low < high)
    # In single precision before they are subtracted, so that the upper bound itself becomes 1.
    least = np.where(bounded, low, 0.0).astype(np.float32)
    width = np.where(bounded, high, 1.0).astype(np.float32) - least

    def scale(raw: Any) -> Inputs:
        # What is too large for single precision becomes infinite, which the copies refuse.
        with np.errstate(over="ignore"):
            scaled: npt.NDArray[np.float32] = (np.asarray(raw).astype(np.float32) - least) / width
        return scaled

    return scale


def _arranged(
    shape: tuple[int, ...],
) -> tuple[tuple[int, ...], Callable[[Inputs], Inputs]]:
    """Arrange axes as torsos expect them: [coordinates] or [height, width, channels].

    An array with at most one axis longer than 1 is a vector. Pictures without channels get one,
    and a stack of up to four pictures becomes their channels.
    """
    if sum(size > 1 for size in shape) <= 1:
        size = math.prod(shape)
        return (size,), lambda values: values.reshape(len(values), size)
    if len(shape) == 2:
        return (*shape, 1), lambda values: values[..., np.newaxis]
    if len(shape) == 3 and shape[0] <= 4 < min(shape[1:]):
        return (*shape[1:], shape[0]), lambda values: np.moveaxis(values, 1, -1)
    return shape, lambda values: values


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the warnings of environments and of packages that they import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn what is raised while a name is looked up and made into an ``InputError`` of one line.

    Constructors are anyone's code: they may raise anything.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        if not isinstance(error, gymnasium.error.Error | ImportError):
            said = f"{type(error).__name__}: {said}"
        raise InputError(
            f"expected an environment that can be made, got {name!r}: {said}"
        ) from error


def import_named(module: str, name: str) -> ModuleType:
    """Import the module that an environment's name names.

    Raises:
        InputError: If that is no module's name.
        ImportError: If it is not there; and whatever else it raises.
    """
    require(all(module.split(".")), "a module's name before the environment's", name)
    return importlib.import_module(module)


def single_precision(values: Any) -> npt.NDArray[np.float32]:
    """Copy to single precision, in which what is too large becomes infinite without a warning."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def require_finite(what: str, values: Inputs, name: str) -> None:
    """Raise an ``InputError`` if values of an environment are NaN or infinite.

    Args:
        what: What they are.
        values: Of any shape.
        name: The environment's.
    """
    if values.dtype == np.uint8:
        return
    finite = np.isfinite(values)
    if not finite.all():
        raise InputError(
            f"expected {name} to give finite numbers as {what}, got {values[~finite][0]}"
        )


def environment_seed(agent_seed: int, use: int, step: int, copy: int) -> int:
    """Derive a seed in [0, 2^31) for an environment of an agent, which no other agent shares.

    Args:
        agent_seed: The agent's own seed.
        use: A ``Use``: what the environment is for.
        step: Environment steps that the agent has taken.
        copy: Which of the agent's environments, or which episode of an evaluation.
    """
    entropy = (agent_seed, int(use), step, copy)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1


def require_images(observation_shape: tuple[int, ...], name: str) -> None:
    """Raise an ``InputError`` unless observations can stand in for pictures that nobody draws."""
    if len(observation_shape) != 3:
        raise InputError(
            f"expected an environment that draws itself or whose observations are images, "
            f"got {name!r}"
        )


def picture_of(images: Inputs | None) -> Picture:
    """Return the first of images [n, height, width, channels] as a picture [height, width, 3].

    Images are in [0, 1] or bytes.

    Three channels are its colours; of any other number, the last is its brightness.

    Raises:
        InputError: If there are none yet.
    """
    if images is None:
        raise InputError("expected reset() before render()")
    image = images[0] if images.shape[-1] == 3 else np.repeat(images[0][..., -1:], 3, axis=-1)
    if image.dtype == np.uint8:
        return np.array(image, np.uint8)
    picture: Picture = np.rint(255 * np.clip(image, 0.0, 1.0)).astype(np.uint8)
    return picture
