"""The harness of every experiment: folder, resumption, result files, figures, report, claims.

How to write an experiment. One file holds its science and ends with one ``Experiment``:

1. A frozen configuration dataclass and ``PRESETS`` (smoke, laptop, paper). Its fields decide the
   result, so they are the identity of the run's folder.
2. ``cells(run)`` names what is to be measured: a mapping from a name (also a file's name) to
   whatever ``measure`` needs. Training that one program can do together is one cell.
3. ``measure(run, name, cell)`` measures one cell and returns JSON values. The harness keeps them in
   ``parts/<name>.json``: a resumed run measures only what is missing. A cell that trains does so in
   ``run.training_folder(name, ...)``, from whose checkpoints it resumes; it shares
   ``run.devices`` and ``run.progress``. With ``keeps_parts=False`` a measurement may be any object
   (arrays, pictures) and is made again on resumption: for cells whose cost is that of training.
   Other things of this kind, such as trials that choose a setting, go through ``run.measured``.
4. ``report(run, found)`` makes ``Findings`` of name → measurement: an abstract, claims, sections
   and a summary. A section is ``rlreps.report.Section``; its figures are ``run.show(name, caption,
   rows, figure)``, which writes ``results/<name>.csv``, ``.json`` and ``figures/<name>.png``.
   Numbers without a figure go through ``run.write_rows``. The claims head the first section.
5. A claim's ``holds`` is three-valued: decide it from intervals (``mean_interval(...).below``,
   ``all_hold``), and say None wherever this run cannot tell. What no preset can decide is no claim:
   it belongs in a table or a text. Where the ``paper`` preset is not the paper's protocol,
   ``deviations`` says so and why; a test compares the two field by field.
6. Optional: ``load(path)`` reads a data set (its ``fingerprint()`` joins the run's identity);
   ``check(config, data)`` refuses, before the folder is made, what cannot be run, and returns what
   becomes ``run.data``; ``prepare(run)`` makes in the folder what all cells share (``run.shared``).
7. Enter the module in ``rlreps.experiments.EXPERIMENTS``: the command line knows it from there.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps import subspace
from rlreps.config import as_json
from rlreps.errors import printable, require
from rlreps.numerics import usable_cores
from rlreps.plotting import save_figure
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.runs.intervals import Interval, aggregate
from rlreps.runs.progress import progress_bar
from rlreps.runs.workers import map_in_workers
from rlreps.successor.store import find_store
from rlreps.training.devices import devices_for_small_runs
from rlreps.workflows.ground_truths import STORE

Config = TypeVar("Config")
Rows = Sequence[Mapping[str, object]]
DoubleArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement beside what a run found.

    Attributes:
        statement: What it is about.
        stated: What the paper states, or its number; of an experiment of ours, the goal.
        found: What was found, or its number.
        holds: Whether what was found agrees; None where this run cannot tell.
    """

    statement: str
    stated: object
    found: object
    holds: bool | None


VERDICTS: Mapping[bool | None, str] = {
    True: "holds",
    False: "does not hold",
    None: "cannot be told",
}
"""``Claim.holds`` → what reports call it."""


NOT_RUN = "not run in this preset"
"""Found of a statement whose runs a preset leaves out."""


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Combine verdicts: False if one is, else None if one is or there is none, else True."""
    known = set(verdicts)
    return False if False in known else None if None in known or not known else True


def agrees(config: Config, paper: Config, free: Iterable[str] = ()) -> bool:
    """Return whether a configuration is that of the paper but for fields that are free to differ.

    Verdicts on a paper's statements need this; free are fields that change no run, or on which the
    paper is silent.
    """
    names = {field.name for field in dataclasses.fields(cast(Any, paper))} - {*free}
    return all(getattr(config, name) == getattr(paper, name) for name in names)


LEARNED = "judged: the mean distance ends below half of what it was at the start"
"""The yardstick of ``learned``, in words."""


def learned(start: Interval, end: Interval) -> bool | None:
    """Return whether a mean distance ends below half of what it was at the start."""
    return end.below(Interval(*(0.5 * part for part in start)))


def curve_rows(
    steps: npt.ArrayLike, runs: npt.ArrayLike, **described: object
) -> list[dict[str, object]]:
    """Aggregate distances [runs, p] at each step [p], a row of a result file for each."""
    found = aggregate(runs, within=(0.0, 1.0))
    count = found.pop("runs")
    return [
        {**described, "step": step, "runs": count, **dict(zip(found, parts, strict=True))}
        for step, *parts in zip(np.asarray(steps).tolist(), *found.values(), strict=True)
    ]


def table_of(
    rows: Rows, columns: Mapping[str, str | Callable[[Mapping[str, Any]], object]], caption: str
) -> Table:
    """Tabulate rows of a result file for the report.

    Args:
        rows: The rows.
        columns: Title → field, which a row may lack, or what to write for a row.
        caption: What the table shows.
    """
    cells = [
        [row.get(field) if isinstance(field, str) else field(row) for field in columns.values()]
        for row in rows
    ]
    return Table(list(columns), cells, caption)


MEANS: Mapping[str, str] = {
    "distance": "mean",
    "low": "mean_low",
    "high": "mean_high",
    "middle half": "interquartile_mean",
}
"""Columns of ``table_of`` for rows of aggregated distances."""


def diverged_of(row: Mapping[str, Any]) -> str:
    """Write how many runs of a row diverged, for ``table_of``."""
    return f"{row['diverged']} of {row['runs']}"


def aligned(
    exact: DoubleArray, learned: Mapping[str, npt.ArrayLike]
) -> tuple[dict[str, DoubleArray], dict[str, DoubleArray]]:
    """Rotate features [n, d] within their span onto exact components [n, d] (Procrustes).

    Returns:
        By name, the rotated features and the |cosine| of each with its exact component, [d].
    """
    target, maps = jnp.asarray(exact, jnp.float32), {}
    for name, features in learned.items():
        found = subspace.align(jnp.asarray(features, jnp.float32), target)
        maps[name] = np.asarray(found, np.float64)
    return maps, {name: np.abs(np.sum(each * exact, axis=0)) for name, each in maps.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """The claims, sections and summary of an experiment.

    Attributes:
        abstract: What the report says first.
        claims: Their table heads the first section.
        sections: Of the report, at least one.
        summary: JSON values of ``summary.json``, beside ``claims`` and ``report``.
    """

    abstract: str
    claims: Sequence[Claim]
    sections: Sequence[Section]
    summary: Mapping[str, Any]


@dataclasses.dataclass(eq=False)
class Run(Generic[Config]):
    """One run of an experiment.

    Attributes:
        config: The configuration.
        folder: Its folder.
        data: What ``check`` returned, else what ``load`` returned, else None.
        devices: Devices to share training out to; None is JAX's default device.
        progress: Whether to show progress bars.
        shared: What ``prepare`` returned.
        jobs: Cells to measure at a time, each in a process with its own share of the cores.
    """

    config: Config
    folder: RunFolder
    data: Any = None
    devices: Sequence[jax.Device] | None = None
    progress: bool = True
    shared: Any = None
    jobs: int = 1

    def measured(
        self,
        measure: Callable[["Run[Config]", str, Any], Any],
        cells: Mapping[str, Any],
        *,
        keep: bool,
        title: str,
        show: bool = True,
    ) -> dict[str, Any]:
        """Measure cells, ``jobs`` at a time; return name → measurement.

        Args:
            measure: As for ``Experiment``.
            cells: As what ``Experiment.cells`` returns.
            keep: Whether to keep measurements in ``parts``.
            title: Of the progress bar.
            show: Whether to show one even where one cell is measured at a time.
        """

        def one(run: Run[Config], name: str) -> Any:
            found = partial(measure, run, name, cells[name])
            return run.folder.part(name, found) if keep else found()

        # A worker has devices of its own.
        bare = dataclasses.replace(self, devices=None, progress=False, jobs=1)
        shares = self.devices is not None

        def in_worker(name: str) -> Any:
            devices = devices_for_small_runs() if shares else None
            return one(dataclasses.replace(bare, devices=devices), name)

        def in_turn() -> Generator[tuple[str, Any]]:
            for name in cells:
                advance(0, name)
                yield name, one(self, name)

        several = min(self.jobs, len(cells)) > 1
        shown = self.progress and (show or several)
        found: dict[str, Any] = {}
        with progress_bar(title, total=len(cells), unit="parts", show=shown) as advance:
            pairs = map_in_workers(in_worker, [*cells], self.jobs) if several else in_turn()
            with contextlib.closing(pairs):
                for name, each in pairs:
                    found[name] = each
                    advance(1, name)
        return {name: found[name] for name in cells}

    def training_folder(self, name: str, **described: Any) -> RunFolder:
        """Create or resume the folder ``runs/<name>`` of one training.

        Args:
            name: Of the folder.
            **described: JSON values that set this training apart from the experiment's others.

        Raises:
            InputError: If the folder holds something else.
        """
        return RunFolder.create_or_resume(
            self.folder.path / "runs" / name,
            kind=f"{self.folder.kind}-run",
            config={**as_json(described), "experiment": self.folder.config},
            provenance=self.folder.provenance,
        )

    def show(self, name: str, caption: str, rows: Rows | None, figure: Figure) -> tuple[Path, str]:
        """Write a figure and the numbers that it shows; return its path and caption.

        Args:
            name: Of the files ``figures/<name>.png`` and ``results/<name>.csv`` and ``.json``.
            caption: For the report.
            rows: As for ``write_rows``; None for a figure without numbers.
            figure: The figure.
        """
        if rows is not None:
            self.write_rows(name, rows)
        return save_figure(figure, self.folder.figures / f"{name}.png"), caption

    def write_rows(self, name: str, rows: Rows) -> None:
        """Write ``results/<name>.csv`` and ``.json``; see ``RunFolder.write_rows``."""
        self.folder.write_rows(name, rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(Generic[Config]):
    """An experiment as data; the module's docstring says how to write one.

    Attributes:
        name: What kind of run it is, as the command line spells it.
        title: Of the report, or a function of the configuration.
        paper: Where it comes from, such as a paper's section; said below the title.
        presets: Name → configuration.
        cells: Run → name → what is to be measured.
        measure: (run, name, cell) → measurement.
        report: (run, name → measurement) → findings.
        load: Path given as ``--data`` (or None) → data set with a ``fingerprint()``.
        check: (configuration, data set) → ``Run.data``; raises where they cannot be run.
        prepare: Run → ``Run.shared``.
        keeps_parts: Whether measurements are JSON values, kept in ``parts``.
        counts_cells: Whether to show a progress bar of cells, which show none of their own.
        stated: Heading of the column of what was stated.
        deviations: Field of the ``paper`` preset, dotted as in ``config.json``, or another part of
            the protocol → what the paper does, and why this does not.
    """

    name: str
    title: str | Callable[[Config], str]
    paper: str
    presets: Mapping[str, Config]
    cells: Callable[[Run[Config]], Mapping[str, Any]]
    measure: Callable[[Run[Config], str, Any], Any]
    report: Callable[[Run[Config], dict[str, Any]], Findings]
    load: Callable[[Path | None], Any] | None = None
    check: Callable[[Config, Any], Any] | None = None
    prepare: Callable[[Run[Config]], Any] | None = None
    keeps_parts: bool = True
    counts_cells: bool = False
    stated: str = "what the paper states"
    deviations: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run(
        self,
        config: Config,
        out: Path,
        *,
        data: Path | None = None,
        devices: Sequence[jax.Device] | None = None,
        progress: bool = True,
        jobs: int = 1,
    ) -> dict[str, Any]:
        """Run the experiment in a folder, resuming what was interrupted.

        Args:
            config: A preset, or another configuration.
            out: The folder: ``parts``, ``runs``, ``results``, ``figures``, ``report.html`` and
                ``summary.json``.
            data: The data set, for experiments that take one.
            devices: Devices to share training out to; None is JAX's default device. With several
                jobs each takes all that it sees in place of those given.
            progress: Whether to show progress bars.
            jobs: Cells to measure at a time on a CPU, each in a process with its own share of the
                cores; see ``map_in_workers``. Numbers differ by rounding where seeds lie on other
                devices for it, and times that a cell measures are those beside others.

        Returns:
            The summary: what ``Findings.summary`` says, ``claims`` and the ``report``'s path.

        Raises:
            InputError: If the data cannot be used, the folder holds another run, or there are more
                jobs than cores.
            WorkerDiedError: If one of several jobs died.
        """
        loaded = self.load(data) if self.load is not None else None
        described = as_json(config)
        if loaded is not None:
            described = {"data": loaded.fingerprint(), **described}
        finished = finished_summary(out, self.name, described)
        if finished is not None:
            return finished
        # Before the folder is made: what is refused leaves nothing behind.
        if jobs != 1:
            kind, most = jax.default_backend(), usable_cores()
            require(kind == "cpu", "jobs on a CPU alone", kind)
            require(1 <= jobs <= most, f"jobs in [1, {most}], the cores of the CPU", jobs)
        checked = self.check(config, loaded) if self.check is not None else loaded

        def compute(folder: RunFolder) -> dict[str, Any]:
            run = Run(config, folder, checked, devices, progress, jobs=jobs)
            run.shared = self.prepare(run) if self.prepare is not None else None
            found = run.measured(
                self.measure,
                self.cells(run),
                keep=self.keeps_parts,
                title=self.name,
                show=self.counts_cells,
            )
            return self._write(run, self.report(run, found))

        return complete_run(out, kind=self.name, config=described, compute=compute)

    def _write(self, run: Run[Config], findings: Findings) -> dict[str, Any]:
        """Write the report, whose first section starts with the claims; return the summary."""
        unknown = "cannot be told from this run"
        table = Table(
            ("", self.stated, "what was found", "holds?"),
            [
                (
                    each.statement,
                    each.stated,
                    each.found,
                    unknown if each.holds is None else each.holds,
                )
                for each in findings.claims
            ],
            f"{self.stated.capitalize()} and what was found.",
        )
        tables = [table]
        if self.deviations:
            caption = "Where the paper preset is not the paper's protocol."
            tables.append(Table(("", "deviation"), list(self.deviations.items()), caption))
        first, *others = findings.sections
        path = write_report(
            run.folder.path / "report.html",
            title=self.title if isinstance(self.title, str) else self.title(run.config),
            summary=f"{self.paper}\n\n{findings.abstract}",
            sections=[dataclasses.replace(first, tables=[*tables, *first.tables]), *others],
            config=run.folder.config,
            git_revision=run.folder.provenance.get("git_revision"),
            explorable=find_store(run.folder.path / STORE) is not None,
        )
        claims = [dataclasses.asdict(claim) for claim in findings.claims]
        return {**findings.summary, "claims": claims, "report": str(path)}


def print_claims(summary: Mapping[str, Any]) -> None:
    """Print a summary's claims beside what was found, and the report's path."""
    print("What is stated, and what was found")
    for claim in summary["claims"]:
        print(f"\n{printable(claim['statement'])}: {VERDICTS[claim['holds']]}")
        print(printable(f"  stated  {claim['stated']}"))
        print(printable(f"  found   {claim['found']}"))
    print(f"\nReport: {summary['report']}")


def in_path(name: str) -> str:
    """Spell a name in plain letters, as part of a path."""
    return re.sub(r"\W+", "-", name, flags=re.ASCII).strip("-")
