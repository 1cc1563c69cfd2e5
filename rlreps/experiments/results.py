"""What every experiment leaves behind: the numbers behind each figure, and its claims."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.files import write_atomically
from rlreps.plotting import save_figure
from rlreps.report.page import Table
from rlreps.runs.folder import RunFolder
from rlreps.runs.intervals import aggregate


def write_results(
    folder: RunFolder,
    name: str,
    rows: Sequence[Mapping[str, object]],
    figure: Figure | None = None,
) -> None:
    """Writes ``results/<name>.csv`` and ``.json``, and the figure as ``figures/<name>.png``.

    Columns come in the order in which the rows first name them; a row without one leaves it empty.
    What is not there, None, NaN or infinite, is empty in the CSV and null in the JSON file. Not
    even a kill halfway leaves part of a file.

    Args:
        folder: The experiment's folder.
        name: The figure's name, which the files share.
        rows: Column → text, number, boolean or None; NumPy scalars count as what they hold.
        figure: What shows them, if anything.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = [{column: _cell(row.get(column)) for column in columns} for row in rows]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    # A row a line: small, and readable as text.
    lines = ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in table)
    results = folder.path / "results"
    write_atomically(results / f"{name}.csv", text.getvalue().encode())
    write_atomically(results / f"{name}.json", f"[\n{lines}\n]\n".encode())
    if figure is not None:
        save_figure(figure, folder.figures / f"{name}.png")


def _cell(value: object) -> object:
    """A value as JSON and CSV hold it."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """One thing that a paper states, and what became of it here.

    Attributes:
        statement: What it is about.
        paper: What the paper states, or its number; of an experiment of ours, the goal.
        found: What was found, or its number.
        holds: Whether what was found agrees; None where this run cannot tell.
    """

    statement: str
    paper: object
    found: object
    holds: bool | None


class MeanDistance(NamedTuple):
    """A mean distance over runs, with its 95 % bootstrap interval; NaN where there is one run."""

    mean: float
    low: float
    high: float

    def below(self, other: "MeanDistance") -> bool | None:
        """Whether this distance is the smaller one; None where the intervals overlap."""
        if self.high < other.low:
            return True
        return False if self.low > other.high else None


def mean_distance(distances: npt.ArrayLike) -> MeanDistance:
    """The mean of distances [runs] with its interval (``statistics.aggregate``)."""
    found = aggregate(distances)
    return MeanDistance(found["mean"], found["mean_low"], found["mean_high"])


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all hold: False if one does not, else None if one cannot be told or none is there."""
    known = set(verdicts)
    return False if False in known else None if None in known or not known else True


def claims_table(claims: Sequence[Claim], *, stated: str = "what the paper states") -> Table:
    """The table of claims that every experiment's report has; ``stated`` heads what is claimed."""
    return Table(
        ("", stated, "what was found", "holds?"),
        [
            (
                claim.statement,
                claim.paper,
                claim.found,
                "cannot be told from this run" if claim.holds is None else claim.holds,
            )
            for claim in claims
        ],
        f"{stated.capitalize()} and what was found.",
    )
