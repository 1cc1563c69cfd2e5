"""Tables as data: each is made from the results, for the report and for a file."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rlreps.experiments.harness.frame import Rows, summarised
from rlreps.experiments.harness.results import Chosen, Measure, Results, Text, chosen, text_of
from rlreps.report.table import Table
from rlreps.runs.contrasts import said
from rlreps.runs.intervals import Interval

Columns: TypeAlias = Mapping[str, str | Callable[[Mapping[str, Any]], object]]
"""Title → column of the rows, which a row may lack, or a function of a row."""


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


def columns_of(rows: Rows, chosen: Sequence[str] = ()) -> Columns:
    """Title all or chosen columns of rows by their names; values include their intervals."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    ends = {f"{name}_{end}" for name in names for end in ("low", "high")}

    def with_ends(name: str) -> Callable[[Mapping[str, Any]], object]:
        def cell(row: Mapping[str, Any]) -> object:
            value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
            known = all(isinstance(each, float) for each in (value, low, high))
            return said(Interval(value, low, high)) if known else value

        return cell

    return {
        TITLES.get(name, name.replace("_", " ")): with_ends(name)
        if f"{name}_low" in names
        else name
        for name in chosen or names
        if name not in ends
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tabulated:
    """A table of rows that a function makes.

    Attributes:
        caption: What the table shows.
        rows: Results → rows.
        columns: Columns in the report, or names of some for ``columns_of``; by default all.
        name: Name of its files and of its rows in the summary. Without one, there is no file.
        shown: Whether the report shows it.
    """

    caption: Text = ""
    rows: Callable[[Results[Any]], Rows]
    columns: Columns | Sequence[str] = ()
    name: str | None = None
    shown: bool = True

    def show(self, results: Results[Any]) -> list[Table]:
        """Write the rows, and return the table if it has columns."""
        rows = results.once(self.rows)
        if self.name is not None:
            results.write(self.name, rows)
            results.tables.append(self.name)
        if not self.shown:
            return []
        given = self.columns
        columns = given if isinstance(given, Mapping) else columns_of(rows, given)
        cells = [
            [row.get(each) if isinstance(each, str) else each(row) for each in columns.values()]
            for row in rows
        ]
        return [Table([*columns], cells, text_of(self.caption, results))] if columns else []


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
    columns: Columns | Sequence[str] = ()
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
