"""Training logs of Stable-Baselines3: ``monitor.csv`` files, a line for each episode."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require
from rlreps.files import parse_json, read_lines

_WINDOWS = 10
_NAME = "monitor.csv"


class Monitored(NamedTuple):
    """Learning curves of several trainings at the steps that all of them reached.

    Attributes:
        environments: Names of the environments, without repetition.
        steps: Ends of ten windows of equal length, [10].
        returns: Mean return of the episodes that end in each window, [runs, 10]; that of the window
            before if none does, NaN before the first end.
    """

    environments: Sequence[str]
    steps: npt.NDArray[np.float64]
    returns: npt.NDArray[np.float64]


def find_monitors(path: Path) -> dict[str, Path]:
    """Find the trainings whose logs lie at a path: name of each → its file or folder.

    A file is one training. Files of one folder that are called monitor.csv, 0.monitor.csv,
    1.monitor.csv, ... are the parallel environments of one training; files with other names are a
    training each. Without such files, every folder inside that has some is a training.
    """
    if path.is_file():
        return {"0": path} if path.name.endswith(_NAME) else {}
    names = [file.name.removesuffix(_NAME).removesuffix(".") for file in _files(path)]
    if all(not name or name.isdecimal() for name in names):
        inside = sorted(each for each in path.glob("*/") if _files(each))
        return {"0": path} if names else {each.name: each for each in inside}
    return dict(zip(names, _files(path), strict=True))


def read_monitors(paths: Sequence[Path]) -> Monitored:
    """Read the logs of several trainings, a file or folder each.

    Raises:
        InputError: For files of another kind, or without an episode.
    """
    runs, environments = [], set()
    for path in paths:
        files = [path] if path.is_file() else _files(path)
        require(bool(files), f"files of Stable-Baselines3 called *{_NAME}", str(path))
        logs = [_read(file) for file in files]
        environments |= {name for name, _ in logs}
        episodes = np.concatenate([rows for _, rows in logs])
        # Parallel environments: by the time at which episodes end.
        runs.append(episodes[np.argsort(episodes[:, 2], kind="stable")])
    totals = [np.cumsum(run[:, 1]) for run in runs]
    steps = min(total[-1] for total in totals) * np.arange(1, _WINDOWS + 1) / _WINDOWS
    returns = np.full((len(runs), _WINDOWS), np.nan)
    for row, total, run in zip(returns, totals, runs, strict=True):
        window = np.searchsorted(steps, total)
        for index in range(_WINDOWS):
            ended = run[window == index, 0]
            row[index] = ended.mean() if ended.size else row[max(index - 1, 0)]
    late = [str(path) for path, row in zip(paths, returns, strict=True) if np.isnan(row[-1])]
    require(not late, f"an episode of each training in the first {int(steps[-1])} steps", late)
    return Monitored(sorted(environments), steps, returns)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_NAME}"))


def _read(path: Path) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the environment's name, and return, length and time of each episode, [episodes, 3]."""
    first, *lines = [*read_lines(path)] or [b""]
    header = parse_json(first.removeprefix(b"#"), str(path))
    expected = f"a {_NAME} of Stable-Baselines3 with finished episodes"
    try:
        start, name = float(header["t_start"]), str(header.get("env_id"))
        rows = csv.DictReader(line.decode() for line in lines)
        found = np.array([[float(row[key]) for key in "rlt"] for row in rows]).reshape(-1, 3)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        found_error = f"{path}: {type(error).__name__} {error}"
        raise InputError(f"expected {expected}, got {found_error}") from error
    valid = len(found) > 0 and np.isfinite(found).all() and (found[:, 1] > 0.0).all()
    require(bool(valid), expected, str(path))
    return name, found + np.array([0.0, 0.0, start])
