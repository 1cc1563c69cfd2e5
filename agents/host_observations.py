"""Observations of environments on the host, converted to what agents see.

Bounded coordinates are scaled to [0, 1], images stay bytes, and indices become unit vectors.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlreps.encoders import channels_first
from rlreps.errors import InputError, require
from rlreps.typing import DoubleArray
from rlreps.worlds.from_gymnax import LARGEST_RANGE, scale_of

HostInputs = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
"""Observations that agents see: float32, or bytes, which a Q-network divides by 255."""


class ObservationMap(NamedTuple):
    """The map from observations to an agent's inputs.

    Attributes:
        shape: Shape of one input.
        dtype: float32, or uint8 for images.
        encode: Observations as the environment gives them, [n, ...], → inputs, [n, *shape].
    """

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    encode: Callable[[Any], HostInputs]


def map_observations(space: gymnasium.Space[Any], name: str) -> ObservationMap:
    """Make the map from a space of Gymnasium to an agent's inputs.

    Args:
        space: A ``Box``, whose bounded coordinates are scaled to [0, 1] and whose others are
            unchanged, or a ``Discrete``, whose numbers become unit vectors. Images of bytes are
            unchanged.
        name: The environment's name, for messages.

    Raises:
        InputError: For any other space. ``encode`` raises one for an index outside its space, or if
            single precision rounds away a difference from the first observation, in a coordinate
            without bounds.
    """
    if isinstance(space, spaces.Discrete):
        return _unit_vectors(int(space.n), int(space.start), name)
    if isinstance(space, spaces.Box):
        return _of_box(space, name)
    raise InputError(
        f"expected {name} to have observations in a Box or Discrete, got {space}; "
        "gymnasium.wrappers.FlattenObservation makes vectors of them"
    )


def _unit_vectors(count: int, first: int, name: str) -> ObservationMap:
    rows = np.eye(count, dtype=np.float32)

    def encode(raw: Any) -> HostInputs:
        numbers = np.asarray(raw).reshape(-1) - first
        beyond = numbers[(numbers < 0) | (numbers >= count)]
        expected = f"{name} to have observations in [{first}, {first + count})"
        require(not beyond.size, expected, (beyond + first).tolist())
        found: HostInputs = rows[numbers]
        return found

    return ObservationMap((count,), np.float32, encode)


def _of_box(space: spaces.Box, name: str) -> ObservationMap:
    low, high = space.low, space.high
    shape, arrange = _arranged(low.shape)
    if space.dtype == np.uint8 and len(shape) == 3 and np.all(low == 0) and np.all(high == 255):
        # A copy: the environment may draw its next image into the same array.
        return ObservationMap(shape, np.uint8, lambda raw: arrange(np.array(raw, np.uint8)))
    if space.dtype == np.bool_:
        return ObservationMap(shape, np.float32, lambda raw: arrange(np.array(raw, np.float32)))
    least, width = scale_of(low, high)
    scales: dict[np.dtype[Any], tuple[DoubleArray, DoubleArray]] = {}
    first: DoubleArray | None = None
    far: npt.NDArray[np.bool_] | None = None

    def encode(raw: Any) -> HostInputs:
        nonlocal first, far
        # In the precision that they come in, since coordinates may have a large offset.
        values = np.asarray(raw)
        kind = np.result_type(values.dtype, np.float32)
        if kind not in scales:
            scales[kind] = least.astype(kind), width.astype(kind)
        start, extent = scales[kind]
        # Numbers too large for single precision become infinite, which the copies refuse.
        with np.errstate(over="ignore"):
            scaled = (values.astype(kind) - start) / extent
            seen = scaled.astype(np.float32)
            if first is None:
                first = scaled[0]
                distant = np.abs(first) > LARGEST_RANGE
                far = distant if distant.any() else None
            if far is not None:
                lost = far & (scaled != first) & (seen == first.astype(np.float32))
                for value in scaled[lost][:1]:
                    raise InputError(
                        f"expected {name} to have observations that single precision tells apart, "
                        f"got {value} beside others that it rounds alike: subtract an offset, or "
                        "give bounds in the observation space"
                    )
        return arrange(seen)

    return ObservationMap(shape, np.float32, encode)


def _arranged(
    shape: tuple[int, ...],
) -> tuple[tuple[int, ...], Callable[[HostInputs], HostInputs]]:
    """Arrange axes as torsos expect them: [coordinates] or [height, width, channels].

    An array with at most one axis longer than 1 is a vector. A picture without channels gets one
    channel. A stack of up to four pictures becomes the channels of one picture
    (``channels_first``).
    """
    if sum(size > 1 for size in shape) <= 1:
        size = math.prod(shape)
        return (size,), lambda values: values.reshape(len(values), size)
    if len(shape) == 2:
        return (*shape, 1), lambda values: values[..., np.newaxis]
    if channels_first(shape):
        return (*shape[1:], shape[0]), lambda values: np.moveaxis(values, 1, -1)
    return shape, lambda values: values
