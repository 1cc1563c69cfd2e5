"""The log of a run: ``metrics.jsonl`` and, if its extra is installed, TensorBoard."""

import importlib.util
from collections.abc import Mapping
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
        history = folder.read_metrics()  # Too long to send between processes.
        last = history[-1] if history else {}
        if step >= 0 and (last.get("step") != step or "seconds" not in last):
            got = f"step {last['step']} as the last" if last else "no line"
            raise InputError(
                f"expected metrics in {folder.path} up to the checkpoint's step {step}, got {got}"
            )
        if process_index() == 0 and importlib.util.find_spec("tensorboardX") is not None:
            from tensorboardX import SummaryWriter

            # Hide what was logged after the checkpoint from which the run continues.
            place = str(folder.path / "tensorboard")
            self._writer = SummaryWriter(place, purge_step=step + 1)
        return history

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record; every measure but ``step`` is a number or a list over runs."""
        if self._folder is None:
            return
        self._folder.append_metrics(record)
        if self._writer is not None:
            for name, value in record.items():
                mean = float(np.mean(value))
                # TensorBoard cannot hold the NaN of runs that diverged, and warns.
                if name != "step" and np.isfinite(mean):
                    self._writer.add_scalar(name, mean, record["step"])

    def close(self) -> None:
        """Flush and close TensorBoard's file."""
        if self._writer is not None:
            self._writer.close()
