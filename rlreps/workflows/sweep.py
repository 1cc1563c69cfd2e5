"""Sweeps over a stored successor measure: what ``rlreps sweep`` runs.

Points whose learners differ only in numbers are trained in one compiled program.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from rlreps.config import as_json
from rlreps.plotting import Line, plot_curves, save_figure
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table, finite_or_none, format_number, with_interval
from rlreps.runs.contrasts import as_columns
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.runs.intervals import Interval, mean_interval
from rlreps.successor.store import open_store
from rlreps.training import Learner, stack
from rlreps.training.devices import make_placement
from rlreps.workflows.grid import FieldValue, SweepConfig, as_text, flag_of
from rlreps.workflows.train import (
    MATRIX,
    TrainingConfig,
    describe_matrix,
    describe_place,
    ground_truth_for,
    learner_for,
    rounded_seconds,
    stored_problem,
    train_and_measure,
)

KIND = "sweep"


class Member(NamedTuple):
    """One run of a program: the index of its point in the grid, and its seed."""

    point: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that one compiled program trains.

    Attributes:
        config: The configuration of the first run; others differ only in numbers and seeds.
        members: The runs, in the order of the grid's points and their seeds.
        learner: Their learners, numbers [members].
    """

    config: TrainingConfig
    members: tuple[Member, ...]
    learner: Learner


def groups_of(sweep: SweepConfig, make: Callable[[TrainingConfig], Learner]) -> list[Group]:
    """Group the runs of a sweep by program, in the order in which the grid first needs each."""
    found: dict[Any, list[tuple[Member, Learner]]] = {}
    for index, (_, config) in enumerate(sweep.points):
        learner = make(config)
        intervals = (config.evaluate_every, config.checkpoint_every)
        program = (jax.tree.structure(learner), config.states, intervals)
        for seed in config.seeds:
            found.setdefault(program, []).append((Member(index, seed), learner))
    return [
        Group(
            sweep.points[runs[0][0].point].config,
            tuple(member for member, _ in runs),
            stack([learner for _, learner in runs]),
        )
        for runs in found.values()
    ]


def run_sweep(
    config: SweepConfig,
    store_path: Path,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, Any]:
    """Train at every point of a grid in a folder, resuming an interrupted sweep.

    A run that diverges stops no other run. It counts with the worst possible values, those of zero
    features.

    Args:
        config: The sweep.
        store_path: A complete store.
        out: The sweep's folder: a folder a program under ``groups/``, ``results/sweep.csv`` and
            ``.json``, ``figures/sweep.png``, ``report.html`` and ``summary.json``.
        devices: Where to train, as for ``run_training``.

    Returns:
        The summary: ``fields``, the ``points`` as rows of the table (see ``gather``), ``groups``,
        ``seconds`` of training, ``compile_seconds`` and the path of the ``report``.

    Raises:
        InputError: If the store, the folder or a point is invalid, before the first file is
            written.
    """
    store = open_store(store_path)
    matrix = {MATRIX: describe_matrix(store)}
    described = {**matrix, **as_json(config)}
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    largest = max(point.config.num_features for point in config.points)
    truth = ground_truth_for(store_path, largest)
    groups = groups_of(
        config, lambda each: learner_for(each, truth, store.shape[1], resets_diverged=True)
    )
    for group in groups:
        make_placement(devices, len(group.members))
        first = jax.tree.map(lambda number: number[0], group.learner)
        with stored_problem(group.config, store, truth) as problem:
            first.check(problem.source)

    def train(index: int, group: Group, out: Path) -> dict[str, Any]:
        """Return the summary of a group, trained if it has not been."""

        def compute(own: RunFolder) -> dict[str, Any]:
            with stored_problem(group.config, store, truth) as problem:
                result, measures = train_and_measure(
                    group.config,
                    group.learner,
                    problem,
                    own,
                    seeds=[member.seed for member in group.members],
                    devices=devices,
                    description=f"group {index}",
                )
            diverged = result.history[-1]["diverged"]
            found = zip(result.seeds, diverged, measures, strict=True)
            return {
                **rounded_seconds(result),
                # A run that diverged has zero features, and so the worst measures.
                "members": [
                    {"seed": seed, "diverged": bool(bad), **measured}
                    for seed, bad, measured in found
                ],
            }

        members = [
            {"seed": seed, **as_json(config.points[point].values)} for point, seed in group.members
        ]
        described = {**matrix, **as_json(group.config), "members": members}
        return complete_run(out, kind=f"{KIND}_group", config=described, compute=compute)

    def compute(folder: RunFolder) -> dict[str, Any]:
        results = [
            train(index, group, folder.path / "groups" / f"{index:03d}")
            for index, group in enumerate(groups, start=1)
        ]
        rows = gather(config, groups, results)
        return {
            "fields": list(config.grid),
            "points": rows,
            "groups": len(results),
            "seconds": round(sum(result["seconds"] for result in results), 3),
            "compile_seconds": round(sum(result["compile_seconds"] for result in results), 3),
            "report": str(write_sweep_report(config, folder, rows)),
        }

    origin = describe_place(store_path, out)
    return complete_run(out, kind=KIND, config=described, compute=compute, origin=origin)


_MEASURES = {
    "distance": ("subspace_distance", "subspace_distances"),
    "excess loss": ("relative_excess_loss", "excess_losses"),
}
"""Title → measure of a run, and column of the values of all runs at a point."""


def gather(
    config: SweepConfig, groups: Sequence[Group], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Collect one row a point of the grid, in the grid's order, from the groups' summaries.

    Returns:
        Rows of the swept fields' values (several numbers as text); ``runs`` and the number that
        ``diverged``; means of the final ``subspace_distance`` and ``relative_excess_loss`` with
        their 95 % intervals (None for one run, and for an excess without meaning);
        ``subspace_distances`` and ``excess_losses`` of all runs; the ``group`` that trained them,
        from 1, and the ``seconds`` that the group's runs took together.
    """
    rows: list[dict[str, Any]] = [
        {field: _cell(value) for field, value in point.values.items()} for point in config.points
    ]
    for number, (group, result) in enumerate(zip(groups, results, strict=True), start=1):
        runs: dict[int, list[Mapping[str, Any]]] = {}
        for member, figures in zip(group.members, result["members"], strict=True):
            runs.setdefault(member.point, []).append(figures)
        for point, found in runs.items():
            row = rows[point]
            row |= {"runs": len(found), "diverged": sum(run["diverged"] for run in found)}
            for name, column in _MEASURES.values():
                values = [run[name] for run in found]
                none = Interval(None, None, None)
                interval = none if None in values else mean_interval(values)
                if name == "subspace_distance":
                    interval = interval.within(0.0, 1.0)
                row |= {key: finite_or_none(end) for key, end in as_columns(name, interval).items()}
                row[column] = values
            row |= {"group": number, "seconds": result["seconds"]}
    return rows


def _cell(value: FieldValue) -> Any:
    return as_text(value) if isinstance(value, tuple) else value


def sweep_table(fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Tabulate every point of a grid."""
    cells = [
        (
            *(as_text(row[field]) for field in fields),
            *(row["runs"], row["diverged"]),
            *(with_interval(row, name, row[runs]) for name, runs in _MEASURES.values()),
            *(row["group"], row["seconds"]),
        )
        for row in rows
    ]
    header = (*map(flag_of, fields), "runs", "diverged", *_MEASURES, "group", "group's seconds")
    said = "with 95 % intervals over runs, or below five runs with each of them"
    return Table(header, cells, f"Every point of the grid, {said}")


def write_sweep_report(
    config: SweepConfig, folder: RunFolder, rows: Sequence[Mapping[str, Any]]
) -> Path:
    """Write the numbers, the figure and the report; returns the path of ``report.html``."""
    folder.write_rows(KIND, rows)
    figure = save_figure(draw_sweep(config, rows), folder.figures / f"{KIND}.png")
    fields = list(config.grid)
    runs, diverged = (sum(row[name] for row in rows) for name in ("runs", "diverged"))
    best = min(rows, key=lambda row: row["subspace_distance"])
    place = ", ".join(f"{flag_of(name)} = {as_text(best[name])}" for name in fields)
    return write_report(
        folder.path / "report.html",
        title=f"Sweep over {', '.join(map(flag_of, fields))}",
        summary=(
            f"{runs} runs at {len(rows)} points, of which {diverged or 'none'} diverged. The "
            f"lowest mean distance is {format_number(best['subspace_distance'])}, at {place}."
        ),
        sections=[
            Section(
                title="Final distances",
                text=_EXPLANATION,
                tables=[sweep_table(fields, rows)],
                figures=[
                    (
                        figure,
                        "Subspace distance after training at every point of the grid; a cross "
                        "marks points where runs diverged.",
                    )
                ],
            )
        ],
        config=folder.config,
        provenance=folder.provenance,
    )


_EXPLANATION = (
    "A run that diverges counts with distance 1 and the excess loss of zero features, the worst "
    "possible values. 95 % intervals over runs are Student's; fewer than five runs are shown "
    "themselves. The runs of one group were trained in one program, and its seconds are those of "
    "all of them together."
)


def draw_sweep(config: SweepConfig, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw distance against the first field with several numbers, a line for the others' values.

    Without such a field, the values of the first field with several stand side by side.
    """
    several = [name for name, values in config.grid.items() if len(values) > 1]
    numbers = [name for name in several if _is_numeric(config.grid[name])]
    field = [*numbers, *several, *config.grid][0]
    others = [name for name in config.grid if name != field]
    numeric, order = _is_numeric(config.grid[field]), list(map(_cell, config.grid[field]))
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        label = ", ".join(f"{flag_of(name)} = {as_text(row[name])}" for name in others)
        groups.setdefault(label, []).append(row)
    lines = []
    for label, points in groups.items():
        if numeric:
            points.sort(key=lambda row: float(row[field]))
        distances = [point["subspace_distances"] for point in points]
        lines.append(
            Line.of_runs(
                label,
                [point[field] if numeric else order.index(point[field]) for point in points],
                # Points may differ in their numbers of runs.
                [*itertools.zip_longest(*distances, fillvalue=np.nan)],
                within=(0.0, 1.0),
                crossed=[point["diverged"] > 0 for point in points],
            )
        )
    places = sorted({*order}) if numeric else {at: as_text(name) for at, name in enumerate(order)}
    return plot_curves(
        lines,
        x_label=flag_of(field),
        y_label="subspace distance",
        log_x=numeric and _is_wide(order, 10.0),
        log_y=_is_wide([row["subspace_distance"] for row in rows], 3.0),
        x_ticks=places,
    )


def _is_wide(values: Sequence[float], ratio: float) -> bool:
    """Tell whether positive values are so far apart that their axis is logarithmic."""
    return min(values) > 0 and max(values) / min(values) >= ratio


def _is_numeric(values: Sequence[FieldValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def print_sweep(summary: Mapping[str, Any]) -> None:
    """Print every point of a sweep's grid, and the report's path."""
    sweep_table(summary["fields"], summary["points"]).print()
    print(f"Report: {summary['report']}")
