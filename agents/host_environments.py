"""Environments that run on the host, many copies at a time: Gymnasium's and dm_env's alike."""

from contextlib import closing
from typing import NamedTuple

import numpy.typing as npt

from rlreps.agents.dm_env_copies import DmEnvCopies
from rlreps.agents.gymnasium_copies import GymnasiumCopies
from rlreps.agents.host_interface import HostEnvironments, HostStep
from rlreps.errors import require_positive

__all__ = [
    "DM_ENV",
    "HostDescription",
    "HostEnvironments",
    "HostStep",
    "describe",
    "make_host_environments",
]

DM_ENV = "dm_env:"
"""What the names of dm_env environments begin with."""


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
    """Actions and observations of an environment, from a copy that is closed again.

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
    """Copies of an environment.

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
