"""The log of a run: ``metrics.jsonl``, and loggers such as TensorBoard.

A ``Logger`` gets the mean over the seeds of every measure in a record. TensorBoard's files are
written if its extra is installed.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlreps.errors import InputError
from rlreps.runs.folder import RunFolder
from rlreps.runs.processes import first_does, process_index


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
            InputError: If the metrics cannot be read or do not reach the step.
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
                f"expected metrics in {folder.path} up to the checkpoint's step {step}, got {got}; "
                f"delete checkpoints/{step}.npz there to resume from an earlier one"
            )
        if importlib.util.find_spec("tensorboardX") is not None:
            first_does(lambda: self._loggers.append(TensorBoard(folder, step)))
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
