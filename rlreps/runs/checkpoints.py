"""Checkpoints of a pytree of arrays through Orbax: whole or absent, never half-written.

Orbax restores flipped bits as they are, and leaves tracebacks on standard error where it fails. So
a seal lies beside its files: their sizes and checksums, and the layout of the arrays. It is written
last; a checkpoint without it counts for nothing and is made again.
"""

import json
import zlib
from pathlib import Path
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp

from rlreps.errors import InputError
from rlreps.files import write_atomically
from rlreps.runs.processes import first_does

State = TypeVar("State")

_SEAL = "seal.json"


class Checkpoints:
    """The last checkpoints of one run."""

    def __init__(self, path: Path, *, keep: int = 2) -> None:
        """Open a folder of checkpoints, which the first save creates.

        Args:
            path: The folder.
            keep: Checkpoints kept; older ones are deleted after a newer one is complete.
        """
        self.path = path.absolute()
        self._manager = ocp.CheckpointManager(
            self.path,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, create=False, enable_async_checkpointing=False
            ),
        )

    def latest_step(self) -> int | None:
        """Return the step of the newest complete checkpoint, or None."""
        return max(self.complete_steps(), default=None)

    def complete_steps(self) -> list[int]:
        """Return the steps of all complete checkpoints, rising."""
        steps: list[int] = self._manager.all_steps()
        return first_does(
            lambda: sorted(step for step in steps if (self.path / str(step) / _SEAL).is_file())
        )

    def save(self, step: int, state: object) -> None:
        """Save a pytree of arrays as the checkpoint of a step; each process writes its own shards.

        Raises:
            InputError: If the disk refused it; the newest complete one is as it was.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Left by kills. Orbax would count them, and delete complete ones in their stead.
            for unsealed in {*self._manager.all_steps()} - {*self.complete_steps()}:
                self._manager.delete(unsealed)
            # Typed keys and named tuples become plain leaves; the template restores them.
            self._manager.save(step, args=ocp.args.StandardSave(_leaves(state)), force=True)
            self._manager.wait_until_finished()
            first_does(lambda: self._seal(step, _layout(state)))
        except (OSError, ValueError) as error:  # tensorstore's errors are of the second kind
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
            InputError: If the checkpoint is damaged or of another structure.
        """
        first_does(lambda: self._check_seal(step, _layout(template)))
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, _leaves(template))
        try:
            leaves = self._manager.restore(step, args=ocp.args.StandardRestore(shapes))
        except Exception as error:  # Orbax's are of many kinds.
            found = f"what Orbax cannot read ({type(error).__name__})"
            raise self._damaged(step, found) from error
        ordered = [leaves[name] for name in sorted(leaves)]
        restored: State = jax.tree.unflatten(jax.tree.structure(template), ordered)
        return restored

    def close(self) -> None:
        """Release Orbax's threads."""
        self._manager.close()

    def _seal(self, step: int, layout: str) -> None:
        folder = self.path / str(step)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        found = {str(file.relative_to(folder)): _fingerprint(file) for file in files}
        seal = {"files": found, "layout": layout}
        write_atomically(folder / _SEAL, json.dumps(seal, indent=1).encode())

    def _check_seal(self, step: int, layout: str) -> None:
        """Raise ``InputError`` for files or a layout other than were written."""
        folder = self.path / str(step)
        try:
            seal = json.loads((folder / _SEAL).read_text())
            files, found = seal["files"], seal["layout"]
            broken = [name for name in files if _fingerprint(folder / name) != files[name]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(step, str(error)) from error
        if broken:
            raise self._damaged(step, f"{', '.join(broken)} with other bytes than were written")
        if found != layout:
            raise InputError(f"expected the arrays {layout} in {folder}, got {found}")

    def _damaged(self, step: int, found: str) -> InputError:
        older = [other for other in self.complete_steps() if other < step]
        remedy = f"resume from step {max(older)}" if older else "start again"
        return InputError(
            f"expected an undamaged checkpoint in {self.path / str(step)}, got {found}; "
            f"delete that folder to {remedy}"
        )


def _leaves(tree: object) -> dict[str, Any]:
    return {f"{index:06d}": leaf for index, leaf in enumerate(jax.tree.leaves(tree))}


def _layout(tree: object) -> str:
    """Spell the dtype and shape of every leaf."""
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))


def _fingerprint(file: Path) -> list[int]:
    """Return the size and the CRC-32 of a file."""
    content = file.read_bytes()
    return [len(content), zlib.crc32(content)]
