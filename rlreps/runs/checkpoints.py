"""Checkpoints of a pytree of arrays: archives (``files.write_archive``), whole or absent.

Each has the step, the run and the layout of the arrays as its record; every array has a checksum.
``app.job`` says what decides that a run resumes.

If several processes run together, process 0 writes the whole state, and every process reads it.
"""

from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from rlreps.errors import InputError
from rlreps.files import read_archive, write_archive
from rlreps.runs.processes import first_does

State = TypeVar("State")

_KEPT = 2
"""Number of checkpoints that are kept; older ones are deleted once a newer one is complete."""


class Checkpoints:
    """The latest checkpoints of one run."""

    def __init__(self, path: Path, *, run: str | None = None) -> None:
        """Open a folder of checkpoints, which the first save creates.

        Args:
            path: The folder.
            run: Identifies the run, if there can be several.
        """
        self.path = path.absolute()
        self._run = run

    def latest_step(self) -> int | None:
        """Return the step of the newest checkpoint, or None."""
        return max(self.steps(), default=None)

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, rising.

        Raises:
            InputError: For checkpoints of an earlier version, which were folders.
        """
        return first_does(self._steps)

    def _steps(self) -> list[int]:
        if older := [file.name for file in self.path.glob("*") if file.name.isdecimal()]:
            raise InputError(
                f"expected checkpoints in files STEP.npz in {self.path}, got the folder {older[0]} "
                "of an earlier version; use the version that wrote it, or start in a new folder"
            )
        files = [file for file in self.path.glob("*.npz") if file.is_file()]
        return sorted(int(file.stem) for file in files if file.stem.isdecimal())

    def save(self, step: int, state: object) -> None:
        """Save a pytree of arrays as the checkpoint of a step; an error leaves the others."""
        first_does(lambda: self._save(step, state))

    def _save(self, step: int, state: object) -> None:
        record = {"layout": _layout(state), "step": step, "run": self._run}
        leaves = jax.tree.leaves(state)
        for left in self.path.glob(".*.npz.*"):  # By a kill.
            left.unlink()
        arrays = {f"{index:06d}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
        write_archive(self._file(step), arrays, record)
        for old in self._steps()[:-_KEPT]:
            self._file(old).unlink()

    def restore(self, step: int, template: State) -> State:
        """Load a step's checkpoint, bit for bit.

        Args:
            step: A step that was saved.
            template: A pytree with the structure, shapes and dtypes to expect.

        Raises:
            InputError: If the checkpoint is missing, damaged or of another structure, step or run.
        """
        read = list[dict[str, Any]]()
        # What process 0 refuses is refused by all.
        first_does(lambda: read.append(self._read(step, _layout(template))))
        arrays = read[0] if read else self._read(step, _layout(template))
        leaves, structure = jax.tree.flatten(template)
        pairs = zip(sorted(arrays), leaves, strict=True)
        placed = [_placed(arrays[name], leaf) for name, leaf in pairs]
        restored: State = jax.tree.unflatten(structure, placed)
        return restored

    def restore_latest(self, template: State) -> tuple[int, State]:
        """Load the newest checkpoint and its step, even while another process may replace it.

        Raises:
            InputError: As ``restore``, or if there is none.
        """
        while (step := self.latest_step()) is not None:
            try:
                return step, self.restore(step, template)
            except InputError:
                if self._file(step).exists():
                    raise
        raise InputError(f"expected a checkpoint in {self.path}, got none")

    def _file(self, step: int) -> Path:
        return self.path / f"{step}.npz"

    def _read(self, step: int, layout: str) -> dict[str, Any]:
        """Read the arrays; raise an ``InputError`` if layout, step or run differ."""
        file = self._file(step)
        older = [other for other in self._steps() if other < step]
        remedy = f"resume from step {max(older)}" if older else "start again"
        arrays, record = read_archive(file, f"{file}; delete this file to {remedy}")
        if record.get("step") != step:
            raise InputError(f"expected the step {step} in {file}, got {record.get('step')}")
        if record.get("run") != self._run:
            raise InputError(
                f"expected a checkpoint of this run in {file}, got the checkpoint of another "
                "run; restore config.json if it was changed, or take a new folder"
            )
        if record.get("layout") != layout:
            raise InputError(f"expected the arrays {layout} in {file}, got {record.get('layout')}")
        return arrays


def _placed(array: np.ndarray, like: Any) -> jax.Array:
    """Place an array where the template's is; devices may differ from those of the saved one."""
    here: Any = jax.local_devices()[0]
    if isinstance(like, jax.Array) and like.is_fully_addressable:
        here = like.sharding
    # Files know no bfloat16, only its size.
    placed: jax.Array = jax.device_put(array.view(like.dtype), here)
    return placed


def _layout(tree: object) -> str:
    """Spell the dtype and shape of every leaf."""
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))
