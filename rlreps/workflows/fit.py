"""Successor representations of data in a folder of their own: ``rlreps fit``."""

import contextlib
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlreps.config import checked, from_json, interval, positive
from rlreps.envs import PuddleWorld, load_arena
from rlreps.envs.observations import Observation
from rlreps.errors import FitWarning, InputError, reason_of, require, require_memory
from rlreps.files import DAMAGED, open_regular
from rlreps.formatting import format_number
from rlreps.plotting import plot_fit, save_figure
from rlreps.report.page import REPORT, Section, write_report
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.successor.fitting.data import Transitions
from rlreps.successor.fitting.fit import Fit, left_out
from rlreps.successor.fitting.methods import FitConfig
from rlreps.successor.fitting.quality import FEWEST_ROWS, Quality
from rlreps.successor.fitting.representation import KIND, SuccessorRepresentation
from rlreps.workflows.evaluate import OBSERVATION

_PUDDLE_WORLD = "puddle-world"

MOST_COLLECTED = 10**8


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Collection:
    """Options for collecting data, or for reading a file of data.

    Attributes:
        collect: Number of transitions to collect; for an environment only.
        observation: Observation in the data of a PuddleWorld; by default the one that its arena
            names, or the position.
        environment_seed: Seed of all random draws during the collection.
    """

    collect: int | None = positive(None, most=MOST_COLLECTED)
    observation: Observation | None = None
    environment_seed: int = interval("[0, 2**31)", 0)


def read_data(name: str, collection: Collection) -> Transitions:
    """Read transitions from a file of arrays, or collect them in an environment.

    Args:
        name: An .npz file (see ``Transitions.from_dictionary``), or an environment in which
            uniformly random actions are taken: ``puddle-world[:ARENA]``, the id of a Gymnasium
            environment, or ``dm_env:MODULE:FUNCTION``, a function that makes one and takes at most
            a seed. A module in the name is imported.
        collection: How to collect or read them.

    Raises:
        InputError: If there is no such file or environment, or its data cannot be used.
    """
    steps = collection.collect
    world = arena_of(name, collection)
    if name.endswith(".npz"):
        require(steps is None, "no --collect with a file", steps)
        try:
            with open_regular(name) as stream:
                # Entries are read when they are needed: others may hold objects.
                arrays = np.load(stream, allow_pickle=False)
                single = isinstance(arrays, np.ndarray)
                require(not single, "an .npz file", "an .npy file under this name")
                return Transitions.from_dictionary(arrays)
        except InputError:
            raise
        except DAMAGED as error:
            found = f"{name}: {reason_of(error)}"
            raise InputError(f"expected a file of arrays, got {found}") from error
    if steps is None:
        raise InputError(f"expected an .npz file, or --collect with an environment, got {name!r}")
    seed = collection.environment_seed
    if world is not None:
        seen = jax.eval_shape(lambda key: world.observe(world.reset(key)), jax.random.key(0))
        # States before and after each step, on the device and on the host.
        size = 4 * steps * seen.size * seen.dtype.itemsize
        require_memory(f"{steps:,} transitions of observations {seen.shape}", size)
        return Transitions.collect(world, steps=steps, seed=seed)
    from rlreps.agents.hosts import make_environment  # A file does not need it.

    with contextlib.closing(make_environment(name, seed)) as environment:
        return Transitions.collect(environment, steps=steps, seed=seed)


def arena_of(name: str, collection: Collection) -> PuddleWorld | None:
    """Return the PuddleWorld in which data are collected; None for other data.

    Raises:
        InputError: If an observation is named for other data.
        ArenaError: For an unknown or invalid arena.
    """
    kind, _, arena = name.partition(":")
    if kind != _PUDDLE_WORLD:
        got = collection.observation
        require(got is None, f"no observation but with {_PUDDLE_WORLD}[:ARENA]", got)
        return None
    given = {} if collection.observation is None else {"observation": collection.observation}
    return load_arena(arena or "sutton", **given)


def run_fit(config: FitConfig, name: str, out: Path, collection: Collection) -> dict[str, Any]:
    """Fit a representation in a folder, resuming an interrupted fit.

    Args:
        config: The fit.
        name: The data, as for ``read_data``.
        out: The folder; ``SuccessorRepresentation.load`` reads it.
        collection: How the data are read or collected.

    Returns:
        The summary.

    Raises:
        InputError: For data, options or a folder that do not fit.
        TrainingDivergedError: If training became non-finite.
    """
    RunFolder.find(out, kind=KIND)  # Before data are read or collected.
    world = arena_of(name, collection)
    seen = None if world is None else world.observation
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FitWarning)
        parts = Fit(data=read_data(name, collection), config=config)
    description = parts.describe()
    finished = finished_summary(out, KIND, description)
    if finished is not None:
        return finished
    parts.check()

    def compute(folder: RunFolder) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # The command prints the warnings.
            rep = parts.run(folder=folder)
        lines = [*(str(each.message) for each in told), *left_out(rep.solution)]
        notes = [*rep.observed.lines(), *(f"warning: {line}" for line in lines)]
        summary = {**rep.write(folder), "notes": notes}
        _write_report(folder, rep, notes)
        return summary

    origin: dict[str, Any] = {"source": name}
    if seen is not None:
        origin[OBSERVATION] = {"name": seen.name, **dataclasses.asdict(seen)}
    return complete_run(out, kind=KIND, config=description, compute=compute, origin=origin)


def print_fit(summary: Mapping[str, Any], out: Path) -> None:
    """Print the fit, its quality and the path of the report."""
    print(
        f"{summary['num_features']} features of {summary['rows']:,} transitions, discount "
        f"{summary['discount']:g}"
    )
    for line in [*summary.get("notes", ()), *_lines(summary["quality"])]:
        print(line)
    print(f"wrote {out / REPORT}")


def _lines(stored: Mapping[str, Any] | None) -> list[str]:
    if stored is None:
        return ["quality: unknown, there are too few transitions to hold some out"]
    quality = from_json(Quality, stored)
    return [*quality.lines(), *(f"warning: {line}" for line in quality.warnings())]


def _write_report(folder: RunFolder, rep: SuccessorRepresentation, notes: Sequence[str]) -> None:
    quality, values = rep.quality, rep.singular_values
    rows = [None] * len(values) if quality is None else list(quality.effective_rows)
    components = [
        (index, format_number(float(value)), "" if count is None else f"{count:,.0f}")
        for index, (value, count) in enumerate(zip(values, rows, strict=True), start=1)
    ]
    stored = None if quality is None else dataclasses.asdict(quality)
    figures = []
    if quality is not None:
        figure = plot_fit(
            quality.predicted, quality.realised, quality.effective_rows, fewest=FEWEST_ROWS
        )
        path = save_figure(figure, folder.path / "figures" / "quality.png")
        figures = [
            (
                path,
                "Left: discounted sums of random cumulants on held-out episodes against their "
                "predictions. Right: the effective number of rows behind each component.",
            )
        ]
    write_report(
        folder,
        title="Successor representation of data",
        summary=f"{len(values)} features of {rep.description['data']['rows']:,} transitions, "
        f"discount {rep.config.discount:g}.",
        sections=[
            Section(title="Data", text="\n\n".join(notes)),
            Section(title="Quality", text="\n\n".join(_lines(stored)), figures=figures),
            Section(
                title="Components",
                tables=[
                    Table(
                        ("component", "singular value", "effective rows"),
                        components,
                        "Components, those of the largest singular values first",
                    )
                ],
            ),
        ],
    )
