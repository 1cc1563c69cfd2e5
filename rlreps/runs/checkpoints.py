"""Checkpoints of a pytree of arrays through Orbax: whole or absent, never half-written.

A checkpoint is written under a temporary name and renamed when it is complete. Orbax restores
flipped bits without notice, so each checkpoint has a record: the sizes and checksums of its files,
the layout of its arrays, its step and its run.

``app.job`` says what decides that a run resumes.

If several processes run together, process 0 writes the whole state, and every process reads it.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from rlreps.errors import InputError
from rlreps.files import read_json, require_name, size_and_checksum
from rlreps.runs.processes import first_does, process_count

State = TypeVar("State")

_RECORD = "seal.json"
_ARRAYS = "default"
_KEPT = 2
"""Number of checkpoints that are kept; older ones are deleted once a newer one is complete."""
_SAVING, _DELETING = ".saving", ".deleting"
"""Names of folders of a checkpoint being written, and of one being deleted."""


class Checkpoints:
    """The latest checkpoints of one run."""

    def __init__(self, path: Path, *, run: str | None = None) -> None:
        """Open a folder of checkpoints, which the first save creates.

        Args:
            path: The folder.
            run: Identifies the run; None reads the checkpoints of any run.

        Raises:
            InputError: If ``require_name`` refuses the path.
        """
        require_name(path, patterns=False)
        self.path = path.absolute()
        self._run = run

    def latest_step(self) -> int | None:
        """Return the step of the newest complete checkpoint, or None."""
        return max(self.complete_steps(), default=None)

    def complete_steps(self) -> list[int]:
        """Return the steps of all complete checkpoints, rising."""
        return first_does(self._complete_steps)

    def _complete_steps(self) -> list[int]:
        if not self.path.is_dir():
            return []
        steps = (int(entry.name) for entry in self.path.iterdir() if entry.name.isdecimal())
        return sorted(step for step in steps if (self._folder(step) / _RECORD).is_file())

    def save(self, step: int, state: object) -> None:
        """Save a pytree of arrays as the checkpoint of a step.

        Raises:
            InputError: If the disk refused it; the newest complete checkpoint is untouched.
        """
        first_does(lambda: self._save(step, state))

    def _save(self, step: int, state: object) -> None:
        saving, folder = self.path / _SAVING, self._folder(step)
        try:
            for left in (saving, self.path / _DELETING):
                if left.exists():
                    shutil.rmtree(left)
            saving.mkdir(parents=True)
            with _orbax() as checkpointer:
                arrays = _leaves(state)
                if process_count() > 1:  # Orbax then refuses arrays on one device.
                    arrays = {name: np.asarray(leaf) for name, leaf in arrays.items()}
                checkpointer.save(saving / _ARRAYS, args=ocp.args.StandardSave(arrays))
            record = {
                "files": {name: size_and_checksum(saving / name) for name in _files(saving)},
                "layout": _layout(state),
                "step": step,
                "run": self._run,
            }
            with open(saving / _RECORD, "xb") as stream:
                stream.write(json.dumps(record, indent=1).encode())
                stream.flush()
                os.fsync(stream.fileno())
            self._delete(folder)
            saving.rename(folder)
            for old in self._complete_steps()[:-_KEPT]:
                self._delete(self._folder(old))
        except (OSError, ValueError) as error:  # tensorstore raises ValueError
            shutil.rmtree(saving, ignore_errors=True)
            found = str(error).split(" [")[0].replace("\n", " ")
            raise InputError(
                f"expected room for a checkpoint in {self.path}, got {found}"
            ) from error

    def restore(self, step: int, template: State) -> State:
        """Load a step's checkpoint, bit for bit.

        Args:
            step: A step that was saved.
            template: A pytree with the structure, shapes and dtypes to expect.

        Raises:
            InputError: If the checkpoint is missing, damaged or of another structure, step or run.
        """
        try:
            first_does(lambda: self._check(step, _layout(template)))
            shapes = {name: _described(leaf) for name, leaf in _leaves(template).items()}
            with _orbax() as checkpointer:
                leaves = checkpointer.restore(
                    self._folder(step) / _ARRAYS, args=ocp.args.StandardRestore(shapes)
                )
        except InputError:
            raise
        except Exception as error:  # Orbax raises many kinds.
            found = f"what Orbax cannot read ({type(error).__name__})"
            raise self._damaged(step, found) from error
        ordered = [leaves[name] for name in sorted(leaves)]
        restored: State = jax.tree.unflatten(jax.tree.structure(template), ordered)
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
                if self._folder(step).exists():
                    raise
        raise InputError(f"expected a checkpoint in {self.path}, got none")

    def _folder(self, step: int) -> Path:
        return self.path / str(step)

    def _delete(self, folder: Path) -> None:
        """Delete a checkpoint if it exists; a kill leaves it whole or incomplete."""
        if folder.exists():
            shutil.rmtree(folder.rename(self.path / _DELETING))

    def _check(self, step: int, layout: str) -> None:
        """Raise ``InputError`` if files, layout, step or run differ from the record."""
        folder = self._folder(step)
        try:
            record = read_json(folder / _RECORD)
            files, there = record["files"], _files(folder)
            found = {name: [*size_and_checksum(folder / name)] for name in there}
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            raise self._damaged(step, str(error)) from error
        broken = [name for name in sorted({*files, *found}) if files.get(name) != found.get(name)]
        if broken:
            raise self._damaged(step, f"{', '.join(broken)} with other bytes than were written")
        if record.get("step", step) != step:
            raise self._damaged(step, f"the checkpoint of step {record['step']}")
        if None not in (run := record.get("run"), self._run) and run != self._run:
            raise InputError(
                f"expected a checkpoint of this run in {folder}, got the checkpoint of another "
                "run; restore config.json if it was changed, or take a new folder"
            )
        if record.get("layout") != layout:
            raise InputError(
                f"expected the arrays {layout} in {folder}, got {record.get('layout')}"
            )

    def _damaged(self, step: int, found: str) -> InputError:
        older = [other for other in self._complete_steps() if other < step]
        remedy = f"resume from step {max(older)}" if older else "start again"
        return InputError(
            f"expected an undamaged checkpoint in {self._folder(step)}, got {found}; "
            f"delete that folder to {remedy}"
        )


@contextlib.contextmanager
def _orbax() -> Iterator[ocp.Checkpointer]:
    """Yield Orbax's checkpointer, which waits for no other process."""
    own = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process-{own}"
    )
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
        yield checkpointer


def _files(folder: Path) -> list[str]:
    """List all files below a folder except the record, by relative name."""
    return [
        str(entry.relative_to(folder))
        for entry in sorted(folder.rglob("*"))
        if not entry.is_dir() and entry != folder / _RECORD
    ]


def _leaves(tree: object) -> dict[str, Any]:
    """Name the leaves by their order: the template restores typed keys and named tuples."""
    return {f"{index:06d}": leaf for index, leaf in enumerate(jax.tree.leaves(tree))}


def _described(leaf: Any) -> Any:
    """Describe what to restore and onto which devices, which may differ from the saved ones."""
    described = ocp.utils.to_shape_dtype_struct(leaf)
    here: jax.sharding.Sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    if isinstance(leaf, jax.Array) and leaf.is_fully_addressable:
        here = leaf.sharding
    return jax.ShapeDtypeStruct(described.shape, described.dtype, sharding=here)


def _layout(tree: object) -> str:
    """Spell the dtype and shape of every leaf."""
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))
