"""Figures as data: each writes its numbers, its picture and its caption from the results."""

import dataclasses
import numbers
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from rlreps.errors import require
from rlreps.plotting import (
    Line,
    Panel,
    plot_panels,
    save_figure,
)
from rlreps.plotting.lines import over_runs
from rlreps.runs.folder import RunFolder
from rlreps.study.frame import Column, Frame, TableRows, aggregate_units, fields_of
from rlreps.study.results import Axis, Chosen, Metric, Results, select_rows, text_of

Shown = tuple[Path, str]
"""Path of a figure and its caption."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Panels of lines: the mean of a measure over units, against another column.

    The file's columns are the columns of panels, lines and ``keys``, x, and the columns of
    ``aggregate_units``. If ``keys`` contain the unit, the file has a row for each measurement
    instead, with the measure and the columns ``beside``.

    Attributes:
        name: Name of its files.
        caption: Caption in the report.
        x: Horizontal axis.
        y: Measure of the vertical axis; the experiment's by default.
        line: Label of lines, such as "d = {d}"; without braces, the column that holds it.
        panel: Title of panels, in the same format as ``line``; without it, one panel has all lines.
        of: The measurements to draw; those without a number on the horizontal axis are left out.
        at_end: Whether to take only the last step.
        each: Columns that split a line into several with one label.
        variant: Another column that splits lines; its value selects one of the ``looks`` in
            ``axes``.
        file: Measurements to write to the file, without duplicates; by default, the ones drawn.
        keys: Further columns that distinguish rows of the file.
        beside: Further columns of the file, as for ``aggregate_units``.
        rows: Results → rows of the file, instead of the rows described above.
        middle: Whether lines are interquartile means.
        note: Description of the lines; by default it states the number of units.
        axes: Further arguments of ``plot_panels``, or a function that makes them.
    """

    name: str
    caption: str
    x: Axis
    y: Metric | None = None
    line: str = "method"
    panel: str = ""
    of: Chosen = dataclasses.field(default_factory=dict)
    at_end: bool = False
    each: Sequence[str] = ()
    variant: str = ""
    file: Chosen | None = None
    keys: Sequence[str] = ()
    beside: Sequence[str] = ()
    rows: Callable[[Results[Any]], TableRows] | None = None
    middle: bool = False
    note: str | None = None
    axes: Mapping[str, Any] | Callable[[Results[Any]], Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )

    def show(self, results: Results[Any]) -> list[Shown]:
        """Write the rows and the picture; write nothing if there is nothing to draw."""
        measure, unit = self.y or results.measure, results.unit
        frame = select_rows(self.of, results, at_end=self.at_end)
        if not len(frame):
            return []
        frame = frame.where(**{self.x.column: _are_numbers})
        require(len(frame) >= 1, f"numbers in the column {self.x.column} of a curve", "none")
        axes = dict(self.axes(results) if callable(self.axes) else self.axes)
        if self.x.ticks:
            axes.setdefault("x_ticks", sorted({*frame[self.x.column].tolist()}))
        parts = frame.labelled(self.panel)
        panels = [
            Panel(
                title=label,
                lines=self._lines(part, measure, unit),
                noise_floor=_floor(part, self.x.column, measure),
            )
            for label, part in parts.items()
        ]
        kind = "interquartile " if self.middle else ""
        points = (each for part in parts.values() for each in part.groups(self.x.column).values())
        most = max(len(each.groups(unit)) for each in points)
        said = f"{kind}{over_runs(most, unit)}"
        default = f"{said}; {measure.note}" if measure.note else said
        note = text_of(self.note, results) if self.note is not None else default
        figure = plot_panels(
            panels,
            x_label=self.x.label,
            y_label=measure.label,
            log_x=self.x.log,
            log_y=measure.log,
            note=note,
            **axes,
        )
        rows = results.once(self.rows) if self.rows is not None else self._filed(results, frame)
        results.write(self.name, rows)
        return [save(results.run.folder, self.name, figure, text_of(self.caption, results))]

    def _filed(self, results: Results[Any], frame: Frame) -> TableRows:
        measure = self.y or results.measure
        filed = frame if self.file is None else select_rows(self.file, results, at_end=self.at_end)
        unit = results.unit
        named = [*fields_of(self.panel), *fields_of(self.line), *self.each, *self.keys]
        keys = [
            name for name in dict.fromkeys(named) if name != self.x.column and name in filed.columns
        ]
        if unit in self.keys:
            return filed.rows(*keys, self.x.column, measure.value, *self.beside)
        return aggregate_units(
            filed,
            keys,
            measure.value,
            unit,
            x=self.x.column,
            within=measure.within,
            beside=self.beside,
        )

    def _lines(self, frame: Frame, measure: Metric, unit: str) -> list[Line]:
        lines = []
        columns = [*self.each, *filter(None, [self.variant])]
        for label, part in frame.labelled(self.line).items():
            for group in part.groups(*columns).values():
                values, _, places = group.pivot(measure.value, unit, self.x.column)
                variant = group[self.variant][0] if self.variant else None
                lines.append(
                    Line.of_runs(
                        label,
                        places,
                        values,
                        middle=self.middle,
                        within=measure.within,
                        variant=variant,
                    )
                )
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure that a function of the results draws.

    Attributes:
        name: Name of its files.
        caption: Caption in the report.
        draw: Results → rows of its file (or None for a figure without numbers) and the figure; or
            None if these results have nothing to draw.
    """

    name: str
    caption: str
    draw: Callable[[Results[Any]], tuple[TableRows | None, Figure] | None]

    def show(self, results: Results[Any]) -> list[Shown]:
        """Write the rows and the picture."""
        drawn = self.draw(results)
        if drawn is None:
            return []
        rows, figure = drawn
        if rows is not None:
            results.write(self.name, rows)
        return [save(results.run.folder, self.name, figure, text_of(self.caption, results))]


def save(folder: RunFolder, name: str, figure: Figure, caption: str) -> Shown:
    """Write ``figures/<name>.png``; return its path and its caption."""
    return save_figure(figure, folder.figures / f"{name}.png"), caption


def _are_numbers(column: Column) -> list[bool]:
    return [isinstance(each, numbers.Real) for each in column.tolist()]


def _floor(frame: Frame, x: str, measure: Metric) -> tuple[list[Any], list[Any]] | None:
    """Return the places at which the ground truth's own error is known, and the error there."""
    if measure.floor is None or measure.floor not in frame.columns or x == "step":
        return None
    found = {place: group[measure.floor][0] for (place,), group in frame.groups(x).items()}
    known = sorted(place for place, floor in found.items() if floor is not None)
    return (known, [float(found[place]) for place in known]) if known else None
