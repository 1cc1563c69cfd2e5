"""The table, the figure and the report of a sweep."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rlreps.configs.sweep import FieldValue, GridAxis, SweepConfig, as_text, flag_of
from rlreps.experiments.results import write_results
from rlreps.plotting import Line, plot_sweep
from rlreps.report.page import Section, Table, format_number, write_report
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate
from rlreps.workflows.sweep.grid import Group

NAME = "sweep"
_STATISTICS = tuple(
    f"{name}{end}" for name in ("mean", "interquartile_mean") for end in ("", "_low", "_high")
)


def gather(
    config: SweepConfig, groups: Sequence[Group], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One row a point of the grid, in the grid's order.

    Args:
        config: The sweep.
        groups: Its groups.
        results: Their summaries.

    Returns:
        Rows of the swept fields' values (several numbers as text); ``runs`` and how many of them
        ``diverged``; mean and interquartile mean of the final ``subspace_distance`` and
        ``excess_loss`` with their 95 % intervals (see ``statistics.aggregate``; None where there
        is one run, and for an excess that means nothing); the ``group`` that trained them, from 1,
        how many ``runs_together``, and the ``seconds`` which those took together.
    """
    runs: dict[int, list[Mapping[str, Any]]] = {}
    trained: dict[int, dict[str, Any]] = {}
    for number, (group, result) in enumerate(zip(groups, results, strict=True), start=1):
        for member, figures in zip(group.members, result["members"], strict=True):
            runs.setdefault(member.point, []).append(figures)
            trained[member.point] = {
                "group": number,
                "runs_together": len(group.members),
                "seconds": result["seconds"],
            }
    return [
        {
            **{field: _cell(value) for field, value in point.values.items()},
            "runs": len(runs[index]),
            "diverged": sum(run["diverged"] for run in runs[index]),
            **_aggregated("subspace_distance", [run["subspace_distance"] for run in runs[index]]),
            **_aggregated("excess_loss", [run["relative_excess_loss"] for run in runs[index]]),
            **trained[index],
        }
        for index, point in enumerate(config.points)
    ]


def _aggregated(prefix: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """Aggregates over runs; None where a run has no value, and for ends that one run has not."""
    found: dict[str, Any] = dict.fromkeys(_STATISTICS)
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        aggregates = aggregate(known)
        found = {name: aggregates[name] for name in _STATISTICS}
    return {
        f"{prefix}_{name}": None if value is None or math.isnan(value) else value
        for name, value in found.items()
    }


def _cell(value: FieldValue) -> Any:
    return as_text(value) if isinstance(value, tuple) else value


def write_sweep_report(
    config: SweepConfig, folder: RunFolder, rows: Sequence[Mapping[str, Any]]
) -> Path:
    """Writes the numbers, the figure and the report; returns the path of ``report.html``."""
    figure = draw_sweep(config, rows)
    write_results(folder, NAME, rows, figure)
    fields = ", ".join(flag_of(axis.field) for axis in config.grid)
    return write_report(
        folder.path / "report.html",
        title=f"Sweep over {fields}",
        summary=_in_words(rows),
        sections=[
            Section(
                title="Final distances",
                text=_EXPLANATION,
                tables=[_table(config, rows)],
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
        git_revision=folder.provenance.get("git_revision"),
    )


def _in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    runs, diverged = (sum(row[name] for row in rows) for name in ("runs", "diverged"))
    best = min(rows, key=lambda row: row["subspace_distance_mean"])
    names = list(best)
    place = ", ".join(
        f"{flag_of(name)} = {as_text(best[name])}" for name in names[: names.index("runs")]
    )
    return (
        f"{runs} runs at {len(rows)} points, of which {diverged or 'none'} diverged. The lowest "
        f"mean distance is {format_number(best['subspace_distance_mean'])}, at {place}."
    )


_EXPLANATION = (
    "A run that diverges counts with distance 1 and the excess loss of features that are zero, the "
    "worst there are. Intervals are 95 % percentile bootstrap intervals over runs, too narrow "
    "where there are few; the interquartile mean is that of the middle half of the runs. The runs "
    "of one group were trained in one program, and its seconds are those of all of them together."
)


def _table(config: SweepConfig, rows: Sequence[Mapping[str, Any]]) -> Table:
    fields = [axis.field for axis in config.grid]
    return Table(
        (
            *map(flag_of, fields),
            "runs",
            "diverged",
            "distance",
            "95 % interval",
            "interquartile mean",
            "95 % interval",
            "excess loss",
            "95 % interval",
            "group",
            "group's seconds",
        ),
        [
            (
                *(as_text(row[field]) for field in fields),
                row["runs"],
                row["diverged"],
                row["subspace_distance_mean"],
                _interval(row, "subspace_distance_mean"),
                row["subspace_distance_interquartile_mean"],
                _interval(row, "subspace_distance_interquartile_mean"),
                row["excess_loss_mean"],
                _interval(row, "excess_loss_mean"),
                row["group"],
                row["seconds"],
            )
            for row in rows
        ],
        "Every point of the grid.",
    )


def _interval(row: Mapping[str, Any], name: str) -> str | None:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return None if low is None else f"{low:.3g} to {high:.3g}"


def draw_sweep(config: SweepConfig, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Distance against the first field with several numbers, a line for the others' values.

    Without such a field, the values of the first with several stand side by side.
    """
    axis = max(config.grid, key=_fit_for_axis)
    others = [other for other in config.grid if other != axis]
    lines = []
    for values in itertools.product(*(other.values for other in others)):
        key = {other.field: _cell(value) for other, value in zip(others, values, strict=True)}
        points = [row for row in rows if key.items() <= row.items()]
        if _is_numeric(axis.values):
            points.sort(key=lambda row: float(row[axis.field]))
        lines.append(_line(key, axis, points))
    names = None if _is_numeric(axis.values) else [as_text(value) for value in axis.values]
    return plot_sweep(lines, names=names, x_label=flag_of(axis.field), y_label="subspace distance")


def _fit_for_axis(axis: GridAxis) -> tuple[bool, bool]:
    """What the horizontal axis is chosen by, the greatest first: several numbers, then several."""
    several = len(axis.values) > 1
    return several and _is_numeric(axis.values), several


def _line(key: Mapping[str, Any], axis: GridAxis, points: Sequence[Mapping[str, Any]]) -> Line:
    order = [_cell(value) for value in axis.values]
    places = [point[axis.field] for point in points]
    return Line(
        label=", ".join(f"{flag_of(field)} = {as_text(value)}" for field, value in key.items()),
        x=places if _is_numeric(axis.values) else [order.index(place) for place in places],
        mean=[point["subspace_distance_mean"] for point in points],
        # None, of a single run, becomes NaN.
        low=np.array([point["subspace_distance_mean_low"] for point in points], np.float64),
        high=np.array([point["subspace_distance_mean_high"] for point in points], np.float64),
        crossed=[point["diverged"] > 0 for point in points],
    )


def _is_numeric(values: Sequence[FieldValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
