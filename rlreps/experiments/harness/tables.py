"""Tables as data: each is made from the results, for the report and for a file."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlreps.experiments.harness.frame import Rows, summarised
from rlreps.experiments.harness.results import Chosen, Measure, Results, Text, chosen, text_of
from rlreps.report.table import Table, format_number

DETECTABLE = (
    "Detectable: the smallest difference that such a test would find with 80 % power at level 0.05 "
    "divided by the number of tests, from the spread of these pairs."
)
"""Part of the captions of tables of ``contrast_rows``."""

TITLES: Mapping[str, str] = {
    "interquartile_mean": "middle half",
    "p_value": "p, adjusted",
}
"""Column of result files → its title, if it differs from the name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tabulated:
    """A table of rows that a function makes; estimates stand with their intervals.

    Attributes:
        caption: What the table shows.
        rows: Results → rows.
        columns: Columns in the report; by default all, where ``<name>_low`` and ``<name>_high`` are
            part of ``<name>``.
        name: Name of its files and of its rows in the summary. Without one, there is no file.
        shown: Whether the report shows it.
    """

    caption: Text = ""
    rows: Callable[[Results[Any]], Rows]
    columns: Sequence[str] = ()
    name: str | None = None
    shown: bool = True

    def show(self, results: Results[Any]) -> list[Table]:
        """Write the rows, and return the table if it has columns."""
        rows = results.once(self.rows)
        if self.name is not None:
            results.write(self.name, rows)
            results.tables.append(self.name)
        every = dict.fromkeys(name for row in rows for name in row)
        ends = {f"{name}_{end}" for name in every for end in ("low", "high")}
        names = self.columns or [name for name in every if name not in ends]
        if not (names and self.shown):
            return []
        titles = [TITLES.get(name, name.replace("_", " ")) for name in names]
        cells = [[_with_interval(row, name) for name in names] for row in rows]
        return [Table(titles, cells, text_of(self.caption, results))]


def _with_interval(row: Mapping[str, Any], name: str) -> object:
    value, *ends = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if any(end is None or end != end for end in ends):
        return value
    low, high = map(format_number, ends)
    return f"{format_number(value)} [{low}, {high}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A measure aggregated over units, a line of the table for each value of the keys.

    Attributes:
        caption: What the table shows.
        keys: Columns of the frame that distinguish lines.
        of: The measurements, at the last step.
        measure: The measure; the experiment's by default.
        columns: As for ``Tabulated``, of rows from ``summarised``.
        beside: As for ``summarised``.
        unit: Column over which to aggregate; the experiment's unit by default.
        name: As for ``Tabulated``.
    """

    caption: Text
    keys: Sequence[str]
    of: Chosen = dataclasses.field(default_factory=dict)
    measure: Measure | None = None
    columns: Sequence[str] = ()
    beside: Sequence[str] = ()
    unit: str | None = None
    name: str | None = None

    def show(self, results: Results[Any]) -> list[Table]:
        """Write the rows if they have a name, and return the table."""
        made = Tabulated(caption=self.caption, rows=self.made, columns=self.columns, name=self.name)
        return made.show(results)

    def made(self, results: Results[Any]) -> Rows:
        """Aggregate the measurements."""
        measure = self.measure or results.measure
        return summarised(
            chosen(self.of, results, at_end=True),
            self.keys,
            measure.value,
            self.unit or results.unit,
            within=measure.within,
            beside=self.beside,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wide:
    """Means of a measure, with a line for each value of one key and a column for each of another.

    Attributes:
        caption: What the table shows.
        row: Label of lines, such as "d = {d}"; without braces, the column that holds it.
        column: Title of columns, likewise.
        of: The measurements, at the last step.
        measure: The measure to average; the experiment's by default.
    """

    caption: Text
    row: str
    column: str
    of: Chosen = dataclasses.field(default_factory=dict)
    measure: Measure | None = None

    def show(self, results: Results[Any]) -> list[Table]:
        """Return the table."""
        frame = chosen(self.of, results, at_end=True)
        value = (self.measure or results.measure).value
        titles = list(frame.labelled(self.column))
        cells = []
        for label, line in frame.labelled(self.row).items():
            parts = line.labelled(self.column)
            means = [
                parts[title].sample(value, results.unit).mean if title in parts else None
                for title in titles
            ]
            cells.append([label, *means])
        return [Table(["", *titles], cells, text_of(self.caption, results))]
