"""Recorded frames of an agent, and clips of stacks of them."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from numpy.lib.stride_tricks import sliding_window_view

from rlreps.batch import Batch, Clip
from rlreps.errors import require
from rlreps.numerics import jit

ByteArray: TypeAlias = npt.NDArray[np.uint8]
FloatArray: TypeAlias = npt.NDArray[np.float32]
IndexArray: TypeAlias = npt.NDArray[np.int64]

_BLOCK = 512
"""Number of stacks that are encoded at a time."""


class Frames(NamedTuple):
    """Frames and actions of an agent.

    Attributes:
        images: Grey levels in the order in which they were seen, [n, height, width].
        episodes: Number of each frame's episode, rising, [n].
        actions: Action after each frame, from 0, [n]; meaningless at an episode's end.
    """

    images: ByteArray
    episodes: IndexArray
    actions: IndexArray

    def windows(self, length: int) -> IndexArray:
        """Find the first frames of all stretches of ``length`` frames within one episode.

        Raises:
            InputError: If there are none.
        """
        last = max(len(self.episodes) - length + 1, 0)
        first = np.flatnonzero(self.episodes[:last] == self.episodes[length - 1 :])
        require(len(first) > 0, f"an episode of at least {length} frames", "none")
        return first

    def newest(self, stack: int) -> ByteArray:
        """Return the newest frame of every stack, [m, height, width]."""
        images: ByteArray = self.images[self.windows(stack) + stack - 1]
        return images


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FrameClips:
    """Clips of stacked frames, each within an episode, drawn uniformly with replacement.

    Attributes:
        images: Grey levels, [n, height, width] (uint8).
        actions: Action after each frame, [n] (int32).
        starts: First frames of clips, [p] (int32).
        mean: Image subtracted from every frame, [height, width].
        length: Stacks of a clip.
        stack: Frames of a stack.
        num_actions: A.
    """

    images: Array
    actions: Array
    starts: Array
    mean: Array
    length: int = dataclasses.field(metadata={"static": True})
    stack: int = dataclasses.field(metadata={"static": True})
    num_actions: int = dataclasses.field(metadata={"static": True})

    num_tasks = None
    """Targets are actions."""

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw clips of stacks [b, height, width, stack], their newest frame last.

        Targets are the action after the newest frame of the first stack, one-hot, [b, A].
        """
        del num_tasks
        first = self.starts[jax.random.randint(key, (num_rows,), 0, len(self.starts))]

        def stacks(shift: int) -> Array:
            shown = self.images[first[:, None] + shift + jnp.arange(self.stack)[None, :]]
            return scaled(jnp.moveaxis(shown, 1, -1), self.mean)

        done = jax.nn.one_hot(self.actions[first + self.stack - 1], self.num_actions)
        return Batch(Clip(tuple(map(stacks, range(self.length)))), done)


@dataclasses.dataclass(frozen=True, eq=False)
class FrameSplit:
    """Frames for training and for testing, and the mean subtracted from both.

    Attributes:
        training: Frames that train.
        held_out: Frames that test.
        stack: Consecutive frames that a network sees together.
        mean: The mean training frame, [height, width].
    """

    training: Frames
    held_out: Frames
    stack: int
    mean: FloatArray

    @classmethod
    def of(cls, training: Frames, held_out: Frames, stack: int) -> "FrameSplit":
        """Compute the mean training frame."""
        mean = training.images.mean(axis=0, dtype=np.float64)
        return cls(training, held_out, stack, mean.astype(np.float32))

    @property
    def num_actions(self) -> int:
        """Number of actions of the game; a random agent takes all of them."""
        return 1 + max(int(part.actions.max()) for part in (self.training, self.held_out))

    def clips(self, frames: Frames, length: int) -> FrameClips:
        """Put frames on the default device, as clips of ``length`` stacks."""
        return FrameClips(
            jnp.asarray(frames.images),
            jnp.asarray(frames.actions, jnp.int32),
            jnp.asarray(frames.windows(length + self.stack - 1), jnp.int32),
            jnp.asarray(self.mean),
            length,
            self.stack,
            self.num_actions,
        )

    def encoded(self, function: Callable[[Array], Array]) -> FloatArray:
        """Apply a function of stacks [b, height, width, stack] → [b, k] to test stacks, [m, k]."""
        stacks = sliding_window_view(self.held_out.images, self.stack, axis=0)
        compiled = jit(lambda part: function(scaled(part, jnp.asarray(self.mean))))
        parts, first = [], self.held_out.windows(self.stack)
        for start in range(0, len(first), _BLOCK):
            rows = first[start : start + _BLOCK]
            # One shape, one compilation: the last block is padded with its own last stack.
            filled = np.pad(rows, (0, _BLOCK - len(rows)), mode="edge")
            parts.append(np.asarray(compiled(jnp.asarray(stacks[filled])))[: len(rows)])
        return np.concatenate(parts)


def scaled(stacks: Array, mean: Array) -> Array:
    """Turn grey levels [b, height, width, stack] into numbers in [-1, 1], less the mean frame."""
    return (stacks.astype(jnp.float32) - mean[None, :, :, None]) / 255.0
