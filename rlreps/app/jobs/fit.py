"""Fit a successor representation to data, in a folder of its own: ``rlreps fit``."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from rlreps.app.job import Context, Job, Printed
from rlreps.app.jobs.train import NAMES as NAMES
from rlreps.app.options import Choice
from rlreps.app.trained_runs import OBSERVATION
from rlreps.config import checked, from_json, interval, positive
from rlreps.encoders import EVERY_ENCODER, Encoder
from rlreps.envs import PuddleWorld, load_arena
from rlreps.envs.observations import OBSERVATIONS, Observation
from rlreps.errors import InputError, reason_of, recorded_warnings, require, require_memory
from rlreps.files import DAMAGED
from rlreps.formatting import format_number
from rlreps.plotting import plot_fit, save_figure
from rlreps.report.page import Page, Section
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder
from rlreps.successor.fitting.config import FIT_METHODS, FitConfig, FitMethod
from rlreps.successor.fitting.fit import Fit
from rlreps.successor.fitting.quality import FEWEST_EFFECTIVE_ROWS, Quality
from rlreps.successor.fitting.representation import KIND
from rlreps.successor.fitting.transitions import Transitions

_PUDDLE_WORLD = "puddle-world"

MOST_COLLECTED = 10**8

CHOICES: dict[Any, Choice] = {
    Observation | None: Choice("observation", OBSERVATIONS),
    Encoder | None: Choice("encoder", EVERY_ENCODER),
    FitMethod | None: Choice("method", FIT_METHODS),
}


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
            with open(name, "rb") as stream:
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
    from rlreps.agents.host_environments import make_environment  # A file does not need it.

    with contextlib.closing(make_environment(name, seed)) as environment:
        return Transitions.collect(environment, steps=steps, seed=seed)


def arena_of(name: str, collection: Collection) -> PuddleWorld | None:
    """Return the PuddleWorld in which data are collected; None for other data.

    Raises:
        InputError: For an unknown or invalid arena, or an observation that is named for other data.
    """
    kind, _, arena = name.partition(":")
    if kind != _PUDDLE_WORLD:
        got = collection.observation
        require(got is None, f"no observation but with {_PUDDLE_WORLD}[:ARENA]", got)
        return None
    given = {} if collection.observation is None else {"observation": collection.observation}
    return load_arena(arena or "sutton", **given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitData(Job[Mapping[str, Any]]):
    """Fit successor features to transitions; the same command resumes an interrupted fit.

    ``SuccessorRepresentation.load`` reads its folder.

    Attributes:
        data: An .npz file with arrays as Minari, D4RL or OGBench name them (observations, actions,
            terminals, timeouts, ...). With --collect, an environment in which uniformly random
            actions are taken: the id of a Gymnasium environment, dm_env:MODULE:FUNCTION for a
            function that makes one, or puddle-world[:ARENA].
        config: The fit.
        collection: How the transitions are read or collected.
    """

    kind: ClassVar = KIND

    data: str
    config: FitConfig = dataclasses.field(default=FitConfig())
    collection: Collection = dataclasses.field(default=Collection())

    @functools.cached_property
    def _world(self) -> PuddleWorld | None:
        return arena_of(self.data, self.collection)

    @functools.cached_property
    def _read(self) -> tuple[Fit, list[str]]:
        """Read or collect the data; return the fit of them, and what was warned meanwhile."""
        with recorded_warnings() as told:
            parts = Fit(data=read_data(self.data, self.collection), given=self.config)
        return parts, told

    def describe(self) -> Mapping[str, Any]:
        _ = self._world  # Refuse an unknown arena before data are read or collected.
        return self._read[0].describe()

    def locate(self, out: Path) -> Mapping[str, Any]:
        source = {"source": self.data}
        if self._world is None:
            return source
        seen = self._world.observation
        return {**source, OBSERVATION: {"name": seen.name, **dataclasses.asdict(seen)}}

    def check(self, context: Context) -> None:
        self._read[0].check()

    def compute(self, folder: RunFolder, context: Context) -> Mapping[str, Any]:
        """Fit.

        Raises:
            TrainingDivergedError: If training became non-finite.
        """
        parts, told = self._read
        with recorded_warnings() as said:
            rep = parts.run(folder=folder)
        shown = [] if rep.quality is None else rep.quality.warnings()  # Beside the quality.
        lines = [*told, *(line for line in said if line not in shown)]
        ended = int(parts.data.terminated.sum())
        cut = int(parts.data.ends.sum()) - ended
        ends = f"ends: {ended:,} of {len(parts.data):,} rows are terminal, {cut:,} are cut"
        notes = [*rep.observed.lines(), ends, *(f"warning: {line}" for line in lines)]
        return {**rep.write(folder), "notes": notes}

    def report(self, folder: RunFolder, found: Mapping[str, Any]) -> Page:
        values, stored = found["singular_values"], found["quality"]
        lines = _describe_quality(stored)
        quality = None if stored is None else from_json(Quality, stored)
        rows = [None] * len(values) if quality is None else list(quality.effective_rows)
        components = [
            (index, format_number(float(value)), "" if count is None else f"{count:,.0f}")
            for index, (value, count) in enumerate(zip(values, rows, strict=True), start=1)
        ]
        figures = []
        if quality is not None:
            figure = plot_fit(
                quality.predicted,
                quality.realised,
                quality.effective_rows,
                fewest=FEWEST_EFFECTIVE_ROWS,
            )
            path = save_figure(figure, folder.figures / "quality.png")
            caption = (
                "Left: discounted sums of random cumulants on held-out episodes against their "
                "predictions. Right: the effective number of rows behind each component."
            )
            figures = [(path, caption)]
        table = Table(
            ("component", "singular value", "effective rows"),
            components,
            "Components, those of the largest singular values first",
        )
        return Page(
            title="Successor representation of data",
            summary=f"{_describe_fit(found)}.",
            sections=[
                Section(title="Data", text="\n\n".join(found["notes"])),
                Section(title="Quality", text="\n\n".join(lines), figures=figures),
                Section(title="Components", tables=[table]),
            ],
        )

    def show(self, summary: Mapping[str, Any]) -> Iterator[Printed]:
        """Yield the fit and its quality."""
        yield _describe_fit(summary)
        yield from [*summary.get("notes", ()), *_describe_quality(summary["quality"])]
        if "report" in summary:
            yield Path(summary["report"])


def _describe_fit(summary: Mapping[str, Any]) -> str:
    return (
        f"{summary['num_features']} features of {summary['rows']:,} transitions, discount "
        f"{summary['discount']:g}"
    )


def _describe_quality(stored: Mapping[str, Any] | None) -> list[str]:
    if stored is None:
        return ["quality: unknown, there are too few transitions to hold some out"]
    quality = from_json(Quality, stored)
    return [*quality.lines(), *(f"warning: {line}" for line in quality.warnings())]
