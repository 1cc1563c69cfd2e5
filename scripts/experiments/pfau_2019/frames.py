"""Frames of Atari games, played by a random agent and kept in a folder; clips of stacks of them."""

import contextlib
import dataclasses
import io
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from numpy.lib.stride_tricks import sliding_window_view

from rlreps.agents import make_environment
from rlreps.batch import Batch, Clip
from rlreps.errors import InputError, require
from rlreps.files import DAMAGED, write_atomically
from rlreps.numerics import jit
from rlreps.runs import progress_bar
from rlreps.typing import DoubleArray

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
        return self.images[self.windows(stack) + stack - 1]


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
            return scale_stacks(jnp.moveaxis(shown, 1, -1), self.mean)

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
        compiled = jit(lambda part: function(scale_stacks(part, jnp.asarray(self.mean))))
        parts, first = [], self.held_out.windows(self.stack)
        for start in range(0, len(first), _BLOCK):
            rows = first[start : start + _BLOCK]
            # One shape, one compilation: the last block is padded with its own last stack.
            filled = np.pad(rows, (0, _BLOCK - len(rows)), mode="edge")
            parts.append(np.asarray(compiled(jnp.asarray(stacks[filled])))[: len(rows)])
        return np.concatenate(parts)


def scale_stacks(stacks: Array, mean: Array) -> Array:
    """Turn grey levels [b, height, width, stack] into numbers in [-1, 1], less the mean frame."""
    return (stacks.astype(jnp.float32) - mean[None, :, :, None]) / 255.0


IMAGES, STEPS = "images.npy", "steps.npy"
"""Files in a folder of frames; the second file is written last."""


def make_game(game: str) -> gymnasium.Env[Any, Any]:
    """Make a game with grey frames.

    Raises:
        InputError: If the package ``ale-py`` is missing or does not know the game.
    """
    options: Any = {"obs_type": "grayscale", "disable_env_checker": True}
    made: gymnasium.Env[Any, Any] = make_environment(f"ALE/{game}-v5", **options)
    return made


def random_agent(game: str, seed: int) -> Generator[tuple[ByteArray, int, int], None, None]:
    """Play a game endlessly, each action with equal probability.

    The environment is ``ALE/<game>-v5`` with its defaults: every action is held for four frames, of
    which the last is kept. In each frame, with probability 1/4, the emulator ignores the action and
    repeats the one that it executed in the frame before.

    Yields:
        (grey levels [height, width], number of the episode, the action that follows).
    """
    with contextlib.closing(make_game(game)) as environment:
        space = environment.action_space
        assert isinstance(space, gymnasium.spaces.Discrete)
        generator = np.random.default_rng(seed)
        frame, _ = environment.reset(seed=seed)
        episode = 0
        while True:
            action = int(generator.integers(int(space.n)))
            yield frame, episode, action
            frame, _, terminated, truncated, _ = environment.step(int(space.start) + action)
            if terminated or truncated:
                # The last frame of an episode is yielded too, before the first frame of the next.
                yield frame, episode, 0
                frame, _ = environment.reset()
                episode += 1


def record_frames(folder: Path, game: str, size: int, count: int, seed: int) -> Frames:
    """Read the frames in a folder, playing them first if they are not complete.

    Images are written to disk as they are played and read from disk as they are used, so that half
    a million frames need not fit in memory.

    Args:
        folder: The folder.
        game: The game to play.
        size: Height and width of a frame in pixels, after area-averaging.
        count: Number of frames.
        seed: Seed of the agent and the game.

    Raises:
        InputError: For a game that cannot be played.
    """
    if not (folder / STEPS).exists():
        folder.mkdir(parents=True, exist_ok=True)
        played: Any = np.lib.format.open_memmap(
            folder / IMAGES, mode="w+", dtype=np.uint8, shape=(count, size, size)
        )
        steps = np.zeros((2, count), np.int64)
        title = f"random agent in {game}, {folder.name}"
        with (
            contextlib.closing(random_agent(game, seed)) as agent,
            progress_bar(title, total=count, unit="frames") as advance,
        ):
            for index, (frame, *step) in zip(range(count), agent, strict=False):
                played[index], steps[:, index] = shrink(frame, size), step
                advance(1)
        played.flush()
        stream = io.BytesIO()
        np.save(stream, steps)
        write_atomically(folder / STEPS, stream.getvalue())
    try:
        return Frames(np.load(folder / IMAGES, mmap_mode="r"), *np.load(folder / STEPS))
    except DAMAGED as error:
        raise InputError(f"expected readable frames in {folder}, got {error}") from error


def shrink(frame: ByteArray, size: int) -> ByteArray:
    """Average a frame [height, width] over areas to [size, size], in whole grey levels."""
    averaged = _area_means(_area_means(frame.astype(np.float64), size).T, size).T
    return np.rint(averaged).astype(np.uint8)


def _area_means(values: DoubleArray, size: int) -> DoubleArray:
    """Compute means over ``size`` equal stretches of the first axis, [m, n] → [size, n].

    The means use differences of running sums. A product with a matrix of weights would start BLAS's
    threads for every frame, which costs far more than the sums if other work uses the cores.
    """
    edges = np.linspace(0.0, len(values), size + 1)
    whole = edges.astype(np.int64)
    none = np.zeros((1, values.shape[1]))
    until = np.concatenate([none, np.cumsum(values, axis=0)])[whole]
    begun = np.concatenate([values, none])[whole] * (edges - whole)[:, None]
    return np.diff(until + begun, axis=0) * (size / len(values))
