"""The problem: pairs of consecutive frames to train on, and later ones to measure with."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.encoders import Encoder, FunctionEncoder, Params
from rlreps.errors import require
from rlreps.experiments.pfau_2019.atari.frames import ByteArray, DoubleArray, Frames, IndexArray
from rlreps.losses.base import Batch
from rlreps.subspace import randomized_svd

FloatArray = npt.NDArray[np.float32]

_HELD_OUT_FROM, _HELD_OUT_BEFORE = 0.8, 0.9
"""Between which shares of the frames the held-out ones begin."""

_BLOCK_FRAMES = 512
"""Frames that are turned into numbers at a time."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PairSource:
    """Pairs of consecutive frames, drawn uniformly with replacement.

    Attributes:
        images: Grey levels, [n, height, width] (uint8).
        starts: The first frame of each pair, [p] (int32).
    """

    images: Array
    starts: Array

    @property
    def num_tasks(self) -> int:
        """Columns of targets: none."""
        return 0

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Frames [num_rows, height, width, 1] (uint8), rows i and i + num_rows/2 consecutive.

        Targets are [num_rows, 0]. Raises an ``InputError`` for an odd number of rows.
        """
        del num_tasks
        require(num_rows % 2 == 0, "an even number of rows, pairs of frames", num_rows)
        chosen = jax.random.randint(key, (num_rows // 2,), 0, len(self.starts))
        first = self.starts[chosen]
        frames = self.images[jnp.concatenate([first, first + 1])]
        return Batch(frames[..., None], jnp.zeros((num_rows, 0)))


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Frames, and which of them train.

    Attributes:
        frames: All frames.
        cut: The first held-out frame; the frames before train.
        training: First frames of training pairs, [p].
        held_out: First frames of held-out pairs, [q].
        mean: Mean training frame, [height, width].
        scale: Root mean square of its pixels' deviations from it.
    """

    frames: Frames
    cut: int
    training: IndexArray
    held_out: IndexArray
    mean: FloatArray
    scale: float

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """(height, width, 1) of a frame."""
        _, height, width = self.frames.images.shape
        return height, width, 1

    @property
    def later_episodes(self) -> bool:
        """Whether no episode has both training and held-out frames."""
        before, after = self.frames.episodes[self.cut - 1 : self.cut + 1]
        return bool(before != after)

    def source(self) -> PairSource:
        """Training pairs, their frames on the default device."""
        images = jnp.asarray(self.frames.images[: self.cut])
        return PairSource(images, jnp.asarray(self.training, jnp.int32))

    def standardised(self, frames: Array) -> Array:
        """Grey levels [b, height, width, 1] less the mean frame, with a mean square near one."""
        centred: Array = frames.astype(jnp.float32) - jnp.asarray(self.mean)[None, :, :, None]
        return centred / self.scale

    def on_frames(self, encoder: Encoder) -> Encoder:
        """An encoder of grey levels from one of standardised frames."""
        return FunctionEncoder(
            encoder.init,
            lambda params, frames: encoder.apply(params, self.standardised(frames)),
        )


def make_problem(frames: Frames) -> Problem:
    """Splits frames by time: whole later episodes are held out, where there are enough of them.

    The held-out frames begin with the first episode that starts between four fifths and nine tenths
    of the frames, or failing that at four fifths.

    Raises:
        InputError: If no pixel of the training frames ever changes.
    """
    count = len(frames.episodes)
    low, high = int(_HELD_OUT_FROM * count), int(_HELD_OUT_BEFORE * count)
    starts = np.flatnonzero(np.diff(frames.episodes)) + 1
    later = starts[(starts >= low) & (starts < high)]
    cut = int(later[0]) if len(later) else low
    pairs = frames.pairs()
    mean, scale = _statistics(frames.images[:cut])
    require(scale > 0.0, "frames that change", "the same frame throughout")
    return Problem(frames, cut, pairs[pairs + 1 < cut], pairs[pairs >= cut], mean, scale)


def _statistics(images: ByteArray) -> tuple[FloatArray, float]:
    """Mean frame, and root mean square of its pixels' deviations."""
    total, squares = np.zeros(images.shape[1:]), np.zeros(images.shape[1:])
    for start in range(0, len(images), _BLOCK_FRAMES):
        block = images[start : start + _BLOCK_FRAMES].astype(np.float64)
        total += block.sum(axis=0)
        squares += np.square(block).sum(axis=0)
    mean = total / len(images)
    variance = squares / len(images) - np.square(mean)
    return mean.astype(np.float32), float(np.sqrt(max(variance.mean(), 0.0)))


def outputs(
    function: Callable[[Array], Array], images: ByteArray, block: int = _BLOCK_FRAMES
) -> DoubleArray:
    """A function of frames [b, height, width, 1] (uint8) → [b, k] at every image, [n, k]."""
    compiled = jax.jit(function)
    parts = []
    for start in range(0, len(images), block):
        part = images[start : start + block]
        # One shape, one compilation: the last block is filled up with its own last frame.
        filled = np.concatenate([part, np.repeat(part[-1:], block - len(part), axis=0)])
        parts.append(np.asarray(compiled(jnp.asarray(filled)[..., None]), np.float64)[: len(part)])
    return np.concatenate(parts)


def encoded(encoder: Encoder, params: Params, problem: Problem) -> DoubleArray:
    """An encoder's features of all frames, [n, d]."""
    return outputs(lambda frames: encoder.apply(params, frames), problem.frames.images)


@dataclasses.dataclass(frozen=True, eq=False)
class _PixelBlocks:
    """Training frames as centred rows of pixels (``subspace.RowBlocks``)."""

    problem: Problem

    @property
    def shape(self) -> tuple[int, int]:
        """(frames, pixels)."""
        return self.problem.cut, self.problem.mean.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Single precision."""
        return np.dtype(np.float32)

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yields (first frame, centred pixels [r, pixels])."""
        images, mean = self.problem.frames.images, self.problem.mean.ravel()
        for start in range(0, self.problem.cut, _BLOCK_FRAMES):
            part = images[start : min(start + _BLOCK_FRAMES, self.problem.cut)]
            yield start, part.reshape(len(part), -1).astype(np.float32) - mean[None, :]


def principal_pixels(problem: Problem, count: int) -> tuple[DoubleArray, float]:
    """Principal components of the training frames' pixels, at all frames.

    Args:
        problem: The problem.
        count: Number of components.

    Returns:
        (components [n, count], share of the training frames' variance that they hold).

    Raises:
        InputError: If the frames have fewer components.
    """
    blocks = _PixelBlocks(problem)
    principal = randomized_svd(blocks, count)
    directions = np.zeros((blocks.shape[1], count))
    for start, rows in blocks.blocks():
        directions += rows.T @ principal.basis[start : start + len(rows)]
    directions /= principal.singular_values[None, :]

    def project(frames: Array) -> Array:
        centred = frames[..., 0].astype(jnp.float32) - jnp.asarray(problem.mean)[None]
        rows = centred.reshape(len(frames), -1)
        columns = jnp.asarray(directions, jnp.float32)
        return jnp.matmul(rows, columns, precision=jax.lax.Precision.HIGHEST)

    share = float(principal.energy_captured()[-1])
    return outputs(project, problem.frames.images), share
