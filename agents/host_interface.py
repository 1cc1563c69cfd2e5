"""What an agent asks of environments that run on the host, and what all kinds of them share."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from rlreps.agents.host_observations import Inputs
from rlreps.errors import InputError

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
    """

    num_envs: int
    num_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: npt.DTypeLike

    def reset(self, seed: int) -> Inputs:
        """Start an episode in every copy, [n, *observation]; ``seed`` in [0, 2^31) decides all."""

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> HostStep:
        """Take an action [n] in each copy whose episode goes on."""

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
    """Turns what Gymnasium and imports say of a name into an ``InputError`` of one line."""
    try:
        yield
    except (gymnasium.error.Error, ImportError) as error:
        said = " ".join(str(error).split())
        raise InputError(
            f"expected an environment that can be made, got {name!r}: {said}"
        ) from error


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
