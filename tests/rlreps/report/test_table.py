"""Tables on a page, in a terminal and in a file, and the numbers in them."""

import csv
import io

import numpy as np
import pytest

from rlreps.formatting import format_number
from rlreps.report.table import Table

ROWS = [
    ("a", 1, None, True),
    ("b & c", np.float32(2.5), 0.00001, False),
    ("", 12345.6, np.nan, None),
]
TABLE = Table(("name", "number", "gaps", "flag"), ROWS, "What <it> shows")


def test_numeric_columns_are_flush_right_and_all_text_is_escaped():
    page = TABLE.to_html()
    assert page.count(' class="number"') == 2 * 4
    assert "<td>b &amp; c</td>" in page
    assert "<caption>What &lt;it&gt; shows</caption>" in page


def test_a_file_has_full_precision_and_gaps():
    cells = list(csv.reader(io.StringIO(TABLE.to_csv())))
    assert cells[0] == list(TABLE.header)
    assert cells[1:] == [
        ["a", "1", "", "True"],
        ["b & c", "2.5", "1e-05", "False"],
        ["", "12345.6", "", ""],
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.0, "0"),
        (1234567, "1,234,567"),
        (0.00099999, "0.00100"),
        (2.3e-4, "2.30·10⁻⁴"),
        (-80.72, "\N{MINUS SIGN}80.7"),
        (999.96, "1,000"),
        (9_999_999.9, "1.00·10⁷"),
        (np.array(0.25), "0.250"),
        (float("-inf"), "\N{MINUS SIGN}∞"),
        (np.bool_(False), "no"),
        (None, "\N{EN DASH}"),
    ],
)
def test_numbers_are_written_for_reading(value, text):
    assert format_number(value) == text


def test_a_terminal_obeys_no_name_and_takes_none_for_markup(capsys):
    hostile = ("\x1b[31mred\x9b2J\u202e", "[/bold] [red]x[/red]", "\udcff\a\r")
    Table((hostile[0], "x"), [(name, 1) for name in hostile], hostile[1]).print()
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e", "\udcff", "\a", "\r"} & {*shown}
    for text in (r"\x1b[31mred\x9b2J\u202e", "[/bold] [red]x[/red]", r"\udcff\x07\r"):
        assert text in shown
