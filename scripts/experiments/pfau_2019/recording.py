"""Frames of Atari games, played by a random agent and kept in a folder."""

import contextlib
import io
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt

from rlreps.agents.hosts import import_games
from rlreps.errors import InputError
from rlreps.files import DAMAGED, open_regular, write_atomically
from rlreps.runs.progress import progress_bar
from rlreps.sources.frames import Frames

ByteArray: TypeAlias = npt.NDArray[np.uint8]
DoubleArray: TypeAlias = npt.NDArray[np.float64]

IMAGES, STEPS = "images.npy", "steps.npy"
"""Files in a folder of frames; the second file is written last."""


def require_game(game: str) -> None:
    """Raise an ``InputError`` if the package ``ale-py`` is missing or does not know the game."""
    name = f"ALE/{game}-v5"
    import_games(name)
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise InputError(f"expected a game of ale-py, got {game!r}: {error}") from error


def random_agent(game: str, seed: int) -> Generator[tuple[ByteArray, int, int], None, None]:
    """Play a game endlessly, each action with equal probability.

    The environment is ``ALE/<game>-v5`` with its defaults: every action is held for four frames, of
    which the last is kept. In each frame, with probability 1/4, the emulator ignores the action and
    repeats the one that it executed in the frame before.

    Yields:
        (grey levels [height, width], number of the episode, the action that follows).
    """
    require_game(game)
    environment: gymnasium.Env[Any, Any] = gymnasium.make(
        f"ALE/{game}-v5", obs_type="grayscale", disable_env_checker=True
    )
    with contextlib.closing(environment):
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


def recorded_frames(folder: Path, game: str, size: int, count: int, seed: int) -> Frames:
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
                played[index], steps[:, index] = shrunk(frame, size), step
                advance(1)
        played.flush()
        stream = io.BytesIO()
        np.save(stream, steps)
        write_atomically(folder / STEPS, stream.getvalue())
    try:
        with open_regular(folder / IMAGES), open_regular(folder / STEPS):
            return Frames(np.load(folder / IMAGES, mmap_mode="r"), *np.load(folder / STEPS))
    except DAMAGED as error:
        raise InputError(f"expected readable frames in {folder}, got {error}") from error


def shrunk(frame: ByteArray, size: int) -> ByteArray:
    """Average a frame [height, width] over areas to [size, size], in whole grey levels."""
    averaged = _area_means(_area_means(frame.astype(np.float64), size).T, size).T
    rounded: ByteArray = np.rint(averaged).astype(np.uint8)
    return rounded


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
    means: DoubleArray = np.diff(until + begun, axis=0) * (size / len(values))
    return means
