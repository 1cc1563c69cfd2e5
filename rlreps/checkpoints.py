"""Checkpoints of a training state through Orbax: whole or absent, never half-written."""

import zlib
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from rlreps.errors import InputError

State = TypeVar("State")

_CHECKSUMS = "checksums"


class Checkpoints:
    """The last checkpoints of one run."""

    def __init__(self, path: Path, *, keep: int = 2) -> None:
        """Opens a folder of checkpoints, which the first save creates.

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
        """Step of the newest complete checkpoint, or None."""
        step: int | None = self._manager.latest_step()
        return step

    def save(self, step: int, state: object) -> None:
        """Saves a pytree of arrays as the checkpoint of a step."""
        self.path.mkdir(parents=True, exist_ok=True)
        # Typed keys and named tuples become plain lists of leaves: the template restores them.
        leaves = _leaves(state)
        content = {**leaves, _CHECKSUMS: _checksums(leaves)}
        self._manager.save(step, args=ocp.args.StandardSave(content))
        self._manager.wait_until_finished()

    def restore(self, step: int, template: State) -> State:
        """Loads a step's checkpoint.

        Args:
            step: A step that was saved.
            template: A pytree with the structure, shapes and dtypes to expect.

        Returns:
            The saved pytree, bit for bit.

        Raises:
            InputError: If the checkpoint is damaged or of another structure.
        """
        leaves = _leaves(template)
        content = {**leaves, _CHECKSUMS: np.zeros(len(leaves), np.uint32)}
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, content)
        try:
            leaves = self._manager.restore(step, args=ocp.args.StandardRestore(shapes))
        except Exception as error:  # Orbax raises bare exceptions for files cut short.
            reason = str(error).strip().splitlines()[0].split(". See ")[0]
            raise self._unreadable(step, reason) from error
        stored = leaves.pop(_CHECKSUMS)
        # Orbax would hand over flipped bits and convert another dtype without a word.
        if not np.array_equal(_checksums(leaves), stored):
            raise self._unreadable(step, "arrays that do not match their checksums")
        ordered = [leaves[name] for name in sorted(leaves)]
        restored: State = jax.tree.unflatten(jax.tree.structure(template), ordered)
        return restored

    def close(self) -> None:
        """Releases Orbax's threads."""
        self._manager.close()

    def _unreadable(self, step: int, reason: str) -> InputError:
        """Says how to go on; deleting what may only be of another version is the user's choice."""
        older = [other for other in self._manager.all_steps() if other < step]
        remedy = f"resume from step {max(older)}" if older else "start again"
        return InputError(
            f"expected a readable checkpoint in {self.path / str(step)}, got {reason}; "
            f"if it is damaged, delete that folder to {remedy}"
        )


def _leaves(tree: object) -> dict[str, Any]:
    return {f"{index:06d}": leaf for index, leaf in enumerate(jax.tree.leaves(tree))}


def _checksums(leaves: dict[str, Any]) -> np.ndarray:
    """CRC-32 of each leaf's bytes, in order of the names, [leaves] (uint32)."""
    arrays = (np.ascontiguousarray(leaves[name]) for name in sorted(leaves))
    return np.asarray([zlib.crc32(array.tobytes()) for array in arrays], np.uint32)
