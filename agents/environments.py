"""Environments that run on the host, many copies at a time: Gymnasium's and dm_env's alike.

Agents see bounded coordinates scaled to [0, 1], images as bytes, and numbers as unit vectors.
"""

import abc
import dataclasses
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from types import ModuleType
from typing import Any, NamedTuple

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
"""Prefix of the names of dm_env environments."""

LARGEST_BOUND = 1e6
"""A coordinate with a bound beyond this counts as unbounded: it would be scaled to nothing."""

_ATARI_LIMIT = "max_num_frames_per_episode"
"""The argument in which Atari games name their limit, which no specification of theirs does."""


class HostStep(NamedTuple):
    """Outcome of a step in n copies.

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


class HostEnvironments(abc.ABC):
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

    num_actions: int
    max_episode_steps: int | None

    def __init__(self, name: str, num_envs: int) -> None:
        self._name, self.num_envs = name, num_envs
        self._latest: Inputs | None = None

    def _see(self, observations: "Observations", pictures_wanted: bool) -> None:
        """Take observations as described, which have to be pictures if nothing else draws them.

        Raises:
            InputError: If they are not images where they have to stand in for pictures.
        """
        self._observations = observations
        self.observation_shape = observations.shape
        self.observation_dtype = observations.dtype
        require(
            not pictures_wanted or len(observations.shape) == 3,
            "an environment that draws itself or whose observations are images",
            self._name,
        )

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> Inputs:
        """Start an episode in every copy, [n, *observation].

        Args:
            seeds: In [0, 2^31), one for each copy: it alone decides what is random in that copy,
                up to the next reset and whatever the other copies do.

        Raises:
            InputError: For observations that are NaN or infinite.
        """

    @abc.abstractmethod
    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        """Take an action [n] in each copy whose episode goes on.

        Raises:
            InputError: For observations or rewards that are NaN or infinite.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Free what the copies hold."""

    @abc.abstractmethod
    def _draw(self) -> Any:
        """Draw copy 0; None if it does not draw itself."""

    def render(self) -> Picture:
        """Return a picture of copy 0, [height, width, 3], drawn by itself or its observation."""
        with quietly():
            drawn = self._draw()
        return picture_of(self._latest) if drawn is None else np.asarray(drawn, np.uint8)

    def _encode(self, raw: Any) -> Inputs:
        self._latest = self._observations.encode(raw)
        self._require_finite("observations", self._latest)
        return self._latest

    def _step_of(self, raw: Any, rewards: Any, terminated: Any, truncated: Any) -> HostStep:
        # Copies: an environment may write its next step into the same arrays.
        with np.errstate(over="ignore"):
            given = np.array(rewards, np.float32)
        self._require_finite("rewards", given)
        ends = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return HostStep(self._encode(raw), given, *ends)

    def _require_finite(self, what: str, values: Inputs) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            raise InputError(
                f"expected {self._name} to give finite numbers as {what}, got {values[~finite][0]}"
            )


class HostDescription(NamedTuple):
    """The properties of an environment that a network depends on.

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


def make_environment(name: str, seed: int) -> Any:
    """Make one environment itself, of Gymnasium or dm_env.

    Args:
        name: As of ``make_host_environments``.
        seed: Given to what makes a dm_env environment, if it takes one.

    Raises:
        InputError: For a name that stands for none.
    """
    with quietly(), explained(name):
        if not name.startswith(DM_ENV):
            import_games(name)
            return gymnasium.make(name)
        environment = _factory(name)(seed)
    _require_dm_env(environment, name)
    return environment


class GymnasiumCopies(HostEnvironments):
    """Copies of an environment of Gymnasium; see ``make_host_environments``."""

    def __init__(
        self, name: str, num_envs: int, max_episode_steps: int | None, render: bool
    ) -> None:
        super().__init__(name, num_envs)
        with quietly(), explained(name):
            import_games(name)
            spec = gymnasium.spec(_import_module(name))
            if not self._make_together(spec, render):
                self._make_singly(spec, max_episode_steps, render)
        try:
            actions = self._environments.single_action_space
            if not isinstance(actions, spaces.Discrete):
                raise InputError(f"expected {name} to have discrete actions, got {actions}")
            self.num_actions, self._first_action = int(actions.n), int(actions.start)
            observations = observations_of_space(self._environments.single_observation_space, name)
            self._see(observations, render and not self._draws)
        except InputError:
            self.close()
            raise

    def _make_together(self, spec: EnvSpec, render: bool) -> bool:
        """Make copies by an environment's own vector entry point, if there is one that fits.

        It must end its episodes, begin the next ones in the step after that, and take a seed for
        each copy, without which an agent's episodes would depend on how many agents there are.
        """
        limit = spec.max_episode_steps or spec.kwargs.get(_ATARI_LIMIT)
        if spec.vector_entry_point is None or spec.additional_wrappers or limit is None:
            return False
        known = inspect.signature(_creator(spec.vector_entry_point)).parameters
        self._draws = render and "render_mode" in known
        options: dict[str, Any] = {"render_mode": "rgb_array"} if self._draws else {}
        own = gymnasium.make_vec(
            spec, self.num_envs, vectorization_mode="vector_entry_point", **options
        )
        self._environments: VectorEnv[Any, Any, Any] = own
        self.max_episode_steps = int(limit)
        if own.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
            forms: tuple[Callable[[Sequence[int]], Any], ...] = (list, np.array)
            for self._as_seeds in forms:
                # Whatever it raises, it takes no such seeds.
                with suppress(Exception):
                    own.reset(seed=self._as_seeds(range(self.num_envs)))
                    return True
        own.close()
        return False

    def _make_singly(self, spec: EnvSpec, max_episode_steps: int | None, render: bool) -> None:
        """Make copies one by one, and cut their episodes where they name no limit of their own."""
        if spec.entry_point is None:
            raise gymnasium.error.Error(
                "it has no copies with next-step autoreset, a limit of steps (max_episode_steps) "
                "and a seed for each"
            )
        if spec.max_episode_steps is None:
            spec = dataclasses.replace(spec, max_episode_steps=max_episode_steps)
        modes = getattr(_creator(spec.entry_point), "metadata", {}).get("render_modes", [])
        self._draws = render and "rgb_array" in modes
        options: dict[str, Any] = {"render_mode": "rgb_array"} if self._draws else {}

        def make_one() -> gymnasium.Env[Any, Any]:
            # The checker's remarks are for an environment's author.
            return gymnasium.make(spec, disable_env_checker=True, **options)

        self._environments = SyncVectorEnv(
            [make_one] * self.num_envs, autoreset_mode=AutoresetMode.NEXT_STEP
        )
        self._as_seeds, self.max_episode_steps = list, spec.max_episode_steps

    def reset(self, seeds: Sequence[int]) -> Inputs:
        return self._encode(self._environments.reset(seed=self._as_seeds(seeds))[0])

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        chosen = np.asarray(actions, np.int64) + self._first_action
        return self._step_of(*self._environments.step(chosen)[:4])

    def close(self) -> None:
        self._environments.close()

    def _draw(self) -> Any:
        if not self._draws:
            return None
        pictures: Any = self._environments.render()
        return pictures[0]


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


def import_games(name: str) -> None:
    """Register the games of Atari or MinAtar where a name is one of them."""
    if name.startswith("MinAtar/") and name not in gymnasium.registry:
        try:
            import minatar.gym  # type: ignore[import-not-found]
        except ImportError as error:
            raise InputError(
                f'expected the package minatar for {name}, got none: pip install "rlreps[minatar]"'
            ) from error
        minatar.gym.register_envs()
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


class DmEnvCopies(HostEnvironments):
    """Copies of an environment of dm_env; see ``make_host_environments``.

    dm_env has no way of seeding. Each reset therefore makes the copies anew, each with its seed if
    what makes them takes a ``seed``. If it takes none, they are as different and as repeatable as
    it makes them.

    An episode's end with discount 0 is a termination; with any other, a truncation. Discounts
    before it are not used: the agent has its own. dm_env environments do not tell whether they have
    a limit of their own, and know nothing of pictures: those come from a method ``render``.
    """

    def __init__(
        self, name: str, num_envs: int, max_episode_steps: int | None, render: bool
    ) -> None:
        super().__init__(name, num_envs)
        with quietly(), explained(name):
            self._make = _factory(name)
            first = self._make(0)
        self._copies = [first]
        _require_dm_env(first, name)
        actions, rewards = first.action_spec(), first.reward_spec()
        if not isinstance(actions, specs.DiscreteArray):
            raise InputError(f"expected {name} to have discrete actions, got {actions}")
        if getattr(rewards, "shape", None) != ():
            raise InputError(f"expected {name} to have scalar rewards, got {rewards}")
        self.num_actions, self._action_type = int(actions.num_values), actions.dtype.type
        self.max_episode_steps = max_episode_steps
        draws = callable(getattr(first, "render", None))
        self._see(observations_of_spec(first.observation_spec(), name), render and not draws)

    def reset(self, seeds: Sequence[int]) -> Inputs:
        self.close()
        with quietly(), explained(self._name):
            self._copies = [self._make(seed) for seed in seeds]
        self._ended: FlagArray = np.zeros(self.num_envs, np.bool_)
        self._lengths = np.zeros(self.num_envs, np.int64)
        return self._encode(np.stack([copy.reset().observation for copy in self._copies]))

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
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
        rewards = [0.0 if step.reward is None else float(step.reward) for step in taken]
        seen = np.stack([step.observation for step in taken])
        return self._step_of(seen, rewards, terminated, self._ended & ~terminated)

    def close(self) -> None:
        for copy in self._copies:
            copy.close()
        self._copies = []

    def _draw(self) -> Any:
        draw = getattr(self._copies[0], "render", None)
        return draw() if callable(draw) else None


def _require_dm_env(made: object, name: str) -> None:
    """Raise an ``InputError`` unless what a name has made is an environment of dm_env."""
    require(isinstance(made, dm_env.Environment), f"{name} to make a dm_env.Environment", made)


def _factory(name: str) -> Callable[[int], dm_env.Environment]:
    """Find the function seed → environment of a name ``dm_env:MODULE:FUNCTION``."""
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
    """The map from observations to an agent's inputs.

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


def _unit_vectors(count: int, first: int) -> Observations:
    rows = np.eye(count, dtype=np.float32)
    return Observations((count,), np.float32, lambda raw: rows[np.asarray(raw).reshape(-1) - first])


def _of_box(low: npt.NDArray[Any], high: npt.NDArray[Any], dtype: npt.DTypeLike) -> Observations:
    shape, arrange = _arranged(low.shape)
    if dtype == np.uint8 and len(shape) == 3 and np.all(low == 0) and np.all(high == 255):
        # A copy: the environment may draw its next image into the same array.
        return Observations(shape, np.uint8, lambda raw: arrange(np.array(raw, np.uint8)))
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = (np.abs(low) <= LARGEST_BOUND) & (np.abs(high) <= LARGEST_BOUND) & (low < high)
    # In single precision before they are subtracted, so that the upper bound itself becomes 1.
    least = np.where(bounded, low, 0.0).astype(np.float32)
    width = np.where(bounded, high, 1.0).astype(np.float32) - least

    def encode(raw: Any) -> Inputs:
        # What is too large for single precision becomes infinite, which the copies refuse.
        with np.errstate(over="ignore"):
            return arrange((np.asarray(raw).astype(np.float32) - least) / width)

    return Observations(shape, np.float32, encode)


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


def imports_code(name: str) -> bool:
    """Tell whether an environment's name names a module, which making it would import and run."""
    return ":" in name and not name.startswith("puddle-world:")


def import_named(module: str, name: str) -> ModuleType:
    """Import the module that an environment's name names."""
    require(all(module.split(".")), "a module's name before the environment's", name)
    return importlib.import_module(module)


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
