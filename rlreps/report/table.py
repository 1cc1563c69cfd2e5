"""One table, for a page (HTML), a terminal (rich) and a file (CSV), and the numbers in it."""

import csv
import dataclasses
import html
import io
from collections.abc import Mapping, Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from rlreps.errors import InputError, printable
from rlreps.formatting import finite_or_none, format_number


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; numbers are shortened by `format_number` and right-aligned.

    Attributes:
        header: Column titles [columns].
        rows: Cells [rows, columns]: text, numbers, booleans or None.
        caption: What the table shows.

    Raises:
        InputError: A row that is not as long as the header.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise InputError(f"expected table rows of {len(self.header)} cells, got {len(row)}")

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, object]], caption: str) -> "Table":
        """Make a table of rows by column, columns in the order in which the rows first name them.

        A row that lacks a column leaves it empty.
        """
        header = list(dict.fromkeys(column for row in rows for column in row))
        return cls(header, [[row.get(column) for column in header] for row in rows], caption)

    def __repr__(self) -> str:
        return self.to_csv()

    def to_html(self, caption: str | None = None) -> str:
        """Return the table as HTML, with another caption if one is given."""
        marks = [' class="number"' if flush else "" for flush in self._flush_right()]

        def line(cells: Sequence[object], opening: str, closing: str) -> str:
            return "".join(
                f"<{opening}{mark}>{html.escape(format_number(cell))}</{closing}>"
                for mark, cell in zip(marks, cells, strict=True)
            )

        rows = "\n".join(f"<tr>{line(row, 'td', 'td')}</tr>" for row in self.rows)
        head = line(self.header, 'th scope="col"', "th")
        shown = html.escape(self.caption if caption is None else caption)
        return (
            f'<div class="wide">\n<table>\n<caption>{shown}</caption>\n'
            f"<thead><tr>{head}</tr></thead>\n"
            f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
        )

    def to_csv(self) -> str:
        """Return the table as CSV: full precision; missing and non-finite values are left empty."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        for row in (self.header, *self.rows):
            writer.writerow([finite_or_none(cell) for cell in row])
        return text.getvalue()

    def print(self) -> None:
        """Print the table on standard output; a file gets the table at full width."""
        # Use plain text: rich would read brackets in a name as markup.
        table = RichTable(title=Text(printable(self.caption)), box=box.SIMPLE)
        for title, flush in zip(self.header, self._flush_right(), strict=True):
            side: Literal["left", "right"] = "right" if flush else "left"
            table.add_column(Text(printable(title)), justify=side, no_wrap=not flush)
        for row in self.rows:
            table.add_row(*(Text(printable(format_number(cell))) for cell in row))
        console = Console()
        if not console.is_terminal:
            everything = console.options.update(max_width=10_000)
            console.width = max(console.width, Measurement.get(console, everything, table).maximum)
        console.print(table)

    def _flush_right(self) -> list[bool]:
        columns = [[row[index] for row in self.rows] for index in range(len(self.header))]
        given = [[cell for cell in column if cell is not None] for column in columns]
        return [
            bool(cells) and not any(isinstance(cell, str | bool) for cell in cells)
            for cells in given
        ]
