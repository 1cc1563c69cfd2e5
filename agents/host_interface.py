"""What an agent asks of environments that run on the host, and what all kinds of them share."""

import importlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from rlreps.agents.host_observations import Inputs
from rlreps.errors import InputError, require

FlagArray = npt.NDArray[np.bool_]
Picture = npt.NDArray[np.uint8]


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
        """A picture of copy 0, [height, width, 3]."""

    def close(self) -> None:
        """Free what the copies hold."""


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of environments and of packages that they import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turns what is raised while a name is looked up and made into an ``InputError`` of one line.

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
    """The module that an environment's name names.

    Raises:
        InputError: If that is no module's name.
        ImportError: If it is not there; and whatever else it raises.
    """
    require(all(module.split(".")), "a module's name before the environment's", name)
    return importlib.import_module(module)


def single_precision(values: Any) -> npt.NDArray[np.float32]:
    """A copy in single precision, in which what is too large becomes infinite without a warning."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def require_finite(what: str, values: Inputs, name: str) -> None:
    """Raises an ``InputError`` if values of an environment are NaN or infinite.

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
    """A seed in [0, 2^31) for an environment of an agent, which no other agent has a part in.

    Args:
        agent_seed: The agent's own seed.
        use: A ``Use``: what the environment is for.
        step: Environment steps that the agent has taken.
        copy: Which of the agent's environments, or which episode of an evaluation.
    """
    entropy = (agent_seed, int(use), step, copy)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1


def require_images(observation_shape: tuple[int, ...], name: str) -> None:
    """Raises an ``InputError`` unless observations can stand in for pictures that nobody draws."""
    if len(observation_shape) != 3:
        raise InputError(
            f"expected an environment that draws itself or whose observations are images, "
            f"got {name!r}"
        )


def picture_of(images: Inputs | None) -> Picture:
    """The first of images [n, height, width, channels], in [0, 1] or bytes, as [height, width, 3].

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
