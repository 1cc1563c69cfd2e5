"""A figure against one swept field, a line for each value of the others."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rlreps.errors import InputError
from rlreps.plotting.seeds import set_limits
from rlreps.plotting.style import INK, FloatArray, series_style, styled

_WIDE = {"x": 10.0, "y": 3.0}
"""Ratio of the largest value to the smallest from which on an axis is logarithmic."""

_SHIFT = 0.008
"""Between neighbouring lines, as a share of the axis: bars of two must not cover each other."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepLine:
    """One line.

    Attributes:
        label: What the legend says; empty leaves the line out of it.
        places: Where along the horizontal axis [p], numbers or names.
        mean: Mean over runs [p].
        low: Lower end of its interval [p]; None where there is none.
        high: Upper end [p], likewise.
        diverged: Whether any run diverged [p].

    Raises:
        InputError: The lengths differ, or there is no point.
    """

    label: str
    places: Sequence[float] | Sequence[str]
    mean: Sequence[float]
    low: Sequence[float | None]
    high: Sequence[float | None]
    diverged: Sequence[bool]

    def __post_init__(self) -> None:
        parts = (self.places, self.mean, self.low, self.high, self.diverged)
        lengths = [len(part) for part in parts]
        if len({*lengths}) != 1 or lengths[0] == 0:
            raise InputError(f"expected parts of one length, at least 1, got lengths {lengths}")


@styled
def plot_sweep(lines: Sequence[SweepLine], *, x_label: str, y_label: str) -> Figure:
    """Means with their intervals against a swept field; points with diverged runs are crossed.

    An axis is logarithmic if its values are positive and far apart: means by a factor of three,
    places by one of ten.

    Args:
        lines: The lines, at least one; of all, places are numbers or of all, names.
        x_label: Text of the horizontal axis.
        y_label: Text of the vertical axis.

    Raises:
        InputError: No line.
    """
    if not lines:
        raise InputError("expected at least one line, got none")
    columns = _legend_columns(lines)
    rows = -(-(len(lines) + 1) // columns)
    figure = Figure(figsize=(6.4, 3.8 + 0.18 * rows))
    axes = figure.add_subplot()
    axes.grid(visible=True)
    positions, names = _places(lines)
    is_log = _spans(positions.values(), _WIDE["x"])
    means = np.concatenate([np.asarray(line.mean, np.float64) for line in lines])
    ends = []
    for index, line in enumerate(lines):
        x = np.array([positions[place] for place in line.places])
        shift = _SHIFT * (index - (len(lines) - 1) / 2)
        ends.append(_draw(axes, line, index, _shifted(x, positions.values(), shift, is_log)))
    all_ends = np.concatenate(ends)
    set_limits(axes, means, all_ends, log_y=_spans(means, _WIDE["y"]))
    axes.set_xscale("log" if is_log else "linear")
    axes.xaxis.set_major_locator(FixedLocator(sorted(names)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=x_label, ylabel=y_label)
    _legend(figure, axes, columns, has_intervals=bool(np.isfinite(all_ends).any()))
    return figure


def _places(lines: Sequence[SweepLine]) -> tuple[dict[float | str, float], dict[float, str]]:
    """Place → position, and position → what stands below it."""
    places: list[float | str] = list(
        dict.fromkeys(place for line in lines for place in line.places)
    )
    if any(isinstance(place, str) for place in places):
        positions = {place: float(index) for index, place in enumerate(places)}
    else:
        positions = {place: float(place) for place in places}
    names = {
        position: place if isinstance(place, str) else f"{place:g}"
        for place, position in positions.items()
    }
    return positions, names


def _spans(values: Iterable[float], ratio: float) -> bool:
    """Whether all values are positive, the largest at least ``ratio`` times the smallest."""
    numbers = [float(value) for value in values]
    return min(numbers) > 0 and max(numbers) / min(numbers) >= ratio


def _shifted(x: FloatArray, positions: Iterable[float], share: float, is_log: bool) -> FloatArray:
    """Positions moved along the axis by a share of its length."""
    ends = [float(position) for position in positions]
    low, high = min(ends), max(ends)
    moved: FloatArray = x * (high / low) ** share if is_log else x + share * (high - low)
    return moved


def _draw(axes: Axes, line: SweepLine, index: int, x: FloatArray) -> FloatArray:
    """Draws one line; returns the ends of its intervals [2 p]."""
    mean, low, high = (
        np.asarray(part, dtype=np.float64) for part in (line.mean, line.low, line.high)
    )
    axes.errorbar(
        x,
        mean,
        # The mean may lie outside the interval by rounding.
        yerr=np.nan_to_num(np.maximum([mean - low, high - mean], 0.0)),
        label=line.label or "_",
        capsize=3.0,
        elinewidth=1.2,
        **series_style(index),
    )
    diverged = np.asarray(line.diverged, dtype=bool)
    if diverged.any():
        axes.plot(x[diverged], mean[diverged], **_DIVERGED)
    return np.concatenate([low, high])


_DIVERGED: Mapping[str, Any] = {
    "linestyle": "none",
    "marker": "x",
    "markersize": 9.0,
    "markeredgewidth": 1.4,
    "color": INK,
    "zorder": 5,
    "label": "some runs diverged",
}


def _legend_columns(lines: Sequence[SweepLine]) -> int:
    widest = max(len(line.label) for line in lines)
    return 1 if widest > 34 else 2 if widest > 20 else 3


def _legend(figure: Figure, axes: Axes, columns: int, *, has_intervals: bool) -> None:
    """Legend under the axes, if there is anything to say; crosses are named once, at the end."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    if (cross := named.pop(_DIVERGED["label"], None)) is not None:
        named[_DIVERGED["label"]] = cross
    title = "mean over runs, 95 % bootstrap interval" if has_intervals else None
    if named or title is not None:
        figure.legend(
            named.values(),
            named.keys(),
            loc="outside lower center",
            ncols=columns,
            title=title,
            handlelength=3.2,
        )
