"""Tables as data: each is made from the results, for the report and for a file."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlreps.report.table import Table
from rlreps.stats import format_interval, interval_of
from rlreps.study.frame import TableRows, aggregate_units
from rlreps.study.results import Chosen, Metric, Results, select_rows, text_of

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
    """A table whose rows a function makes; it shows estimates with their intervals.

    Attributes:
        caption: What the table shows.
        rows: Results → rows.
        columns: Columns in the report; by default all. Column ``<name>`` shows ``<name>_low`` and
            ``<name>_high`` as its interval.
        name: Name of its files and of its rows in the summary. Without one, there is no file.
        shown: Whether the report shows it.
    """

    caption: str = ""
    rows: Callable[[Results[Any]], TableRows]
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
    found = interval_of(row, name)
    # NaN differs from itself; ends may also be text, such as "never".
    return found.value if found.low != found.low else format_interval(found)


def tabulate_summary(
    *,
    keys: Sequence[str],
    of: Chosen | None = None,
    measure: Metric | None = None,
    beside: Sequence[str] = (),
    **options: Any,
) -> Tabulated:
    """Tabulate a measure at the last step, aggregated over units.

    Args:
        keys: Columns of the frame that distinguish lines.
        of: The measurements; by default all.
        measure: The measure; the experiment's by default.
        beside: As for ``aggregate_units``.
        **options: Further attributes of ``Tabulated``.
    """

    def rows(results: Results[Any]) -> TableRows:
        shown, frame = measure or results.measure, select_rows(of or {}, results, at_end=True)
        about: Any = {"within": shown.within, "beside": beside}
        return aggregate_units(frame, keys, shown.value, results.unit, **about)

    return Tabulated(rows=rows, **options)


def tabulate_wide(
    *,
    row: str,
    column: str,
    of: Chosen | None = None,
    measure: Metric | None = None,
    **options: Any,
) -> Tabulated:
    """Tabulate means of a measure at the last step, a line and a column for each label.

    Args:
        row: Label of lines, such as "d = {d}"; without braces, the column that holds it.
        column: Title of columns, in the same format as ``row``.
        of: The measurements; by default all.
        measure: The measure; the experiment's by default.
        **options: Further attributes of ``Tabulated``.
    """

    def rows(results: Results[Any]) -> TableRows:
        value = (measure or results.measure).value
        lines = select_rows(of or {}, results, at_end=True).labelled(row)
        means = {
            label: {
                title: part.sample(value, results.unit).mean
                for title, part in line.labelled(column).items()
            }
            for label, line in lines.items()
        }
        return [{"": label, **found} for label, found in means.items()]

    return Tabulated(rows=rows, **options)
