"""Sweeps over a stored successor measure: what ``rlreps sweep`` runs.

A grid's field goes by its option of ``rlreps train`` (``learning-rate``, ``method``) or by its
dotted name (``optimizer.learning_rate``), with ``-`` or ``_``. Points whose learners differ in
numbers alone are trained in one compiled program.
"""

import dataclasses
import difflib
import functools
import itertools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

import jax
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.config import as_json, options
from rlreps.encoders import ENCODERS
from rlreps.errors import InputError, require
from rlreps.losses import OBJECTIVES
from rlreps.plotting import Line, plot_sweep, save_figure
from rlreps.report.page import Section, write_report
from rlreps.report.table import Table, finite_or_none, format_number, with_interval
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.runs.intervals import FEWEST_BANDED, aggregate
from rlreps.successor.store import open_store
from rlreps.training import Learner, Optimizer, stack
from rlreps.training.devices import make_placement
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
GROUP_KIND = "sweep_group"
GROUPS = "groups"

MOST_POINTS = 10_000

FieldValue: TypeAlias = bool | int | float | str | tuple[int, ...] | None

_CHOICES: dict[str, tuple[str, dict[str, type]]] = {
    "method": ("objective", OBJECTIVES),
    "encoder": ("encoder", ENCODERS),
}
"""Field that names a class → (the configuration's part, name → class)."""


class GridAxis(NamedTuple):
    """One swept field.

    Attributes:
        field: Its name: ``num_features``, ``method``, ``objective.kappa0``.
        values: Its values, all different.
    """

    field: str
    values: tuple[FieldValue, ...]


class GridPoint(NamedTuple):
    """One point of a grid.

    Attributes:
        values: Field → value, in the order of the grid's axes.
        config: The runs there.
    """

    values: dict[str, FieldValue]
    config: TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Training runs at every point of a grid.

    Attributes:
        base: What all points share; its values of swept fields do not matter.
        grid: The swept fields, at least one.

    Raises:
        InputError: For a field that does not exist or comes twice, for values that are none, come
            twice or do not fit, or do not fit together at a point.
    """

    base: TrainingConfig
    grid: tuple[GridAxis, ...]

    def __post_init__(self) -> None:
        if not self.grid:
            raise InputError("expected at least one field to sweep, got none")
        names = [axis.field for axis in self.grid]
        for axis in self.grid:
            require(axis.field in sweepable_fields(), _a_field(), axis.field)
            require(names.count(axis.field) == 1, "each field to be swept once", axis.field)
            require(
                len(axis.values) >= 1 and len({*axis.values}) == len(axis.values),
                f"different values of {axis.field}, at least one",
                axis.values,
            )
        count = math.prod(len(axis.values) for axis in self.grid)
        require(count <= MOST_POINTS, f"at most {MOST_POINTS:,} points of a grid", count)
        # All points are built here: one that cannot be is refused before any is trained. The first
        # stands for the base, so that sweeps that differ in what does not matter are the same.
        object.__setattr__(self, "base", self.points[0].config)

    @functools.cached_property
    def points(self) -> tuple[GridPoint, ...]:
        """All points; the last field varies fastest."""
        names = [axis.field for axis in self.grid]
        points = []
        for combination in itertools.product(*(axis.values for axis in self.grid)):
            values = dict(zip(names, combination, strict=True))
            try:
                points.append(GridPoint(values, with_fields(self.base, values)))
            except InputError as error:
                place = ", ".join(f"{name}={as_text(value)}" for name, value in values.items())
                raise InputError(f"{error} (at the point {place})") from error
        return tuple(points)

    def as_json(self) -> dict[str, Any]:
        """Return the sweep as JSON values."""
        grid = {axis.field: as_json(axis.values) for axis in self.grid}
        return {"base": as_json(self.base), "grid": grid}


def parse_grid(texts: Sequence[str]) -> tuple[GridAxis, ...]:
    """Read axes from texts like ``num-features=5,10``.

    Values are separated by commas, numbers within a value by spaces; ``none`` stands for None,
    ``true`` and ``false`` for themselves.

    Raises:
        InputError: For a text that is none, a field that does not exist (saying which do), or a
            value that is not of the field's type.
    """
    short = {_short(dotted): dotted for dotted in sweepable_fields()}
    axes = []
    for text in texts:
        name, equals, values = text.partition("=")
        require(bool(equals), "FIELD=VALUE,VALUE,... to sweep", text)
        field = name.strip().replace("-", "_")
        field = short.get(field, field)
        if field not in sweepable_fields():
            close = difflib.get_close_matches(
                _dashed(field), map(_dashed, [*short, *short.values()]), 1
            )
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InputError(f"expected {_a_field()}, got {name.strip()!r}{hint}")
        parse = _parser(sweepable_fields()[field])
        try:
            axes.append(GridAxis(field, tuple(parse(value.strip()) for value in values.split(","))))
        except InputError as error:
            raise InputError(f"{error} for {_dashed(field)}") from None
    return tuple(axes)


def with_fields(config: TrainingConfig, values: Mapping[str, FieldValue]) -> TrainingConfig:
    """Replace some fields of a configuration.

    Another method or encoder brings its own defaults.

    Raises:
        InputError: If the values do not fit, do not fit together, or are of options that the
            method or encoder does not have.
    """
    changes: dict[str, Any] = {}
    parts: dict[str, dict[str, FieldValue]] = {}
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        if name in _CHOICES:
            part, classes = _CHOICES[name]
            if type(getattr(config, part)) is not classes[str(value)]:
                changes[part] = classes[str(value)]()
        elif dot:
            parts.setdefault(outer, {})[inner] = value
        else:
            changes[name] = value
    for outer, inside in parts.items():
        part = changes.get(outer, getattr(config, outer))
        known = [field.name for field in options(part)]
        for inner in inside:
            require(inner in known, f"an option of {part.name} ({', '.join(known)})", inner)
        changes[outer] = dataclasses.replace(part, **inside)
    return dataclasses.replace(config, **changes)


def flag_of(field: str) -> str:
    """Return the option of ``rlreps train`` for a field: what a reader knows it by."""
    return _dashed(_short(field))


def as_text(value: FieldValue) -> str:
    """Write a value as ``parse_grid`` reads it."""
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@functools.cache
def sweepable_fields() -> Mapping[str, Any]:
    """Map the name of every field that can be swept to its type, of all classes that have it."""
    found: dict[str, Any] = {
        name: Literal[tuple(sorted(classes))] for name, (_, classes) in _CHOICES.items()
    }
    hints = get_type_hints(TrainingConfig)
    parts = {"objective": OBJECTIVES.values(), "encoder": ENCODERS.values()}
    found |= {name: hint for name, hint in hints.items() if name not in (*parts, "optimizer")}
    for part, classes in {**parts, "optimizer": [Optimizer]}.items():
        for cls in classes:
            inner = get_type_hints(cls)
            for field in options(cls):
                name, hint = f"{part}.{field.name}", inner[field.name]
                found[name] = found.get(name, hint) | hint
    return found


def _short(field: str) -> str:
    return "optimizer" if field == "optimizer.name" else field.rpartition(".")[2]


def _dashed(field: str) -> str:
    return field.replace("_", "-")


def _a_field() -> str:
    return f"a field to sweep of {', '.join(map(_dashed, sweepable_fields()))}"


def _parser(hint: Any) -> Callable[[str], FieldValue]:
    """Return what reads a value of a type from its text, or raises an ``InputError``."""
    if get_origin(hint) in (types.UnionType, Union):
        return functools.partial(_first_fitting, get_args(hint))
    if get_origin(hint) is tuple:
        return lambda text: tuple(_number(int, part) for part in text.split() or [text])
    if get_origin(hint) is Literal:
        return lambda text: _choice({name: name for name in get_args(hint)}, text)
    if hint is bool:
        return lambda text: _choice({"true": True, "false": False}, text.lower())
    if hint is str:
        return str
    return functools.partial(_number, hint)


def _first_fitting(kinds: Sequence[Any], text: str) -> FieldValue:
    """Read a text as the first of several types that it fits, or raise what each expected."""
    if type(None) in kinds and text.lower() == "none":
        return None
    expected = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _parser(kind)(text)
            except InputError as error:
                expected.append(str(error).removeprefix("expected ").rpartition(", got ")[0])
    raise InputError(f"expected {' or '.join(expected)}, got {text!r}")


def _choice(choices: Mapping[str, FieldValue], text: str) -> FieldValue:
    name = text.replace("-", "_")
    require(name in choices, f"one of {', '.join(choices)}", text)
    return choices[name]


def _number(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        expected = "an integer" if kind is int else "a number"
        raise InputError(f"expected {expected}, got {text!r}") from None


class Member(NamedTuple):
    """One run among those of a program: the index of its point in the grid, and its seed."""

    point: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that one compiled program trains.

    Attributes:
        config: The configuration of the first; others differ in numbers and seeds alone.
        members: The runs, in the order of the grid's points and their seeds.
        learner: Their learners, numbers [members].
    """

    config: TrainingConfig
    members: tuple[Member, ...]
    learner: Learner


def groups_of(sweep: SweepConfig, make: Callable[[TrainingConfig], Learner]) -> list[Group]:
    """Collect the runs of a sweep by program, in the order in which the grid first needs each."""
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
    progress: bool = True,
) -> dict[str, Any]:
    """Train at every point of a grid in a folder of its own, resuming what was interrupted.

    A run that diverges stops no other: it counts with the worst values there are, those of features
    that are zero.

    Args:
        config: The sweep.
        store_path: A complete store.
        out: The sweep's folder: a folder a program under ``groups/``, ``results/sweep.csv`` and
            ``.json``, ``figures/sweep.png``, ``report.html`` and ``summary.json``.
        devices: Where to train, as for ``run_training``.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``fields``, the ``points`` as rows of the table (see ``gather``), ``groups``,
        ``seconds`` of training, ``compile_seconds`` and the path of the ``report``.

    Raises:
        InputError: For anything about the store, the folder or a point that does not fit, before
            the first file is written.
    """
    store = open_store(store_path)
    described = {MATRIX: describe_matrix(store), **config.as_json()}
    finished = finished_summary(out, KIND, described)
    if finished is not None:
        return finished
    largest = max(point.config.num_features for point in config.points)
    truth = ground_truth_for(store_path, largest, progress=progress)
    groups = groups_of(
        config, lambda each: learner_for(each, truth, store.shape[1], resets_diverged=True)
    )
    for group in groups:
        make_placement(devices, len(group.members))
        first = jax.tree.map(lambda number: number[0], group.learner)
        with stored_problem(group.config, store, truth) as problem:
            first.check(problem.source)

    def train(index: int, group: Group, folder: RunFolder) -> dict[str, Any]:
        """Return the summary of a group, trained if it has not been."""
        members = [
            {"seed": member.seed, **as_json(config.points[member.point].values)}
            for member in group.members
        ]

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
                    progress=progress,
                )
            diverged = result.history[-1]["diverged"]
            found = zip(result.seeds, diverged, measures, strict=True)
            return {
                **rounded_seconds(result),
                # A run that diverged has zero features, and so the worst figures.
                "members": [
                    {"seed": seed, "diverged": bool(bad), **measured}
                    for seed, bad, measured in found
                ],
            }

        described = {MATRIX: describe_matrix(store), **as_json(group.config), "members": members}
        out = folder.path / GROUPS / f"{index:03d}"
        return complete_run(out, kind=GROUP_KIND, config=described, compute=compute)

    def compute(folder: RunFolder) -> dict[str, Any]:
        results = [train(index, group, folder) for index, group in enumerate(groups, start=1)]
        rows = gather(config, groups, results)
        return {
            "fields": [axis.field for axis in config.grid],
            "points": rows,
            "groups": len(results),
            "seconds": round(sum(result["seconds"] for result in results), 3),
            "compile_seconds": round(sum(result["compile_seconds"] for result in results), 3),
            "report": str(write_sweep_report(config, folder, rows)),
        }

    return complete_run(
        out,
        kind=KIND,
        config=described,
        compute=compute,
        origin=describe_place(store_path, out),
    )


_STATISTICS = tuple(
    f"{name}{end}" for name in ("mean", "interquartile_mean") for end in ("", "_low", "_high")
)


def gather(
    config: SweepConfig, groups: Sequence[Group], results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Collect one row a point of the grid, in the grid's order, from the groups' summaries.

    Returns:
        Rows of the swept fields' values (several numbers as text); ``runs`` and how many of them
        ``diverged``; mean and interquartile mean of the final ``subspace_distance`` and
        ``excess_loss`` with their 95 % intervals (see ``intervals.aggregate``; None where there
        is one run, and for an excess that means nothing), and below five runs what ``_of_runs``
        there is, in one text; the ``group`` that trained them, from 1, how many
        ``runs_together``, and the ``seconds`` which those took together.
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
            **_aggregated(
                "subspace_distance",
                [run["subspace_distance"] for run in runs[index]],
                within=(0.0, 1.0),
            ),
            **_aggregated("excess_loss", [run["relative_excess_loss"] for run in runs[index]]),
            **trained[index],
        }
        for index, point in enumerate(config.points)
    ]


def _aggregated(prefix: str, values: Sequence[Any], **options: Any) -> dict[str, object]:
    """Aggregate over runs; None where a run has no value, and for ends that one run has not."""
    found = dict.fromkeys(_STATISTICS) if None in values else aggregate(values, **options)
    known = found["mean"] is not None and len(values) < FEWEST_BANDED
    return {
        **{f"{prefix}_{name}": finite_or_none(found[name]) for name in _STATISTICS},
        f"{prefix}_of_runs": " ".join(f"{value:.6g}" for value in values) if known else None,
    }


def _of_runs(row: Mapping[str, Any], prefix: str) -> list[float]:
    """Read what each of fewer than five runs has; empty for more, and for no value."""
    return [float(text) for text in (row[f"{prefix}_of_runs"] or "").split()]


def _cell(value: FieldValue) -> Any:
    return as_text(value) if isinstance(value, tuple) else value


_MEANS = {
    "distance": ("subspace_distance_mean", "subspace_distance"),
    "interquartile mean": ("subspace_distance_interquartile_mean", None),
    "excess loss": ("excess_loss_mean", "excess_loss"),
}
"""Title → figure of the table's columns with intervals, and whose runs stand beside it."""


def sweep_table(fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Tabulate every point of a grid."""
    cells = [
        (
            *(as_text(row[field]) for field in fields),
            *(row["runs"], row["diverged"]),
            *(
                with_interval(row, name, _of_runs(row, prefix) if prefix else ())
                for name, prefix in _MEANS.values()
            ),
            *(row["group"], row["seconds"]),
        )
        for row in rows
    ]
    flags = [flag_of(field) for field in fields]
    header = (*flags, "runs", "diverged", *_MEANS, "group", "group's seconds")
    said = "with 95 % intervals over runs, or below five runs with each of them"
    return Table(header, cells, f"Every point of the grid, {said}")


def write_sweep_report(
    config: SweepConfig, folder: RunFolder, rows: Sequence[Mapping[str, Any]]
) -> Path:
    """Write the numbers, the figure and the report; returns the path of ``report.html``."""
    figure = draw_sweep(config, rows)
    folder.write_rows(KIND, rows)
    save_figure(figure, folder.figures / f"{KIND}.png")
    fields = [axis.field for axis in config.grid]
    runs, diverged = (sum(row[name] for row in rows) for name in ("runs", "diverged"))
    best = min(rows, key=lambda row: row["subspace_distance_mean"])
    place = ", ".join(f"{flag_of(name)} = {as_text(best[name])}" for name in fields)
    return write_report(
        folder.path / "report.html",
        title=f"Sweep over {', '.join(map(flag_of, fields))}",
        summary=(
            f"{runs} runs at {len(rows)} points, of which {diverged or 'none'} diverged. The "
            f"lowest mean distance is {format_number(best['subspace_distance_mean'])}, at {place}."
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
        git_revision=folder.provenance.get("git_revision"),
    )


_EXPLANATION = (
    "A run that diverges counts with distance 1 and the excess loss of features that are zero, the "
    "worst there are. 95 % intervals over runs are Student's for means of fewer than 20, else "
    "percentile bootstraps, too narrow where there are few; fewer than five runs are shown "
    "themselves. The interquartile mean is that of the middle half of the runs. The runs of one "
    "group were trained in one program, and its seconds are those of all of them together."
)


def _ends(points: Sequence[Mapping[str, Any]], end: str) -> npt.NDArray[np.float64]:
    """Return ends of intervals of distances, [p], within [0, 1]; NaN for fewer than five runs."""
    ends = [
        point[f"subspace_distance_mean_{end}"] if point["runs"] >= FEWEST_BANDED else np.nan
        for point in points
    ]
    return np.clip(np.asarray(ends, np.float64), 0.0, 1.0)


def _few_runs(points: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.float64] | None:
    """Return distances of runs, [runs, p], at points that have two to four; None without any."""
    few = [_of_runs(point, "subspace_distance") for point in points]
    most = max(map(len, few))
    if most < 2:
        return None
    return np.transpose([values + [np.nan] * (most - len(values)) for values in few])


def draw_sweep(config: SweepConfig, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw distance against the first field with several numbers, a line for the others' values.

    Without such a field, the values of the first with several stand side by side.
    """

    def fitness(axis: GridAxis) -> tuple[bool, bool]:
        several = len(axis.values) > 1
        return several and _is_numeric(axis.values), several

    axis = max(config.grid, key=fitness)
    others = [other for other in config.grid if other != axis]
    numeric, order = _is_numeric(axis.values), [_cell(value) for value in axis.values]
    lines = []
    for values in itertools.product(*(other.values for other in others)):
        key = {other.field: _cell(value) for other, value in zip(others, values, strict=True)}
        points = [row for row in rows if key.items() <= row.items()]
        if numeric:
            points.sort(key=lambda row: float(row[axis.field]))
        places = [point[axis.field] for point in points]
        lines.append(
            Line(
                label=", ".join(f"{flag_of(name)} = {as_text(key[name])}" for name in key),
                x=places if numeric else [order.index(place) for place in places],
                mean=[point["subspace_distance_mean"] for point in points],
                low=_ends(points, "low"),
                high=_ends(points, "high"),
                runs=_few_runs(points),
                crossed=[point["diverged"] > 0 for point in points],
            )
        )
    names = None if numeric else [as_text(value) for value in axis.values]
    return plot_sweep(lines, names=names, x_label=flag_of(axis.field), y_label="subspace distance")


def _is_numeric(values: Sequence[FieldValue]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def print_sweep(summary: Mapping[str, Any]) -> None:
    """Print every point of a sweep's grid, and the report's path."""
    sweep_table(summary["fields"], summary["points"]).print()
    print(f"Report: {summary['report']}")
