"""Checkpoints of a pytree of arrays through Orbax: whole or absent, never half-written.

Orbax restores flipped bits as they are, so a checksum of the arrays goes with them.
"""

import zlib
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from rlreps.errors import InputError

State = TypeVar("State")


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
        """Return the step of the newest checkpoint, or None."""
        return max(self._manager.all_steps(), default=None)

    def save(self, step: int, state: object) -> None:
        """Save a pytree of arrays as the checkpoint of a step.

        Raises:
            InputError: If the disk refused it; older checkpoints are as they were.
        """
        seal = {"checksum": _checksum(state), "layout": _layout(state)}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._manager.save(
                step,
                # Typed keys and named tuples become plain lists of leaves; the template restores
                # them.
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(_leaves(state)), seal=ocp.args.JsonSave(seal)
                ),
                force=True,
            )
            self._manager.wait_until_finished()
        except (OSError, ValueError) as error:  # tensorstore's errors are of the second kind
            found = str(error).split(" [")[0].replace("\n", " ")
            raise InputError(
                f"expected room for a checkpoint in {self.path}, got {found}"
            ) from error

    def restore(self, step: int, template: State) -> State:
        """Load a step's checkpoint.

        Args:
            step: A step that was saved.
            template: A pytree with the structure, shapes and dtypes to expect.

        Returns:
            The saved pytree, bit for bit.

        Raises:
            InputError: If the checkpoint is damaged or of another structure.
        """
        try:
            seal = self._manager.restore(step, args=ocp.args.Composite(seal=ocp.args.JsonRestore()))
            checksum, layout = seal.seal["checksum"], seal.seal["layout"]
        except Exception as error:  # Orbax's are of many kinds.
            raise self._damaged(step, f"an unreadable seal ({type(error).__name__})") from error
        if layout != _layout(template):
            raise InputError(
                f"expected the arrays {_layout(template)} in {self.path / str(step)}, got {layout}"
            )
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, _leaves(template))
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
        try:
            leaves = self._manager.restore(step, args=arguments).state
        except Exception as error:  # Orbax's are of many kinds.
            raise self._damaged(step, f"unreadable arrays ({type(error).__name__})") from error
        ordered = [leaves[name] for name in sorted(leaves)]
        if _checksum(ordered) != checksum:
            raise self._damaged(step, "other numbers than were written")
        restored: State = jax.tree.unflatten(jax.tree.structure(template), ordered)
        return restored

    def close(self) -> None:
        """Release Orbax's threads."""
        self._manager.close()

    def _damaged(self, step: int, found: str) -> InputError:
        older = [other for other in self._manager.all_steps() if other < step]
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


def _checksum(tree: object) -> int:
    """Compute the CRC-32 of every leaf's bytes, one after the other."""
    found = 0
    for leaf in jax.tree.leaves(tree):
        typed_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        values = np.asarray(jax.random.key_data(leaf) if typed_key else leaf)
        found = zlib.crc32(values.tobytes(), found)
    return found
