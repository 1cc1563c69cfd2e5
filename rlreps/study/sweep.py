"""Sweeps over a stored successor measure: what ``rlreps sweep`` runs.

Points whose learners differ only in numbers are trained in one compiled program.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax

from rlreps.app.job import Context, Printed
from rlreps.app.jobs.train import CHOICES as CHOICES
from rlreps.app.jobs.train import NAMES as NAMES
from rlreps.app.options import Repeated
from rlreps.config import as_json
from rlreps.formatting import format_number
from rlreps.report.table import Table
from rlreps.stats import (
    FEWEST_BANDED,
    format_interval,
    interval_columns,
    interval_of,
    mean_interval,
)
from rlreps.study import (
    SUBSPACE_DISTANCE,
    Axis,
    Curve,
    Experiment,
    Frame,
    Results,
    Run,
    TableRows,
    Tabulated,
)
from rlreps.study.experiment import StudyRun
from rlreps.study.grid import FieldValue, SweepConfig, option_of, parse_grid
from rlreps.study.results import POSSIBLE
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.store import MatrixStore, open_store
from rlreps.training import Learner, stack
from rlreps.training.config import TrainingConfig
from rlreps.training.on_store import (
    describe_matrix,
    ground_truth_for,
    learner_for,
    require_memory_for_runs,
    rounded_seconds,
    stored_problem,
    train_and_measure,
)

KIND = "sweep"

MATRIX = "data"
"""Key of the matrix in a sweep's configuration."""

_MEASURES = {
    "subspace_distance": "subspace_distances",
    "relative_excess_loss": "excess_losses",
}
"""Measure of a run → column that lists the values of all runs at a point."""


class GridRun(NamedTuple):
    """One run of a program: the index of its point in the grid, and its seed."""

    point: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that train in one compiled program.

    Attributes:
        config: The configuration of the first run; the other runs differ only in numbers and seeds.
        members: The runs, in the order of the grid's points and their seeds.
        learner: Their learners, numbers [members].
    """

    config: TrainingConfig
    members: tuple[GridRun, ...]
    learner: Learner


def groups_of(sweep: SweepConfig, make: Callable[[TrainingConfig], Learner]) -> list[Group]:
    """Group the runs of a sweep by program, in the order in which the grid first needs each."""
    found: dict[Any, list[tuple[GridRun, Learner]]] = {}
    for index, (_, config) in enumerate(sweep.points):
        learner = make(config)
        intervals = (config.evaluate_every, config.checkpoint_every)
        program = (jax.tree.structure(learner), config.states, intervals)
        for seed in config.seeds:
            found.setdefault(program, []).append((GridRun(index, seed), learner))
    return [
        Group(
            sweep.points[runs[0][0].point].config,
            tuple(member for member, _ in runs),
            stack([learner for _, learner in runs]),
        )
        for runs in found.values()
    ]


class Plan(NamedTuple):
    """What a sweep trains, and on what."""

    config: SweepConfig
    store: MatrixStore
    truth: GroundTruth
    groups: list[Group]

    def __reduce__(self) -> tuple[Callable[..., "Plan"], tuple[Any, ...]]:
        """Pickle what to train: another process reads the store."""
        return _plan, (self.config, self.store)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep(StudyRun):
    """Training runs at every point of a grid, as the cells of a study.

    A run that diverges stops no other run. It counts with the values of zero features, the worst
    possible. The summary has the ``points`` (see ``rows_of_points``).
    """

    takes: ClassVar = ("devices", "jobs")

    def describe(self) -> Mapping[str, Any]:
        return {MATRIX: describe_matrix(self.loaded), **as_json(self.config)}

    def check(self, context: Context) -> None:
        super().check(context)
        plan: Plan = self.checked_data
        for group in plan.groups:
            first = jax.tree.map(lambda number: number[0], group.learner)
            batch = 4 * group.config.rows * group.config.tasks
            require_memory_for_runs(first, len(group.members), context.devices, batch)
            problem = stored_problem(group.config, plan.store, plan.truth)
            first.check(problem.source)

    def show(self, summary: Mapping[str, Any]) -> Iterator[Printed]:
        """Yield every point of the grid, and the report's path."""

        def measured(row: Mapping[str, Any], name: str, runs: str) -> str:
            found = interval_of(row, name)
            if row["runs"] >= FEWEST_BANDED or math.isnan(found.low):
                return format_interval(found)
            listed = ", ".join(map(format_number, row[runs]))
            return f"{format_number(found.value)} (runs: {listed})"

        grid = self.config.grid
        cells = [
            (
                *(str(row[field]) for field in grid),
                *(row["runs"], row["diverged"]),
                *(measured(row, name, runs) for name, runs in _MEASURES.items()),
                *(row["group"], row["seconds"]),
            )
            for row in summary["points"]
        ]
        header = (*map(option_of, grid), "runs", "diverged", "distance", "excess loss", "group")
        about = "with 95 % intervals over runs, or below five runs with each of them"
        yield Table((*header, "group's seconds"), cells, f"Every point of the grid, {about}")
        yield f"Report: {summary['report']}"


def sweep(
    store: Path,
    grid: Repeated,
    config: TrainingConfig,
) -> Sweep:
    """Train at every point of a grid and gather one table; the same command resumes.

    Args:
        store: Folder of the store.
        grid: An option and its values, such as num-features=5,10 or learning-rate=1e-3,3e-4
            (numbers within a value are separated by spaces, as in "hidden=64 64,512"); repeat it
            for each option that is swept. The same option beside it has no effect.
        config: The configuration that all points share.
    """
    return sweep_over(SweepConfig(base=config, grid=parse_grid(grid)), store)


def sweep_over(config: SweepConfig, store: Path) -> Sweep:
    """Make the job of a sweep over a complete store."""
    return Sweep(experiment=experiment_of(config), config=config, data=store)


def experiment_of(config: SweepConfig) -> Experiment[SweepConfig]:
    """Return a sweep as an experiment.

    The horizontal axis of its figure is the first field with several numbers; each combination of
    the other fields' values has a line. Without such a field, the figure has a place for each value
    of the first field with several values.
    """
    several = [name for name, values in config.grid.items() if len(values) > 1]
    numbers = [name for name in several if _is_numeric(config.grid[name])]
    field = [*numbers, *several, *config.grid][0]
    values: Sequence[Any] = config.grid[field]
    numeric = _is_numeric(values)
    wide = numeric and min(values) > 0 and max(values) / min(values) >= 10.0
    names = {} if numeric else {"x_ticks": {at: str(name) for at, name in enumerate(values)}}

    def frame(run: Run[SweepConfig], group: Group, found: Mapping[str, Any]) -> Frame:
        """Give every run a row, with its place on the figure."""
        rows = []
        for member, measured in zip(group.members, found["members"], strict=True):
            given = config.points[member.point].values
            others = [f"{option_of(name)} = {given[name]}" for name in given if name != field]
            rows.append(
                {
                    "point": member.point,
                    "seed": member.seed,
                    "place": given[field] if numeric else values.index(given[field]),
                    "line": ", ".join(others),
                    **{name: found[name] for name in ("group", "seconds")},
                    **{name: measured[name] for name in ("diverged", *_MEASURES)},
                }
            )
        return Frame.of(rows)

    return Experiment(
        name=KIND,
        title=f"Sweep over {', '.join(map(option_of, config.grid))}",
        paper="",
        presets={},
        load=lambda path: open_store(path or Path()),
        check=_plan,
        cells=lambda run: {str(at): group for at, group in enumerate(run.data.groups, start=1)},
        measure=_measure,
        keeps_parts=False,
        frame=frame,
        value=SUBSPACE_DISTANCE,
        sections={
            "Final distances": [
                _EXPLANATION,
                Tabulated(
                    name="points",
                    caption="Every point of the grid, with 95 % intervals over runs.",
                    rows=rows_of_points,
                    columns=[*config.grid, "runs", "diverged", *_MEASURES, "group", "seconds"],
                ),
                Curve(
                    name=KIND,
                    caption="Subspace distance after training at every point of the grid.",
                    x=Axis("place", option_of(field), log=wide, ticks=numeric),
                    line="line",
                    rows=rows_of_points,
                    axes=names,
                ),
            ]
        },
    )


_EXPLANATION = (
    "A run that diverges counts with distance 1 and the excess loss of zero features, the worst "
    "possible values. Intervals are Student's, and longer on the side of a long tail. Each is of "
    "one point: the best of many points is by chance better than its mean, so train it again with "
    "other seeds before you publish it. The runs of one group train in one program; its seconds "
    "are the total over these runs."
)


def _plan(config: SweepConfig, store: MatrixStore) -> Plan:
    """Group the points by program."""
    truth = ground_truth_for(store.path, max(point.config.num_features for point in config.points))

    def make(point: TrainingConfig) -> Learner:
        return learner_for(point, truth, store.shape[1], resets_diverged=True)

    return Plan(config, store, truth, groups_of(config, make))


def _measure(run: Run[SweepConfig], name: str, group: Group) -> dict[str, Any]:
    """Train a group, and measure every run of it."""
    problem = stored_problem(group.config, run.data.store, run.data.truth)
    result, measures = train_and_measure(
        group.config,
        group.learner,
        problem,
        run.training_folder(name),
        seeds=[member.seed for member in group.members],
        devices=run.devices,
        description=f"group {name}",
    )
    diverged = result.history[-1]["diverged"]
    # A run that diverged has zero features, and therefore the worst measures.
    members = [
        {"diverged": bool(bad), **measured}
        for bad, measured in zip(diverged, measures, strict=True)
    ]
    return {"group": int(name), **rounded_seconds(result), "members": members}


def rows_of_points(results: Results[SweepConfig]) -> TableRows:
    """Collect a row for each point of the grid, in the grid's order.

    Returns:
        Rows of the swept fields' values; ``runs`` and the number that ``diverged``; means of the
        final ``subspace_distance`` and ``relative_excess_loss`` with their 95 % intervals (None for
        one run, and for an excess without meaning); ``subspace_distances`` and ``excess_losses`` of
        all runs; the ``group`` that trained them, from 1, and the ``seconds`` that the group's runs
        took together.
    """
    rows = []
    for index, point in enumerate(results.config.points):
        part = results.frame.where(point=index)
        row: dict[str, Any] = {
            **point.values,
            "runs": len(part),
            "diverged": int(part["diverged"].sum()),
        }
        for name, column in _MEASURES.items():
            values = part[name].tolist()
            # Zero distance to the best features leaves no excess to compare.
            ends: dict[str, Any] = {f"{name}_low": None, f"{name}_high": None}
            if None not in values:
                ends = interval_columns(name, mean_interval(values).within(*POSSIBLE[name]))
            row |= {name: None, **ends, column: values}
        rows.append({**row, **part.rows("group", "seconds")[0]})
    return rows


def _is_numeric(values: Sequence[FieldValue]) -> bool:
    return not any(isinstance(value, str) for value in values)
