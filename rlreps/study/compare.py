"""Comparison of results: finished runs (``rlreps compare``), trainings and arrays of one's own."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlreps.app.job import Printed
from rlreps.app.jobs import train
from rlreps.app.jobs import train_live as live
from rlreps.app.plots import draw_curves, labelled
from rlreps.errors import require
from rlreps.files import require_free, write_atomically
from rlreps.formatting import format_number
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder, without_nan
from rlreps.stats import (
    FEWEST_BANDED,
    detectable_difference,
    format_interval,
    holm,
    interquartile_mean_interval,
    interval_columns,
    interval_of,
    probability_above,
    student_interval,
    student_p_value,
    welch_error,
    welch_interval,
)
from rlreps.study.final_values import (
    MEASURES,
    RETURN,
    VALUE,
    FinalValues,
    Result,
    read_results,
)
from rlreps.study.monitor import find_monitors
from rlreps.study.results import POSSIBLE

LEVEL = 0.05
"""Level of all tests of a comparison together."""

_LONGER = 1.2
"""Trainings that are longer than the shortest by this factor are noted."""

_FILES = ("comparison.csv", "seeds.csv", "evaluations.json", "curves.png")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Runs compared with the first run.

    Attributes:
        first: Label of the run that is subtracted from the others.
        rows: One row for every run and measure: ``run``, ``method``, ``d``, ``steps``,
            ``measure``, ``seeds`` (how many), ``mean`` and ``interquartile_mean`` with their ends
            (``mean_low``, ``mean_high``, ...), ``pairs``, ``difference`` with its ends, ``p_value``
            (Student's t, or Welch's if ``pairs`` is 0; corrected for the number of differences by
            Holm's method), ``detectable`` and ``probability_above`` with its ends: that a run is
            above a run of the first, the probability of improvement if larger is better.
        seeds: One row for every run and seed: ``run``, ``method``, ``d``, ``steps``, ``seed`` and
            the measures.
        notes: Remarks that a reader of the rows needs.
        runs: The figures behind the rows.
    """

    first: str
    rows: Sequence[Mapping[str, Any]]
    seeds: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    runs: Sequence[FinalValues]

    def lines(self) -> list[str]:
        """Return a verdict in words for each difference from the first result."""
        others = len(self.runs[0].seeds)
        lines = [
            f"{row['run']}: {MEASURES[row['measure']]} {_judge(row)} {self.first}, "
            f"{format_interval(interval_of(row, 'difference'), signed=True)} "
            + (
                f"({row['pairs']} pairs)"
                if row["pairs"]
                else f"({row['seeds']} and {others} seeds)"
            )
            for row in self.rows
            if "difference" in row
        ]
        return [*lines, *(f"note: {note}" for note in self.notes)]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def evaluations(self) -> dict[str, Any]:
        """Return all figures in the layout of Gorsane et al. 2022, which marl-eval reads.

        Its ``create_matrices_for_rliable`` makes the arrays that rliable takes. The levels are
        "rlreps", the environment (or "task"), the label, the run, and the step or
        ``absolute_metrics``, which holds the final figures. Each figure is a list of one number:
        the mean of a seed's episodes. Environments and measures are in lower case, as marl-eval
        looks them up.
        """
        found: dict[str, Any] = {}
        for run in self.runs:
            task = found.setdefault(str(run.problem.get("environment", "task")).lower(), {})
            steps = run.steps or [run.about["steps"] or 0]
            curves = run.curves or {name: s.values[:, None] for name, s in run.measures.items()}
            known = np.all([np.isfinite(curve).all(axis=0) for curve in curves.values()], axis=0)
            finals = {name: sample.values[:, None] for name, sample in run.measures.items()}
            task[run.label] = {
                f"run_{seed + 1}": {
                    **{
                        f"step_{number}": {
                            "step_count": int(steps[point]),
                            **_numbers(curves, seed, point),
                        }
                        for number, point in enumerate(np.flatnonzero(known).tolist(), start=1)
                    },
                    "absolute_metrics": _numbers(finals, seed, 0),
                }
                for seed in range(len(run.seeds))
            }
        return {"rlreps": found}

    def show(self) -> Iterator[Printed]:
        """Yield the table and the notes."""
        cells = [
            (
                row["run"],
                MEASURES[row["measure"]],
                row["seeds"],
                format_interval(interval_of(row, "mean")),
                row["interquartile_mean"],
                format_interval(interval_of(row, "difference"), signed=True)
                if "difference" in row
                else None,
                {None: None, 0: "no"}.get(row.get("pairs"), f"{row.get('pairs')} pairs"),
                row.get("p_value"),
                row.get("detectable"),
                row.get("probability_above"),
            )
            for row in self.rows
        ]
        header = (
            *("run", "measure", "seeds", "final", "interquartile mean"),
            *(f"difference from {self.first}", "paired by seed", "p", "detectable"),
            f"P(above {self.first})",
        )
        caption = (
            "Final figures and differences with 95 % intervals over seeds; p-values corrected for "
            "the number of differences (Holm); the smallest difference that both tell from zero in "
            "80 of 100 cases; the probability that a run is above a run of the first"
        )
        yield Table(header, cells, caption)
        yield from (f"note: {note}" for note in self.notes)


def print_comparison(runs: tuple[Path, ...], out: Path | None = None) -> Iterator[Printed]:
    """Compare finished runs with the first run: one table, with intervals over seeds.

    Args:
        runs: Folders of train, train-live, sweep, fit and agent train, where every point of a
            sweep counts as a run and the return of an agent is that of its last evaluation; or
            folders with monitor.csv files of Stable-Baselines3.
        out: Folder for the table (comparison.csv), every seed's figures (seeds.csv), the same for
            marl-eval and rliable (evaluations.json) and the learning curves of train and train-live
            (curves.png); none by default.
    """
    return compare(runs, out).show()


def compare(
    results: Mapping[str, Result] | Sequence[Path | str], out: Path | str | None = None
) -> Comparison:
    """Compare results with the first of them, by their seeds.

    Results with the same seeds, or with at least five seeds in common, are compared in pairs with
    equal seeds; others are compared by Welch's t, which takes one result's spread for both if all
    runs of the other are equal. Episodes are not seeds: of a seed's episodes, the mean counts.

    Args:
        results: Label → result, or folders alone. A result is the folder of ``train``,
            ``train-live``, ``sweep`` or ``fit`` (every point of a sweep counts as a run), or of
            ``agent train`` (returns of the last evaluation); what ``training.train`` returned;
            figures by seed, as an array [seeds] of seeds 0, 1, ..., as a mapping from seeds to
            numbers or as a pandas Series whose index has the seeds; curves [seeds, steps], of which
            the last step counts; or folders of ``monitor.csv``.
        out: Folder of ``comparison.csv``, ``seeds.csv``, ``evaluations.json`` and, of folders of
            ``train`` and ``train-live``, the learning curves ``curves.png``; nothing is written by
            default.

    Raises:
        InputError: For fewer than two results, an unfinished run, or results without a measure.
    """
    out = None if out is None else Path(out)
    if out is not None:
        is_folder = not out.is_file() and out.suffix not in (".csv", ".png")
        require(is_folder, "a folder to write tables and curves in", str(out))
        require_free(out, "a comparison", own=_FILES)
    pairs: Sequence[tuple[str, Any]]
    if isinstance(results, Mapping):
        pairs = [*results.items()]
        different = len({str(label) for label in results}) == len(results)
        require(different, "results with different labels", [*results])
    else:
        several = isinstance(results, Sequence) and not isinstance(results, str)
        folders = several and all(isinstance(each, Path | str) for each in results)
        require(folders, "results by name, {label: result}, or folders", type(results).__name__)
        pairs = labelled([Path(each) for each in results])
    runs = read_results(pairs)
    paths = [Path(each) for _, each in pairs if isinstance(each, Path | str)]
    paths = [each for each in paths if not find_monitors(each)]
    curves = [each for each in paths if RunFolder(each).kind in (train.KIND, live.KIND)]
    require(len(runs) >= 2, "at least two runs to compare", len(runs))
    first = runs[0]
    for run in runs:
        shared = bool({*run.measures} & {*first.measures})
        require(shared, f"a measure that {first.label} has, {[*first.measures]}", [*run.measures])
    comparison = Comparison(
        first=first.label,
        rows=_rows(runs),
        seeds=[
            {
                **{"run": run.label, **run.about, "seed": seed},
                **{name: sample.values[index] for name, sample in run.measures.items()},
            }
            for run in runs
            for index, seed in enumerate(run.seeds)
        ],
        notes=[note for run in runs for note in _notes(run, first)],
        runs=runs,
    )
    if out is not None:
        for name, rows in (("comparison", comparison.rows), ("seeds", comparison.seeds)):
            write_atomically(out / f"{name}.csv", Table.of_rows(rows, name).to_csv().encode())
        evaluations = json.dumps(without_nan(comparison.evaluations()), indent=1)
        write_atomically(out / "evaluations.json", evaluations.encode())
        if curves:
            draw_curves(tuple(curves), out / "curves.png")
    return comparison


def _numbers(curves: Mapping[str, np.ndarray], seed: int, point: int) -> dict[str, list[float]]:
    return {name.replace("_", " "): [float(each[seed, point])] for name, each in curves.items()}


def _rows(runs: Sequence[FinalValues]) -> list[dict[str, Any]]:
    """Return the rows of a comparison, with p-values and effects for the number of differences."""
    first = runs[0]
    pairs = [(run, name) for name in MEASURES for run in runs if name in run.measures]
    # Bonferroni's level, the least of those that Holm's method compares p-values with.
    tests = sum(_comparable(run, first, name) for run, name in pairs)
    rows = [_row(run, first, name, LEVEL / max(tests, 1)) for run, name in pairs]
    tested = [row for row in rows if "p_value" in row]
    for row, p_value in zip(tested, holm([row["p_value"] for row in tested]), strict=True):
        row["p_value"] = None if math.isnan(p_value) else float(p_value)
    return rows


def _comparable(run: FinalValues, first: FinalValues, name: str) -> bool:
    return run is not first and name in first.measures and not run.differences_from(first)


def _row(run: FinalValues, first: FinalValues, name: str, level: float) -> dict[str, Any]:
    """Return the row of a run and measure, with a p-value that is not corrected yet."""
    sample, mean = run.measures[name], run.measures[name].interval
    if name in POSSIBLE:
        mean = mean.within(*POSSIBLE[name])
    row: dict[str, Any] = {
        **{"run": run.label, **run.about, "measure": name, "seeds": len(sample.values)},
        **interval_columns("mean", mean),
        **interval_columns("interquartile_mean", interquartile_mean_interval(sample.values)),
    }
    if not _comparable(run, first, name):
        return row
    other = first.measures[name]
    shared = len({*sample.units} & {*other.units})
    # Pairing by a few shared seeds would leave out most runs.
    if shared >= 2 and (shared >= FEWEST_BANDED or {*sample.units} == {*other.units}):
        contrast = sample.against(other)
        interval, error = contrast.interval, contrast.error
    else:
        shared = 0
        error = welch_error(sample.values, other.values)
        interval = welch_interval(sample.values, other.values)
    p_value, plain = student_p_value(interval.value, error), student_interval(0.0, error)
    wider = (interval.high - interval.low) / (plain.high - plain.low)
    # The interval and the corrected p-value decide together.
    least = max(detectable_difference(error, level), detectable_difference(error, LEVEL, wider))
    return {
        **row,
        "pairs": shared,
        **interval_columns("difference", interval),
        "p_value": p_value,
        "detectable": least if math.isfinite(least) else None,
        **interval_columns("probability_above", probability_above(sample.values, other.values)),
    }


def _judge(row: Mapping[str, Any]) -> str:
    """Say whether a difference is above or below zero, or how large it would have to be."""
    _, low, high = interval_of(row, "difference")
    if (low > 0.0 or high < 0.0) and row["p_value"] < LEVEL:
        return "above that of" if low > 0.0 else "below that of"
    least = row["detectable"]
    why = "single runs or equal ones show no spread"
    detectable = why if least is None else f"detectable: {format_number(least)}"
    return f"cannot be told ({detectable}) from that of"


def _notes(run: FinalValues, first: FinalValues) -> list[str]:
    notes = []
    if run.diverged:
        notes.append(
            f"{run.diverged} of {len(run.seeds)} runs of {run.label} diverged and count with the "
            "worst figures there are"
        )
    made = [each.about["steps"] for each in (run, first)]
    if run.longest > _LONGER * (made[0] or 0):
        notes.append(
            f"{run.label} has a training of {run.longest:,.0f} steps and counts at step "
            f"{made[0]:,}, which the shortest training of all reached"
        )
    if late := np.count_nonzero(run.ages):
        notes.append(
            f"{late} of {len(run.seeds)} trainings of {run.label} end no episode in the last tenth "
            f"of {made[0]:,} steps and count with their last tenth in which one ends, at most "
            f"{max(run.ages):,.0f} steps earlier"
        )
    if differences := run.differences_from(first):
        found = "; ".join(differences)
        notes.append(f"{run.label} is not measured as {first.label} is: {found}")
    elif None not in made and made[0] != made[1]:
        unit = "steps" if {RETURN, VALUE} & {*run.measures} else "updates"
        steps = [format_number(each) for each in made]
        notes.append(f"{run.label} made {steps[0]} {unit}, {first.label} {steps[1]}")
    return notes
