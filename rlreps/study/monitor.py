"""Training logs of Stable-Baselines3: ``monitor.csv`` files, a line for each episode."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlreps.errors import InputError, require
from rlreps.files import parse_json
from rlreps.typing import DoubleArray

_TENTHS = 10
_NAME = "monitor.csv"


class Monitored(NamedTuple):
    """Returns of several trainings, in tenths of the steps that all trainings compared reached.

    Attributes:
        environments: Names of the environments, without repetition.
        made: Steps that all trainings compared reached.
        longest: Steps of the longest training.
        steps: Ends of the tenths in which every training compared ends an episode, [tenths].
        curves: Mean return of the episodes that end in each of these, [runs, tenths].
        returns: The same for the last tenth in which the training ends an episode, [runs].
        ages: Steps from the end of that tenth to ``made``, [runs].
    """

    environments: Sequence[str]
    made: int
    longest: float
    steps: DoubleArray
    curves: DoubleArray
    returns: DoubleArray
    ages: DoubleArray


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


def read_monitors(results: Mapping[str, Sequence[Path]]) -> dict[str, Monitored]:
    """Read the logs of several results, each of several trainings, a file or folder each.

    Raises:
        InputError: For files of another kind, or without an episode.
    """
    read = {label: [_read_training(path) for path in paths] for label, paths in results.items()}
    totals = [np.sum(run[:, 1]) for trainings in read.values() for _, run in trainings]
    steps = min(totals, default=0.0) * np.arange(1, _TENTHS + 1) / _TENTHS
    tables = {
        label: np.array([_mean_returns(run, steps) for _, run in trainings])
        for label, trainings in read.items()
    }
    shared = np.all([np.isfinite(table).all(axis=0) for table in tables.values()], axis=0)
    found = {}
    for label, trainings in read.items():
        table, ended = tables[label], np.isfinite(tables[label])
        none = [
            str(path)
            for path, some in zip(results[label], ended.any(axis=1), strict=True)
            if not some
        ]
        require(not none, f"an episode of each training in the first {int(steps[-1])} steps", none)
        last = _TENTHS - 1 - ended[:, ::-1].argmax(axis=1)
        found[label] = Monitored(
            environments=sorted({name for names, _ in trainings for name in names}),
            made=int(steps[-1]),
            longest=max(float(np.sum(run[:, 1])) for _, run in trainings),
            steps=steps[shared],
            curves=table[:, shared],
            returns=table[np.arange(len(table)), last],
            ages=steps[-1] - steps[last],
        )
    return found


def _read_training(path: Path) -> tuple[set[str], DoubleArray]:
    """Return names of environments, and episodes in order of their ends, [episodes, 4]."""
    files = [path] if path.is_file() else _files(path)
    require(bool(files), f"files of Stable-Baselines3 called *{_NAME}", str(path))
    logs = [_read(file) for file in files]
    episodes = np.concatenate([rows for _, rows in logs])
    # Parallel environments: by the time at which episodes end.
    return {name for name, _ in logs}, episodes[np.lexsort(episodes[:, 2:].T)]


def _mean_returns(run: DoubleArray, steps: DoubleArray) -> DoubleArray:
    """Return the mean return of the episodes that end in each tenth, [tenths]; NaN without one."""
    tenth = np.searchsorted(steps, np.cumsum(run[:, 1]))
    ended = [run[tenth == index, 0] for index in range(_TENTHS)]
    return np.array([returns.mean() if returns.size else np.nan for returns in ended])


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_NAME}"))


def _has_fields_of(header: bytes, line: bytes) -> bool:
    """Tell whether a line of a log has as many fields as the header, the last of them not empty."""
    return line.count(b",") == header.count(b",") and not line.endswith(b",")


def _read(path: Path) -> tuple[str, DoubleArray]:
    """Return the environment's name, and the episodes of a log, [episodes, 4].

    Columns are return, length, time of the end, and the number of times that the training was
    continued before.
    """
    first, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
    ended = [line for line in lines if line.endswith(b"\n")]  # A training may be writing the last.
    lines = ended + [line for line in lines[len(ended) :] if _has_fields_of(lines[0], line)]
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
    # If a training was continued, its times begin again. Clocks that are set back change them less.
    times = found[:, 2]
    sessions = np.cumsum(times < 0.5 * np.append(0.0, times[:-1]))
    return name, np.column_stack([found[:, :2], start + times, sessions])
