"""The results of a finished run, for figures, tables and claims."""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from rlreps.errors import require
from rlreps.plotting.lines import DISTANCE
from rlreps.stats import Sample
from rlreps.study.frame import Frame, TableRows

if TYPE_CHECKING:
    from rlreps.study.experiment import Run

Config = TypeVar("Config")
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """The quantity in a column of the frame.

    Attributes:
        value: The column.
        label: Text of its axes, with unit.
        within: Smallest and largest possible value, to which intervals are clipped.
        log: Whether its axes are logarithmic.
        floor: Column of the ground truth's own error, drawn dashed.
        note: Addition to the description of lines, such as "a run that diverged counts 1".
    """

    value: str
    label: str
    within: tuple[float, float] | None = None
    log: bool = False
    floor: str | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Axis:
    """A horizontal axis.

    Attributes:
        column: The column.
        label: Its text, with unit.
        log: Whether it is logarithmic.
        ticks: Whether it has a tick for each place, and no others.
    """

    column: str
    label: str
    log: bool = False
    ticks: bool = False


STEP = Axis("step", "update")
"""Number of updates of a training."""

D = Axis("d", "number of features d", log=True, ticks=True)
"""Numbers of features."""

POSSIBLE = {
    "subspace_distance": (0.0, 1.0),
    "relative_excess_loss": (0.0, math.inf),
    "r_squared": (-math.inf, 1.0),
}
"""Name in files → smallest and largest possible value."""

SUBSPACE_DISTANCE = Metric(
    value="subspace_distance",
    label=DISTANCE,
    within=(0.0, 1.0),
    log=True,
    floor="noise_floor",
    note="a run that diverged counts 1",
)
"""Subspace distance to the exact components."""


@dataclasses.dataclass(eq=False)
class Results(Generic[Config]):
    """The findings of a finished run.

    Attributes:
        found: Cell → measurement.
        cells: Cell → frame of its measurement.
        measure: Default measure of samples.
        unit: Column by which samples are paired, such as seeds.
        fewest: Least number of units with which samples decide anything.
        named: Values that any preset names. Asking for any other value is an error; a preset can
            leave out only the runs of named values.
        rows: Rows of figures and tables by name, filled as they are made.
        tables: Names of the tables whose rows go into the summary.
    """

    run: "Run[Config]"
    found: Mapping[str, Any]
    cells: Mapping[str, Frame]
    measure: Metric
    unit: str = "seed"
    fewest: int = 2
    named: Collection[Any] = ()
    rows: dict[str, TableRows] = dataclasses.field(default_factory=dict)
    tables: list[str] = dataclasses.field(default_factory=list)
    _kept: dict[Any, Any] = dataclasses.field(default_factory=dict)

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.run.config

    @cached_property
    def frame(self) -> Frame:
        """All measurements."""
        return Frame.concat(self.cells.values())

    @cached_property
    def ends(self) -> Frame:
        """The measurements at the last step of each cell."""
        return Frame.concat(_at_step(each, last=True) for each in self.cells.values())

    @cached_property
    def starts(self) -> Frame:
        """The measurements at the first step of each cell."""
        return Frame.concat(_at_step(each, last=False) for each in self.cells.values())

    def sample(self, value: str | None = None, **wanted: Any) -> Sample:
        """Average the rows of each unit that ``Frame.where`` selects.

        Args:
            value: The column; the main measure by default.
            **wanted: As for ``Frame.where``.

        Raises:
            NotRunError: If there is no such row because this preset leaves out its runs.
            InputError: If a wanted value is neither in the column nor named by any preset.
        """
        return self._sample(self.frame, value, wanted)

    def end(self, value: str | None = None, **wanted: Any) -> Sample:
        """Return the ``sample`` at the last step."""
        return self._sample(self.ends, value, wanted)

    def start(self, value: str | None = None, **wanted: Any) -> Sample:
        """Return the ``sample`` at the first step."""
        return self._sample(self.starts, value, wanted)

    def once(self, make: Callable[["Results[Config]"], Value]) -> Value:
        """Return a function's value for these results, computed only once."""
        if make not in self._kept:
            self._kept[make] = make(self)
        found: Value = self._kept[make]
        return found

    def write(self, name: str, rows: TableRows) -> None:
        """Write ``results/<name>.csv`` and ``.json``, and keep the rows by their name."""
        self.rows[name] = rows
        self.run.folder.write_rows(name, rows)

    def _sample(self, frame: Frame, value: str | None, wanted: Mapping[str, Any]) -> Sample:
        chosen = frame.where(**wanted) if len(frame) else frame
        if len(frame) and not len(chosen):
            for column, each in wanted.items():
                values = each if isinstance(each, list | tuple | range) else [each]
                known = {*frame[column].tolist(), *self.named}
                require(callable(each) or not known.isdisjoint(values), f"a known {column}", each)
        return chosen.sample(value or self.measure.value, self.unit, self.fewest)


def design_of(docstring: str | None) -> str:
    """Return a module's docstring as the text of a section: without first line and markup.

    Paragraphs and items of lists become one line each, since pages wrap lines by themselves.
    """
    _, _, text = (docstring or "").partition("\n\n")
    plain = text.replace("**", "").replace("``", "").strip()
    return re.sub(r"(?<!\n)\n *(?!\n|- )", " ", plain)


def text_of(text: str, results: Results[Any]) -> str:
    """Fill in fields of ``config`` and of ``Run.data`` that a text names: "{config.steps:,}"."""
    named = "{config." in text or "{data." in text
    return text.format(config=results.config, data=results.run.data) if named else text


Chosen: TypeAlias = Mapping[str, Any] | Callable[[Results[Any], Frame], Frame]
"""Selected measurements: conditions as for ``Frame.where``, or a function of the frame."""


def select_rows(which: Chosen, results: Results[Any], *, at_end: bool) -> Frame:
    """Return the measurements of a figure or a table, at all steps or at the last."""
    frame = results.ends if at_end else results.frame
    return which(results, frame) if callable(which) else frame.where(**which)


def _at_step(frame: Frame, *, last: bool) -> Frame:
    """Return the rows of a cell at its last or first step; all rows if it has no steps."""
    if not len(frame) or "step" not in frame.columns:
        return frame
    steps = frame["step"]
    return frame.where(step=steps.max() if last else steps.min())
