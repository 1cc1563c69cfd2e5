"""Successor representations of data in a folder of their own: ``rlreps fit``."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from rlreps.envs import load_arena
from rlreps.errors import InputError, require
from rlreps.files import DAMAGED, read_arrays
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.successor.data import Terminals, Transitions
from rlreps.successor.fit import Fit
from rlreps.successor.methods import FitConfig
from rlreps.successor.representation import KIND

_PUDDLE_WORLD = "puddle-world"

MOST_COLLECTED = 10**8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collection:
    """Data that are collected, or how a file of them is read.

    Attributes:
        collect: Transitions to collect; for an environment alone.
        environment_seed: Decides everything random of the collection.
        terminals: Whether ``terminals`` of a file mark terminal states or any end of a trajectory.
    """

    collect: int | None = None
    environment_seed: int = 0
    terminals: Terminals = "terminated"


def read_data(name: str, collection: Collection) -> Transitions:
    """Read transitions from a file of arrays, or collect them in an environment.

    Args:
        name: An .npz file (see ``Transitions.from_dictionary``), or an environment in which
            uniformly random actions are taken: ``puddle-world[:ARENA]``, the id of a Gymnasium
            environment, or ``dm_env:MODULE:FUNCTION`` for what a function without arguments but a
            seed makes. A module that is named is imported.
        collection: How.

    Raises:
        InputError: If there is no such file or environment, or its data cannot be used.
    """
    steps = collection.collect
    if name.endswith(".npz"):
        require(steps is None, "no --collect with a file", steps)
        try:
            arrays = read_arrays(name)
            require("" not in arrays, "an .npz file", "an .npy file under this name")
        except DAMAGED as error:
            raise InputError(f"expected a file of arrays, got {name}: {error}") from error
        return Transitions.from_dictionary(arrays, terminals=collection.terminals)
    if steps is None:
        raise InputError(f"expected an .npz file, or --collect with an environment, got {name!r}")
    require(steps <= MOST_COLLECTED, f"--collect of at most {MOST_COLLECTED:,} steps", steps)
    seed = collection.environment_seed
    if name.partition(":")[0] == _PUDDLE_WORLD:
        arena = load_arena(name.partition(":")[2] or "sutton")
        return Transitions.collect(arena, steps=steps, seed=seed)
    from rlreps.agents.environments import make_environment  # A file needs none of it.

    with contextlib.closing(make_environment(name, seed)) as environment:
        return Transitions.collect(environment, steps=steps, seed=seed)


def run_fit(
    config: FitConfig, name: str, out: Path, collection: Collection, *, progress: bool = True
) -> dict[str, Any]:
    """Fit a representation in a folder, resuming what was interrupted.

    Args:
        config: The fit.
        name: The data, as of ``read_data``.
        out: The folder; ``SuccessorRepresentation.load`` reads it.
        collection: How the data are read or collected.
        progress: Whether to show progress bars.

    Returns:
        The summary.

    Raises:
        InputError: For data, options or a folder that do not fit.
        TrainingDivergedError: If training became non-finite.
    """
    parts = Fit(data=read_data(name, collection), config=config)
    description = parts.describe()
    finished = finished_summary(out, KIND, description)
    if finished is not None:
        return finished
    parts.check()

    def compute(folder: RunFolder) -> dict[str, Any]:
        return parts.run(folder=folder, progress=progress).write(folder)

    return complete_run(
        out, kind=KIND, config=description, compute=compute, origin={"source": name}
    )
