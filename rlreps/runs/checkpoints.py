"""Checkpoints of a pytree of arrays through Orbax: whole or absent, never half-written.

Orbax restores flipped bits without notice, so a record lies beside the arrays: their types, shapes
and checksums, and the step and the run to which they belong.

If several processes run together, process 0 writes the whole state, and every process reads it.
"""

import contextlib
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from rlreps.errors import InputError
from rlreps.files import refuse_links_out
from rlreps.runs.processes import first_does, process_count

State = TypeVar("State")

_KEPT = 2
"""Number of checkpoints kept; older ones are deleted once a newer one is complete."""
_UNFINISHED = ".orbax-checkpoint-tmp"
"""In the names of folders of checkpoints that are being written or deleted."""


class Checkpoints:
    """The latest checkpoints of one run."""

    def __init__(self, path: Path, *, run: str | None = None) -> None:
        """Open a folder of checkpoints, which the first save creates.

        Args:
            path: The folder.
            run: Identifies the run; None reads the checkpoints of any run.

        Raises:
            InputError: If the folder, or a checkpoint in it, is a link.
        """
        self.path = path.absolute()
        if self.path.is_symlink():
            raise InputError(f"expected a folder of checkpoints, got the link {self.path}")
        if self.path.is_dir():
            refuse_links_out(self.path)
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
        return sorted(int(entry.name) for entry in self.path.iterdir() if entry.name.isdecimal())

    def save(self, step: int, state: object) -> None:
        """Save a pytree of arrays as the checkpoint of a step.

        Raises:
            InputError: If the disk refused it; the newest complete checkpoint is untouched.
        """
        first_does(lambda: self._save(step, state))

    def _save(self, step: int, state: object) -> None:
        numbers = [_numbers(leaf) for leaf in jax.tree.leaves(state)]
        record: dict[str, Any] = {"step": step, "run": self._run, "arrays": _layout(state)}
        record["checksums"] = list(map(_checksum, numbers))
        arrays = _named(numbers if process_count() > 1 else jax.tree.leaves(state))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for left in self.path.glob(f"*{_UNFINISHED}*"):
                shutil.rmtree(left)
            with _orbax() as checkpointer:
                parts = {
                    "default": ocp.args.StandardSave(arrays),
                    "record": ocp.args.JsonSave(record),
                }
                checkpointer.save(self._folder(step), ocp.args.Composite(**parts), force=True)
            for old in self._complete_steps()[:-_KEPT]:
                # Renamed first: a kill leaves a checkpoint whole or unfinished.
                name = f"{old}{_UNFINISHED}"
                shutil.rmtree(self._folder(old).rename(self.path / name))
        except (OSError, ValueError) as error:  # tensorstore raises the second kind
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
        folder = self._folder(step)
        try:
            with _orbax() as checkpointer:
                parts = {"record": ocp.args.JsonRestore()}
                record = checkpointer.restore(folder, ocp.args.Composite(**parts))["record"]
                self._check(step, record, _layout(template))
                shapes = _named([_described(leaf) for leaf in jax.tree.leaves(template)])
                parts = {"default": ocp.args.StandardRestore(shapes)}
                found = checkpointer.restore(folder, ocp.args.Composite(**parts))["default"]
            leaves = [found[name] for name in sorted(found)]
            sums = [_checksum(_numbers(leaf)) for leaf in leaves]
        except InputError:
            raise
        except Exception as error:  # Orbax raises many kinds.
            what = f"what Orbax cannot read ({type(error).__name__})"
            raise self._damaged(step, what) from error
        if sums != record["checksums"]:
            raise self._damaged(step, "other numbers than were written")
        restored: State = jax.tree.unflatten(jax.tree.structure(template), leaves)
        return restored

    def restore_latest(self, template: State) -> tuple[int, State]:
        """Load the newest checkpoint, with its step.

        Raises:
            InputError: As ``restore``, or if there is none.
        """
        step = self.latest_step()
        if step is None:
            raise InputError(f"expected a checkpoint in {self.path}, got none")
        return step, self.restore(step, template)

    def _folder(self, step: int) -> Path:
        return self.path / str(step)

    def _check(self, step: int, record: Any, layout: list[str]) -> None:
        """Raise ``InputError`` if the record is of another step, run or layout."""
        if record["step"] != step:
            raise self._damaged(step, f"the checkpoint of step {record['step']}")
        if None not in (run := record["run"], self._run) and run != self._run:
            raise InputError(
                f"expected a checkpoint of this run in {self._folder(step)}, got the checkpoint of "
                "another run; restore config.json if it was changed, or take a new folder"
            )
        if record["arrays"] != layout:
            expected, got = (", ".join(each) for each in (layout, record["arrays"]))
            raise InputError(f"expected the arrays {expected} in {self._folder(step)}, got {got}")

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
    handler = ocp.CompositeCheckpointHandler(
        default=ocp.StandardCheckpointHandler(multiprocessing_options=alone),
        record=ocp.JsonCheckpointHandler(multiprocessing_options=alone),
        composite_options=ocp.CompositeOptions(multiprocessing_options=alone),
    )
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
        yield checkpointer


def _named(leaves: list[Any]) -> dict[str, Any]:
    """Name leaves by their order: the template restores typed keys and named tuples."""
    return {f"{index:06d}": leaf for index, leaf in enumerate(leaves)}


def _numbers(leaf: Any) -> np.ndarray:
    """Return the numbers of an array, or of an array of typed keys."""
    typed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if typed else leaf)


def _checksum(numbers: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data)


def _described(leaf: Any) -> Any:
    """Say what to restore, and to which device, instead of those that it was saved from."""
    described = ocp.utils.to_shape_dtype_struct(leaf)
    here: jax.sharding.Sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    if isinstance(leaf, jax.Array) and leaf.is_fully_addressable:
        here = leaf.sharding
    return jax.ShapeDtypeStruct(described.shape, described.dtype, sharding=here)


def _layout(tree: object) -> list[str]:
    """Spell the dtype and shape of every leaf."""
    return [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)]
