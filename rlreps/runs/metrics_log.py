"""The log of a run: ``metrics.jsonl`` and, where its extra is installed, TensorBoard."""

import contextlib
import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.errors import InputError
from rlreps.runs.folder import RunFolder
from rlreps.runs.processes import first_does, process_index


class MetricsLog:
    """Appends records to a run's ``metrics.jsonl`` and to TensorBoard."""

    def __init__(self, folder: RunFolder | None) -> None:
        """Open the log of a folder; None logs nowhere."""
        self._folder = folder
        self._writer: Any = None

    def resume(self, step: int) -> list[dict[str, Any]]:
        """Drop what was logged after ``step`` and return the rest, oldest first.

        Args:
            step: That of the checkpoint from which the run goes on; -1 starts afresh.

        Raises:
            InputError: If the metrics cannot be read or do not reach the step.
        """
        if self._folder is None:
            return []
        folder = self._folder
        first_does(lambda: len(folder.keep_metrics_until(step)))
        history = folder.read_metrics()  # Too long to be sent.
        last = history[-1]["step"] if history else None
        if step >= 0 and last != step:
            raise InputError(
                f"expected metrics in {self._folder.path} up to the checkpoint's step {step}, "
                f"got {'no line' if last is None else f'step {last} as the last'}"
            )
        if history and not isinstance(history[-1].get("seconds"), int | float):
            raise InputError(
                f"expected seconds in the metrics of {self._folder.path}, got a line without"
            )
        if process_index() == 0 and importlib.util.find_spec("tensorboardX") is not None:
            self._writer = _TensorBoard(self._folder.path / "tensorboard", purge_step=step + 1)
        return history

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record; every figure but ``step`` is a number or a list over runs."""
        if self._folder is None:
            return
        self._folder.append_metrics(record)
        if self._writer is not None:
            means = {name: float(np.mean(value)) for name, value in record.items()}
            # TensorBoard has no place for the NaN of runs that diverged, and complains.
            finite = {name: mean for name, mean in means.items() if np.isfinite(mean)}
            self._writer.append(record["step"], finite)

    def close(self) -> None:
        """Flush and close TensorBoard's file."""
        if self._writer is not None:
            self._writer.close()


class _TensorBoard:
    """TensorBoard's file, written at once and given up at the first error: metrics.jsonl has all.

    ``SummaryWriter`` leaves it to a thread, which a full disk or a clock put back by a
    month ends. Nobody empties its queue then, and whoever fills it waits without end.
    """

    def __init__(self, folder: Path, purge_step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter  # An extra.
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        self._event, self._scalar = Event, scalar
        self._file: Any = None
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            self._file = EventsWriter(str(folder / "events"))
        # What was logged after the checkpoint that the run goes on from is hidden.
        self._try("write_event", Event(step=purge_step, file_version="brain.Event:2"))
        self._try(
            "write_event", Event(step=purge_step, session_log=SessionLog(status=SessionLog.START))
        )

    def append(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            if name != "step":
                summary = self._scalar(name, value)
                self._try(
                    "write_event", self._event(wall_time=time.time(), step=step, summary=summary)
                )
        self._try("flush")

    def close(self) -> None:
        self._try("close")

    def _try(self, method: str, *arguments: Any) -> None:
        if self._file is not None:
            try:
                getattr(self._file, method)(*arguments)
            except OSError:
                broken, self._file = self._file, None
                with contextlib.suppress(OSError):
                    broken.close()
