"""Frames of a random agent in a game of the Arcade Learning Environment, played once and kept."""

import contextlib
import dataclasses
import difflib
import io
import os
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require
from rlreps.files import write_atomically
from rlreps.runs.progress import progress_bar

ByteArray = npt.NDArray[np.uint8]
DoubleArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

IMAGES, EPISODES = "images.npy", "episodes.npy"
"""Files of the frames' folder; the second is written last."""

_PREFIX, _VERSION = "ALE/", "-v5"


@dataclasses.dataclass(frozen=True, eq=False)
class Frames:
    """Frames in the order in which they were seen.

    Attributes:
        images: Grey levels, [n, height, width].
        episodes: Number of the episode of each frame, [n], rising.
    """

    images: ByteArray
    episodes: IndexArray

    def pairs(self) -> IndexArray:
        """Frames whose successor is of the same episode, [p], rising."""
        return np.flatnonzero(self.episodes[:-1] == self.episodes[1:])


def require_game(game: str) -> None:
    """Raises an ``InputError`` unless the game can be played.

    Raises:
        InputError: Without the package ``ale-py``, or for a name that it does not know.
    """
    _import_ale()
    names = game_names()
    if game in names:
        return
    by_lower_case = {name.lower(): name for name in names}
    wanted = game.lower().replace("_", "").replace("-", "").replace(" ", "")
    near = difflib.get_close_matches(wanted, by_lower_case, n=5, cutoff=0.5)
    listed = [by_lower_case[name] for name in near] or names
    raise InputError(f"expected game to be one of {', '.join(listed)}, got {game!r}")


def game_names() -> list[str]:
    """Names of the games that Gymnasium knows from ``ale-py``, in order."""
    return sorted(
        name.removeprefix(_PREFIX).removesuffix(_VERSION)
        for name in gymnasium.registry
        if name.startswith(_PREFIX) and name.endswith(_VERSION)
    )


def _import_ale() -> ModuleType:
    try:
        import ale_py  # Optional; importing it registers its games with Gymnasium.
    except ImportError as error:
        raise InputError(
            'expected the package ale-py, got none: pip install "rlreps[atari]"'
        ) from error
    # Its banner would break the progress bar.
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py


def random_agent(game: str, seed: int) -> Generator[tuple[ByteArray, int], None, None]:
    """Frames of an agent that takes each action with equal probability, without an end.

    The environment is ``ALE/<game>-v5`` as it comes: every action is held for four frames, and
    repeated in place of the next with probability 1/4; a frame is the last of its four.

    Args:
        game: The game.
        seed: Decides actions and environment.

    Yields:
        (grey levels [height, width], number of the episode).
    """
    _import_ale()
    environment: gymnasium.Env[Any, Any] = gymnasium.make(
        f"{_PREFIX}{game}{_VERSION}", obs_type="grayscale", disable_env_checker=True
    )
    with contextlib.closing(environment):
        space = environment.action_space
        assert isinstance(space, gymnasium.spaces.Discrete)
        generator = np.random.default_rng(seed)
        frame, _ = environment.reset(seed=seed)
        episode = 0
        while True:
            yield frame, episode
            action = space.start + generator.integers(space.n)
            frame, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                # The frame at the end is seen too, before the next episode's first.
                yield frame, episode
                frame, _ = environment.reset()
                episode += 1


def recorded_frames(
    folder: Path, game: str, num_frames: int, size: int, seed: int, *, progress: bool = True
) -> Frames:
    """The frames in a folder, which are played first if they are not all there.

    Args:
        folder: Where they are kept, as NumPy arrays.
        game: The game.
        num_frames: n.
        size: Height and width after area-averaging.
        seed: The agent's.
        progress: Whether to show a progress bar.

    Returns:
        The frames, read from disk as they are used.

    Raises:
        InputError: For a game that cannot be played, or files that are not those frames.
    """
    if not (folder / EPISODES).exists():
        _record(folder, game, num_frames, size, seed, progress)
    try:
        images = np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False)
        episodes = np.load(folder / EPISODES, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"expected readable frames, got {error}: {folder}") from error
    found = (images.shape, images.dtype.name, episodes.shape)
    expected = ((num_frames, size, size), "uint8", (num_frames,))
    require(found == expected, f"frames {expected} in {folder}", found)
    return Frames(images, episodes)


def _record(folder: Path, game: str, num_frames: int, size: int, seed: int, progress: bool) -> None:
    """Plays and writes both files, each of which appears whole or not at all."""
    require_game(game)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{IMAGES}"
    # In place on disk: a million frames need not be in memory while they are played.
    images = np.lib.format.open_memmap(
        unfinished, mode="w+", dtype=np.uint8, shape=(num_frames, size, size)
    )
    episodes = np.zeros(num_frames, np.int64)
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(contextlib.closing(random_agent(game, seed)))
        advance = stack.enter_context(
            progress_bar(f"random agent in {game}", total=num_frames, unit="frames", show=progress)
        )
        for index, (frame, episode) in zip(range(num_frames), agent, strict=False):
            images[index], episodes[index] = shrunk(frame, size), episode
            advance(1)
    images.flush()
    del images
    os.replace(unfinished, folder / IMAGES)
    write_atomically(folder / EPISODES, _npy_bytes(episodes))


def shrunk(frame: ByteArray, size: int) -> ByteArray:
    """A frame [height, width] area-averaged to [size, size], rounded to whole grey levels."""
    averaged = _area_means(_area_means(frame.astype(np.float64), size).T, size).T
    rounded: ByteArray = np.rint(averaged).astype(np.uint8)
    return rounded


def _area_means(values: DoubleArray, size: int) -> DoubleArray:
    """Means over ``size`` equal stretches of the first axis, [m, n] → [size, n].

    By differences of running sums: products with a matrix of shares would start BLAS's threads for
    every frame, which costs far more than the sums where cores are shared.
    """
    edges = np.linspace(0.0, len(values), size + 1)
    whole = edges.astype(np.int64)
    none = np.zeros((1, values.shape[1]))
    until = np.concatenate([none, np.cumsum(values, axis=0)])[whole]
    begun = np.concatenate([values, none])[whole] * (edges - whole)[:, None]
    means: DoubleArray = np.diff(until + begun, axis=0) * (size / len(values))
    return means


def _npy_bytes(array: IndexArray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()
