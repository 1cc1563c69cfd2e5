"""Checkpoints of a pytree of arrays through Orbax: whole or absent, never half-written.

Orbax restores flipped bits as they are, and leaves tracebacks on standard error where it fails. So
a seal lies beside its files: their sizes and checksums, the layout of the arrays, and the step and
the run that they belong to. It is written last; a checkpoint without it counts for nothing and is
made again. What is deleted, a newer checkpoint being whole, was written by the same run: it carries
this run's seal or, where a kill came before that, the mark that this run had begun it.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from rlreps.errors import InputError
from rlreps.files import (
    parse_json,
    read_regular,
    refuse_backslashes,
    refuse_links_out,
    refuse_odd_files,
    size_and_checksum,
    write_atomically,
)
from rlreps.runs.processes import first_does, outlive_the_lost, process_count

State = TypeVar("State")

_SEAL = "seal.json"

_METADATA = "_CHECKPOINT_METADATA"
_LARGEST_METADATA = 2**20
_OF_ORBAX = {_METADATA, "commit_success.txt", "default"}
"""Everything else in the folder of a step."""

_READ_AGAIN = 5
"""Times that a checkpoint is looked for while another run replaces them."""


class Checkpoints:
    """The last checkpoints of one run."""

    def __init__(self, path: Path, *, keep: int = 2, run: str | None = None) -> None:
        """Open a folder of checkpoints, which the first save creates.

        Args:
            path: The folder.
            keep: Checkpoints kept; older ones are deleted after a newer one is complete.
            run: What tells this run from others; None reads any.

        Raises:
            InputError: If the folder, or a checkpoint in it, is a link, something in it is neither
                a file nor a folder, or its path holds a backslash.
        """
        refuse_backslashes(path)
        self.path = path.absolute()
        if self.path.is_symlink():
            raise InputError(f"expected a folder of checkpoints, got the link {self.path}")
        if self.path.is_dir():
            refuse_links_out(self.path)
            # Orbax reads what describes each of them at once, and would wait for a FIFO.
            refuse_odd_files(self.path)
            for file in self.path.glob(f"*/{_METADATA}"):
                size = file.stat().st_size
                if size > _LARGEST_METADATA:
                    raise InputError(
                        f"expected at most {_LARGEST_METADATA:,} bytes in {file}, got {size:,}"
                    )
        self._keep, self._run = keep, run
        self._has_home = self.path.parent.is_dir()
        self._manager = ocp.CheckpointManager(
            self.path,
            options=ocp.CheckpointManagerOptions(create=False, enable_async_checkpointing=False),
        )

    def latest_step(self) -> int | None:
        """Return the step of the newest complete checkpoint, or None."""
        return max(self.complete_steps(), default=None)

    def complete_steps(self) -> list[int]:
        """Return the steps of all complete checkpoints, rising."""
        return first_does(self._complete_steps)

    def _complete_steps(self) -> list[int]:
        if not self.path.is_dir():
            return []
        # Not what Orbax remembers: another process may be at work.
        steps = (int(entry.name) for entry in self.path.iterdir() if entry.name.isdecimal())
        return sorted(step for step in steps if (self.path / str(step) / _SEAL).is_file())

    def save(self, step: int, state: object, **notes: Any) -> None:
        """Save a pytree of arrays as the checkpoint of a step; each process writes its own shards.

        Args:
            step: The step.
            state: The pytree.
            **notes: JSON values to keep in the seal; see ``note``.

        Raises:
            InputError: If the disk refused it, the folder around was moved or deleted, or something
                that no run wrote is in its way; the newest complete one is as it was.
        """
        home = self.path.parent
        if self._has_home and not home.is_dir():
            raise InputError(
                f"expected {home} to stay while checkpoints were saved there, got it moved or "
                "deleted; bring its parts together and start again"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Left by kills. Orbax would count them, and delete complete ones in their stead.
            sealed = self.complete_steps()
            for unsealed in first_does(
                lambda: sorted({*self._manager.all_steps()} - {*sealed}),
            ):
                self._delete(unsealed)
            first_does(lambda: self._write_mark(step))
            # Typed keys and named tuples become plain leaves; the template restores them.
            self._manager.save(step, args=ocp.args.StandardSave(_leaves(state)), force=True)
            self._manager.wait_until_finished()
            first_does(lambda: self._write_seal(step, state, notes))
            first_does(lambda: self._mark(step).unlink(missing_ok=True))
            for old in first_does(self._outlived):
                self._delete(old)
        except InputError:
            raise
        except (OSError, ValueError) as error:  # tensorstore's errors are of the second kind
            outlive_the_lost()
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
            InputError: If the checkpoint is damaged, of another structure, step or run, or was
                replaced while it was read.
        """
        try:
            return self._restore(step, template)
        except InputError as error:
            if (self.path / str(step)).exists():
                raise
            raise InputError(
                f"expected {self.path / str(step)} to stay while it was read, got it replaced by a "
                "newer checkpoint; try again"
            ) from error

    def restore_latest(self, template: State) -> tuple[int, State]:
        """Load the newest checkpoint, with its step, though another run may replace it.

        Raises:
            InputError: As ``restore``, or if there is none.
        """
        # Processes of one run are alone in its folder, and not all of them see what one finds.
        trials = _READ_AGAIN if process_count() == 1 else 1
        while True:
            step, trials = self.latest_step(), trials - 1
            if step is None:
                raise InputError(f"expected a checkpoint in {self.path}, got none")
            try:
                return step, self.restore(step, template)
            except InputError:
                if trials == 0 or step in self.complete_steps():
                    raise

    def note(self, step: int, name: str) -> Any:
        """Return what was noted when a step's checkpoint was saved; None for nothing.

        Raises:
            InputError: If the seal is damaged.
        """
        return first_does(lambda: self._seal(step).get("notes", {}).get(name))

    def _restore(self, step: int, template: State) -> State:
        first_does(lambda: self._check_seal(step, _layout(template)))
        shapes = {name: _described(leaf) for name, leaf in _leaves(template).items()}
        try:
            leaves = self._manager.restore(step, args=ocp.args.StandardRestore(shapes))
        except Exception as error:  # Orbax's are of many kinds.
            outlive_the_lost()
            found = f"what Orbax cannot read ({type(error).__name__})"
            raise self._damaged(step, found) from error
        ordered = [leaves[name] for name in sorted(leaves)]
        restored: State = jax.tree.unflatten(jax.tree.structure(template), ordered)
        return restored

    def close(self) -> None:
        """Release Orbax's threads."""
        self._manager.close()

    def _write_seal(self, step: int, state: object, notes: Mapping[str, Any]) -> None:
        folder = self.path / str(step)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        seal = {
            "files": {str(file.relative_to(folder)): size_and_checksum(file) for file in files},
            "layout": _layout(state),
            "step": step,
            "run": self._run,
            "notes": notes,
        }
        seal["checksum"] = _checksum(seal)
        write_atomically(folder / _SEAL, json.dumps(seal, indent=1).encode())

    def _mark(self, step: int) -> Path:
        """Return the file that says whose a step is while it is saved or deleted."""
        return self.path / f".begun-{step}"

    def _write_mark(self, step: int) -> None:
        write_atomically(self._mark(step), json.dumps(self._run).encode())

    def _outlived(self) -> list[int]:
        """List the complete checkpoints of this run that newer ones replace."""
        return [step for step in self._complete_steps()[: -self._keep] if self._is_own(step)]

    def _is_own(self, step: int) -> bool:
        try:
            return bool(self._seal(step).get("run") == self._run)
        except InputError:
            return False  # Whose it was cannot be told: it is left alone.

    def _delete(self, step: int) -> None:
        """Delete a step's checkpoint that this run wrote, whole or not."""
        folder = self.path / str(step)

        def check() -> None:
            there = {entry.name for entry in folder.iterdir()}
            others = there - _OF_ORBAX - {_SEAL}
            # A kill may leave a seal before it has its name.
            if others := {name for name in others if not name.startswith(f".{_SEAL}.")}:
                raise InputError(
                    f"expected nothing but checkpoints in {self.path}, got {folder} with "
                    f"{min(others)}; move it elsewhere"
                )
            if there and _SEAL not in there and not self._has_begun(step):
                raise InputError(
                    f"expected nothing but this run's checkpoints in {self.path}, got {folder}, "
                    "which it has no record of having begun; delete it or move it elsewhere"
                )
            if not self._has_begun(step):
                self._write_mark(step)  # A kill may take the seal first.

        first_does(check)
        self._manager.delete(step)
        first_does(lambda: self._mark(step).unlink(missing_ok=True))

    def _has_begun(self, step: int) -> bool:
        try:
            return bool(parse_json(read_regular(self._mark(step))) == self._run)
        except (OSError, ValueError):
            return False

    def _seal(self, step: int) -> dict[str, Any]:
        """Read the seal of a step; ``InputError`` if it is not as it was written."""
        try:
            seal = parse_json(read_regular(self.path / str(step) / _SEAL))
            # Earlier versions wrote less, and no checksum.
            known = {"files", "layout"} <= seal.keys()
            if known and seal.keys() != {"files", "layout"}:
                known = seal.pop("checksum") == _checksum(seal)
            if not known:
                raise ValueError("a seal that was changed")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(step, str(error)) from error
        found: dict[str, Any] = seal
        return found

    def _check_seal(self, step: int, layout: str) -> None:
        """Raise ``InputError`` for files, a layout, a step or a run other than were written."""
        folder, seal = self.path / str(step), self._seal(step)
        files, found = seal["files"], seal["layout"]
        try:
            there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
            broken = sorted({*files} ^ (there - {_SEAL}))
            broken += [
                name
                for name in {*files} & there
                # A file of another size is not read: it may be larger than memory.
                if (folder / name).stat().st_size != files[name][0]
                or [*size_and_checksum(folder / name)] != files[name]
            ]
        except (LookupError, OSError, TypeError) as error:
            raise self._damaged(step, str(error)) from error
        if broken:
            raise self._damaged(step, f"{', '.join(broken)} with other bytes than were written")
        if seal.get("step", step) != step:
            raise self._damaged(step, f"the checkpoint of step {seal['step']}")
        if None not in (run := seal.get("run"), self._run) and run != self._run:
            raise InputError(
                f"expected a checkpoint of this run in {folder}, got the checkpoint of another "
                "run; restore config.json if it was changed, or take a new folder"
            )
        if found != layout:
            raise InputError(f"expected the arrays {layout} in {folder}, got {found}")

    def _damaged(self, step: int, found: str) -> InputError:
        older = [other for other in self._complete_steps() if other < step]
        remedy = f"resume from step {max(older)}" if older else "start again"
        return InputError(
            f"expected an undamaged checkpoint in {self.path / str(step)}, got {found}; "
            f"delete that folder to {remedy}"
        )


def _leaves(tree: object) -> dict[str, Any]:
    return {f"{index:06d}": leaf for index, leaf in enumerate(jax.tree.leaves(tree))}


def _described(leaf: Any) -> Any:
    """Say what to restore, and to which devices: not to those that it was saved from."""
    described = ocp.utils.to_shape_dtype_struct(leaf)
    if isinstance(leaf, np.ndarray) and process_count() == 1:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here)
    return described


def _layout(tree: object) -> str:
    """Spell the dtype and shape of every leaf."""
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))


def _checksum(seal: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(seal, sort_keys=True).encode())
