"""The log of a run: ``metrics.jsonl``, and loggers such as TensorBoard.

A ``Logger`` gets the mean over the seeds of every measure in a record. TensorBoard's files are
written if its extra is installed. The environment variable ``RLREPS_LOGGERS`` names others,
``trackio`` and ``wandb``.
"""

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlreps.errors import InputError, require_choice
from rlreps.runs.folder import RunFolder
from rlreps.runs.processes import first_does, process_index

VARIABLE = "RLREPS_LOGGERS"

_PROJECT = "rlreps"
_TRACKERS = ("trackio", "wandb")


class Logger(Protocol):
    """Receives a run's measures; runs of Weights & Biases and trackio satisfy this protocol."""

    def log(self, metrics: dict[str, float], *, step: int) -> object:
        """Receive the finite measures of a step."""

    def finish(self) -> object:
        """Write pending records and close."""


class TensorBoard:
    """Writes TensorBoard's files into the folder ``tensorboard`` of a run."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        """Open the files; records after ``step`` are hidden."""
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=step + 1)

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self._writer.close()


def _tracker(package: str, folder: RunFolder) -> Logger:
    """Begin or continue the run of a tracker; its files stay outside the run's folder."""
    name = f"{folder.path.absolute().name}-{folder.identity[:8]}"
    own = {"id": name} if package == "wandb" else {}  # trackio identifies runs by name.
    logger: Logger = importlib.import_module(package).init(
        project=_PROJECT, name=name, resume="allow", config=folder.config, **own
    )
    return logger


def _loggers_of(folder: RunFolder, step: int) -> list[Logger]:
    """Open the loggers of a run: TensorBoard if it is installed, and those that the user names.

    Raises:
        InputError: For a name that is unknown, or whose package is not installed.
    """
    names = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    if importlib.util.find_spec("tensorboardX") is not None:
        names.append("tensorboard")
    for name in names:
        require_choice(VARIABLE, name, ["tensorboard", *_TRACKERS])
    try:
        return [
            _tracker(name, folder) if name in _TRACKERS else TensorBoard(folder, step)
            for name in dict.fromkeys(names)
        ]
    except ImportError as error:
        raise InputError(f"expected the packages of {VARIABLE}, got {error}") from error


class MetricsLog:
    """Appends records to a run's ``metrics.jsonl`` and passes them to loggers."""

    def __init__(self, folder: RunFolder | None, loggers: Sequence[Logger] = ()) -> None:
        """Open the log of a folder; None logs to the given loggers alone."""
        self._folder = folder
        self._loggers = list(loggers) if process_index() == 0 else []

    def resume(self, step: int) -> list[dict[str, Any]]:
        """Drop records after ``step`` and return the rest, oldest first.

        Args:
            step: Step of the checkpoint from which the run continues; -1 starts afresh.

        Raises:
            InputError: If the metrics cannot be read or do not reach the step, or a logger cannot
                be opened.
        """
        folder = self._folder
        if folder is None:
            return []
        first_does(lambda: len(folder.keep_metrics_until(step)))
        history = folder.read_metrics()  # Each process reads the file, which is too long to send.
        last = history[-1] if history else {}
        if step >= 0 and (last.get("step") != step or "seconds" not in last):
            got = f"step {last['step']} as the last" if last else "no line"
            raise InputError(
                f"expected metrics in {folder.path} up to the checkpoint's step {step}, got {got}"
            )
        first_does(lambda: self._loggers.extend(_loggers_of(folder, step)))
        return history

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record; every measure but ``step`` is a number or a list over runs."""
        if self._folder is not None:
            self._folder.append_metrics(record)
        if not self._loggers:
            return
        means = {name: float(np.mean(value)) for name, value in record.items() if name != "step"}
        # TensorBoard cannot hold the NaN of runs that diverged, and warns.
        finite = {name: mean for name, mean in means.items() if np.isfinite(mean)}
        for logger in self._loggers:
            logger.log(finite, step=record["step"])

    def close(self) -> None:
        """Close the loggers."""
        for logger in self._loggers:
            logger.finish()
