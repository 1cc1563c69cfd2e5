"""Checkpoints of a training state through Orbax: whole or absent, never half-written."""

from pathlib import Path
from typing import TypeVar

import jax
import orbax.checkpoint as ocp

from rlreps.errors import InputError

State = TypeVar("State")


class Checkpoints:
    """The last checkpoints of one run."""

    def __init__(self, path: Path, *, keep: int = 2) -> None:
        """Opens a folder of checkpoints, creating it on the first save.

        Args:
            path: The folder.
            keep: Checkpoints kept; older ones are deleted after a newer one is complete.
        """
        self.path = path.absolute()
        self._manager = ocp.CheckpointManager(
            self.path,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, enable_async_checkpointing=False
            ),
        )

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint, or None."""
        step: int | None = self._manager.latest_step()
        return step

    def save(self, step: int, state: object) -> None:
        """Saves a pytree of arrays as the checkpoint of a step."""
        # Typed keys and named tuples become plain lists of leaves: the template restores them.
        self._manager.save(step, args=ocp.args.StandardSave(_leaves(state)))
        self._manager.wait_until_finished()

    def restore(self, step: int, template: State) -> State:
        """Loads a step's checkpoint.

        Args:
            step: A step that was saved.
            template: A pytree with the structure, shapes and dtypes to expect.

        Returns:
            The saved pytree.

        Raises:
            InputError: If the checkpoint is damaged or of another structure.
        """
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, _leaves(template))
        try:
            leaves = self._manager.restore(step, args=ocp.args.StandardRestore(shapes))
        except (ValueError, OSError, KeyError, TypeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"expected a readable checkpoint in {self.path / str(step)}, got: {reason}"
            ) from error
        ordered = [leaves[name] for name in sorted(leaves)]
        return jax.tree.unflatten(jax.tree.structure(template), ordered)


def _leaves(tree: object) -> dict[str, object]:
    return {f"{index:06d}": leaf for index, leaf in enumerate(jax.tree.leaves(tree))}
