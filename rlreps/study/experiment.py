"""An experiment as data, and what runs it: folder, resumption, report, summary.

One file holds the science of an experiment and ends with one ``Experiment``, which
``rlreps.experiments.EXPERIMENTS`` names. docs/CONTRIBUTING.md has a complete one.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import jax

from rlreps.app.job import Context, Job, Printed, run_job
from rlreps.config import as_json
from rlreps.errors import printable, require
from rlreps.numerics import largest_even_share, usable_cores
from rlreps.report import page
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import hidden, progress_bar
from rlreps.runs.workers import local_pool, map_names
from rlreps.stats import VERDICTS
from rlreps.study.claims import Claims, JudgedClaim
from rlreps.study.configurations import follows, list_changed_fields, scalars
from rlreps.study.figures import Curve, Drawn, Shown
from rlreps.study.frame import Frame
from rlreps.study.results import Metric, Results, text_of
from rlreps.study.tables import Tabulated
from rlreps.successor.truth.store import STORE, find_store
from rlreps.training.devices import devices_for_small_runs

Config = TypeVar("Config")

OWN = "Our own experiment."


def product_cells(template: str, **axes: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Make a cell for every combination of values, named by a template such as "{arena}-{seed}"."""
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    named = {in_path(template.format(**cell)): cell for cell in cells}
    require(len(named) == len(cells), f"cells with different names by {template!r}", [*named])
    return named


def make_frame(_: "Run[Any]", cell: Any, found: Mapping[str, Any]) -> Frame:
    """Take the measurement's ``frame``, or make one of ``values`` along ``axes``.

    A cell that is a mapping adds columns to the latter.
    """
    made: Frame | None = found.get("frame")
    if made is not None:
        return made
    about = cell if isinstance(cell, Mapping) else {}
    return Frame.grid(found["values"], **about, **found.get("axes", {}))


Part: TypeAlias = str | Callable[[Results[Any]], str] | Curve | Drawn | Tabulated
"""Paragraphs, or a function that writes them; a figure or a table."""


def section(title: str, parts: Iterable[Part], results: Results[Any]) -> page.Section:
    """Make a section of the report and write its files: first texts, then tables, then figures."""
    texts: list[str] = []
    shown: list[Table | Shown] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(text_of(part, results))
        elif isinstance(part, Curve | Drawn | Tabulated):
            shown += part.show(results)
        else:
            texts.append(part(results))
    return page.Section(
        title=title,
        text="\n\n".join(filter(None, texts)),
        figures=[each for each in shown if not isinstance(each, Table)],
        tables=[each for each in shown if isinstance(each, Table)],
    )


@dataclasses.dataclass(eq=False)
class Run(Generic[Config]):
    """One run of an experiment.

    Attributes:
        data: What ``check`` returned, else what ``load`` returned, else None.
        devices: As for ``Context``, like ``jobs`` and ``executor``.
        shared: What ``prepare`` returned.
    """

    config: Config
    folder: RunFolder
    data: Any = None
    devices: Sequence[jax.Device] | None = None
    shared: Any = None
    jobs: int = 1
    executor: Executor | None = None

    def measured(
        self,
        measure: Callable[["Run[Config]", str, Any], Any],
        cells: Mapping[str, Any],
        *,
        keep: bool,
        title: str,
    ) -> dict[str, Any]:
        """Measure cells, ``jobs`` at a time or on the executor; return name → measurement.

        One progress bar counts the cells if measurements are kept or if several cells are measured
        at a time. Otherwise each training shows its own progress bar.

        Args:
            measure: As for ``Experiment``.
            cells: As returned by ``Experiment.cells``.
            keep: Whether to keep measurements in ``parts``.
            title: Title of the progress bar.
        """
        waiting = [name for name in cells if not (keep and self.folder.has_part(name))]
        jobs = min(self.jobs, len(waiting))
        run, several = self, self.executor is not None or jobs > 1
        if several:  # A worker may have another working folder, and has its own devices.
            folder = RunFolder(self.folder.path.absolute())
            run = dataclasses.replace(self, folder=folder, devices=None, jobs=1, executor=None)
        counted, shares = keep or several, several and len(self.devices or ()) > 1

        def one(name: str) -> Any:
            own = dataclasses.replace(run, devices=devices_for_small_runs()) if shares else run
            with hidden(counted):
                return measure(own, name, cells[name])

        def in_turn() -> Generator[tuple[str, Any]]:
            for name in waiting:
                advance(0, name)
                yield name, one(name)

        found: dict[str, Any] = {}
        done = len(cells) - len(waiting)
        with contextlib.ExitStack() as stack:
            bar = progress_bar(title, total=len(cells), done=done, unit="parts", show=counted)
            advance, pairs = stack.enter_context(bar), in_turn()
            if several:
                pool = self.executor or stack.enter_context(local_pool(jobs))
                pairs = map_names(one, waiting, pool)
            for name, each in stack.enter_context(contextlib.closing(pairs)):
                found[name] = self.folder.part(name, partial(dict, each)) if keep else each
                advance(1, name)
        # What an interrupted run had measured is read.
        found |= {name: self.folder.part(name, dict) for name in cells if name not in found}
        return {name: found[name] for name in cells}

    def training_folder(self, name: str, **described: Any) -> RunFolder:
        """Create or resume the folder ``runs/<name>`` of one training.

        Args:
            name: Name of the folder.
            **described: JSON values that distinguish this training from the experiment's others.

        Raises:
            InputError: If the folder holds something else, or this machine does not see the run's.
        """
        RunFolder(self.folder.path)
        return RunFolder.create_or_resume(
            self.folder.path / "runs" / name,
            kind=f"{self.folder.kind}-run",
            config={**as_json(described), "experiment": self.folder.config},
            provenance=self.folder.provenance,
        )

    def training(
        self,
        name: str,
        steps: int,
        evaluations: int,
        *,
        every: int = 5,
        title: str | None = None,
        members: int | None = None,
        **described: Any,
    ) -> dict[str, Any]:
        """Return the arguments of ``train`` that all trainings of this run share.

        Args:
            name: Name of its folder.
            steps: Number of updates.
            evaluations: Number of evaluations after the one before the first update.
            every: Evaluations from one checkpoint to the next.
            title: Title of its progress bar; by default the name.
            members: Number of runs, to distribute whole runs over devices; by default, the rows of
                each batch are distributed.
            **described: Further arguments of ``training_folder``.
        """
        devices = self.devices
        return {
            "steps": steps,
            "evaluate_every": steps // evaluations,
            "checkpoint_every": every * (steps // evaluations),
            "folder": self.training_folder(name, **described),
            "devices": devices and largest_even_share(devices, members) if members else devices,
            "description": title or name.replace("-", " "),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(Generic[Config]):
    """An experiment as data.

    Attributes:
        name: The kind of run, as the command line spells it.
        title: Title of the report.
        paper: Its source, such as a paper's section, shown below the title; by default, the
            experiment is our own, and its statements are goals.
        presets: Name → configuration, a frozen dataclass: smoke, laptop, paper. Its fields decide
            the result and identify the run's folder. Nothing checks presets: they are code.
        cells: Run → name of a cell and of its file → what ``measure`` needs. Runs that one program
            can train together form one cell.
        measure: (run, name, cell) → measurement, kept as JSON in ``parts``: a resumed run measures
            only what is missing. A cell that trains does so in ``run.training_folder(name, ...)``.
        value: Default measure of figures, tables and samples.
        frame: (run, cell, measurement) → measurements in long form: a row for each method, d, seed
            and step. By default, the measurement's ``frame`` or, if it is kept, ``Frame.grid`` of
            its ``values`` and ``axes``, with the cell's entries as columns.
        unit: Column of the frame by which samples are paired.
        fewest: Least number of units for a verdict.
        sections: Title → content of a section of the report: paragraphs, figures (``Curve``,
            ``Drawn``) and tables (``Tabulated``, ``tabulate_summary``, ``tabulate_wide``). Texts
            may name fields of the configuration. The claims head the first section.
        claims: Statements and their verdicts, such as ``r.end(method=A) < r.end(method=B)``.
        decided_on: The only configuration that decides claims, such as a paper's protocol; by
            default, every configuration decides them.
        free: Fields in which a configuration may differ from ``decided_on``, dotted as in
            ``config.json``.
        decides: Results → whether they can decide claims, judged by more than the configuration,
            such as by the data set.
        load: Path given as ``--data`` (or None) → data set with a ``fingerprint()``.
        check: (configuration, data set) → ``Run.data``; raises if they cannot be run.
        prepare: Run → ``Run.shared``.
        options: Name of an option of its command → (configuration, the option's text) → the changed
            configuration.
        keeps_parts: Whether to keep measurements in ``parts``. Otherwise a measurement may be any
            object, and a resumed run measures every cell again; training still resumes from its
            checkpoints.
        stated: Heading of the column of statements, if it is another than these.
        deviations: Field of the ``paper`` preset, dotted as in ``config.json``, or another part of
            the protocol → what the paper does, and why the preset does not.
    """

    name: str
    title: str
    presets: Mapping[str, Config]
    cells: Callable[[Run[Config]], Mapping[str, Any]]
    measure: Callable[[Run[Config], str, Any], Any]
    value: Metric
    sections: Mapping[str, Sequence[Part]]
    paper: str = OWN
    frame: Callable[[Run[Config], Any, Any], Frame] = make_frame
    unit: str = "seed"
    fewest: int = 2
    claims: Claims = ()
    decided_on: Config | None = None
    free: Collection[str] = ()
    decides: Callable[[Results[Config]], bool] | None = None
    load: Callable[[Path | None], Any] | None = None
    check: Callable[[Config, Any], Any] | None = None
    prepare: Callable[[Run[Config]], Any] | None = None
    options: Mapping[str, Callable[[Config, str], Config]] = dataclasses.field(default_factory=dict)
    keeps_parts: bool = True
    stated: str = ""
    deviations: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run(
        self,
        config: Config,
        out: Path,
        *,
        data: Path | None = None,
        devices: Sequence[jax.Device] | None = None,
        jobs: int = 1,
        executor: Executor | None = None,
    ) -> dict[str, Any]:
        """Run the experiment in a folder, resuming an interrupted run.

        Args:
            config: A preset, or another configuration.
            out: The folder: ``parts``, ``runs``, ``results``, ``figures``, ``report.html`` and
                ``summary.json``.
            data: The data set, for experiments that take one.
            devices: As for ``run_job``. With several jobs, each job uses all devices that it sees.
            jobs: Number of cells to measure at a time on a CPU; see ``local_pool``. Numbers may
                differ by rounding if several jobs place the seeds on other devices. Measured times
                include the slowdown by other jobs.
            executor: As for ``run_job``. Cells that train share the disk of ``out``.

        Returns:
            The summary: rows of named tables, ``claims`` and the ``report``'s path.

        Raises:
            InputError: If the data cannot be used, the folder holds another run, there are more
                jobs than cores, or several jobs and an executor.
            WorkerDiedError: If a worker died.
        """
        job = StudyRun(experiment=self, config=config, data=data)
        return run_job(job, out, devices=devices, jobs=jobs, executor=executor)

    def results(
        self, run: Run[Config], found: Mapping[str, Any], frames: Mapping[str, Frame]
    ) -> Results[Config]:
        """Return the results of cells, given their measurements and frames by name."""
        named = scalars([as_json(each) for each in self.presets.values()])
        return Results(run, found, frames, self.value, self.unit, self.fewest, named)

    def judged(self, results: Results[Config]) -> list[JudgedClaim]:
        """Judge the claims."""
        decided = self.decided_on is None or follows(results.config, self.decided_on, self.free)
        decided = decided and (self.decides is None or self.decides(results))
        claims = self.claims(results) if callable(self.claims) else self.claims
        return [each.judged(results, decided=decided) for each in claims]

    def tables_of_claims(self, run: Run[Config], claims: Sequence[JudgedClaim]) -> list[Table]:
        """Tabulate claims, deviations, and the run's differences from the protocol."""
        unknown = "cannot be told from this run"
        rows: list[tuple[Any, ...]] = [
            (each.statement, each.stated, each.found, unknown if each.holds is None else each.holds)
            for each in claims
        ]
        stated = self.stated or ("our goal" if self.paper == OWN else "what the paper states")
        header = ("", stated, "what was found", "holds?")
        caption = f"{stated.capitalize()} and what was found."
        tables = [Table(header, rows, caption)] if rows else []
        if self.deviations:
            caption = "Where the paper preset differs from the paper's protocol."
            tables.append(Table(("", "deviation"), list(self.deviations.items()), caption))
        protocol = self.decided_on
        changed = {} if protocol is None else list_changed_fields(run.config, protocol)
        if changed:
            rows = [(name, str(theirs), str(ours)) for name, (theirs, ours) in changed.items()]
            caption = "Changes of this run from the paper's protocol, and all fields that are free."
            tables.append(Table(("setting", "paper preset", "this run"), rows, caption))
        return tables


Judged: TypeAlias = tuple[Results[Any], list[JudgedClaim]]
"""The results of a finished run, and its claims."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyRun(Job[Judged]):
    """An experiment with a configuration, as a job; it finds results and the judged claims."""

    experiment: Experiment[Any]
    config: Any
    data: Path | None = None

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Return the experiment's name."""
        return self.experiment.name

    @cached_property
    def loaded(self) -> Any:
        """Load the data set."""
        load = self.experiment.load
        return None if load is None else load(self.data)

    @cached_property
    def checked_data(self) -> Any:
        """Check the configuration and the data set; return ``Run.data``."""
        check = self.experiment.check
        return self.loaded if check is None else check(self.config, self.loaded)

    def describe(self) -> Mapping[str, Any]:
        described: dict[str, Any] = as_json(self.config)
        if self.loaded is None:
            return described
        return {"data": self.loaded.fingerprint(), **described}

    def check(self, context: Context) -> None:
        if context.jobs != 1:
            require(context.executor is None, "jobs or an executor", "both")
            kind, most = jax.default_backend(), usable_cores()
            require(kind == "cpu", "jobs on a CPU alone", kind)
            known = 1 <= context.jobs <= most
            require(known, f"jobs in [1, {most}], the cores of the CPU", context.jobs)
        _ = self.checked_data

    def compute(self, folder: RunFolder, context: Context) -> Judged:
        experiment = self.experiment
        run = Run(self.config, folder, self.checked_data, **context._asdict())
        run.shared = experiment.prepare(run) if experiment.prepare is not None else None
        cells = experiment.cells(run)
        found = run.measured(
            experiment.measure, cells, keep=experiment.keeps_parts, title=experiment.name
        )
        frames = {name: experiment.frame(run, cell, found[name]) for name, cell in cells.items()}
        results = experiment.results(run, found, frames)
        return results, experiment.judged(results)

    def report(self, folder: RunFolder, found: Judged) -> page.Page:
        """Write every figure and table; the claims head the first section."""
        results, claims = found
        experiment = self.experiment
        first, *others = [section(*part, results) for part in experiment.sections.items()]
        tables = experiment.tables_of_claims(results.run, claims)
        return page.Page(
            title=experiment.title,
            summary=f"{experiment.paper}\n\n{count_verdicts(claims) if claims else ''}",
            sections=[dataclasses.replace(first, tables=[*tables, *first.tables]), *others],
            explorable=find_store(folder.path / STORE) is not None,
        )

    def summarise(self, found: Judged) -> Mapping[str, Any]:
        results, claims = found
        return {
            **{name: results.rows[name] for name in results.tables},
            "claims": [dataclasses.asdict(claim) for claim in claims],
        }

    def show(self, summary: Mapping[str, Any]) -> Iterator[Printed]:
        """Yield the claims beside their findings, and the report's path."""
        if summary["claims"]:
            yield "What is stated, and what was found"
        for claim in summary["claims"]:
            yield f"\n{printable(claim['statement'])}: {VERDICTS[claim['holds']]}"
            yield printable(f"  stated  {claim['stated']}")
            yield printable(f"  found   {claim['found']}")
        yield f"\nReport: {summary['report']}"


def count_verdicts(claims: Sequence[JudgedClaim]) -> str:
    """State how many claims hold, fail or remain undecided."""
    verdicts = [each.holds for each in claims]
    said = [f"{verdicts.count(each)} {VERDICTS[each]}" for each in VERDICTS if each in verdicts]
    return f"Statements: {', '.join(said)}."


def in_path(name: str) -> str:
    """Spell a name in plain letters, as part of a path."""
    return re.sub(r"\W+", "-", name, flags=re.ASCII).strip("-")
