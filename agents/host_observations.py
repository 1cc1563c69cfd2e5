"""What agents see of environments on the host: coordinates scaled if bounded, images as bytes."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import dm_env  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import numpy.typing as npt
from dm_env import specs
from gymnasium import spaces

from rlreps.errors import InputError

Inputs = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
"""Observations as agents see them: float32, or bytes, which a Q-network divides by 255."""

LARGEST_BOUND = 1e6
"""A coordinate with a bound beyond this counts as unbounded: it would be scaled to nothing."""


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
    """For a space of Gymnasium.

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
    """For a specification of dm_env: an array of numbers, bounded or not, or a ``DiscreteArray``.

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
    """Number of actions of a space of Gymnasium, and the first.

    Raises:
        InputError: Unless it is ``Discrete``.
    """
    if not isinstance(space, spaces.Discrete):
        raise InputError(f"expected {name} to have discrete actions, got {space}")
    return int(space.n), int(space.start)


def actions_of_environment(environment: dm_env.Environment, name: str) -> int:
    """Number of actions of an environment of dm_env, whose rewards must be scalars too.

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
    """Coordinates with two bounds are mapped onto [0, 1]; the others stay as they are."""
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
    """Shape and order of axes that torsos expect: [coordinates] or [height, width, channels].

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
