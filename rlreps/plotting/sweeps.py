"""A figure against one swept field, a line for each value of the others."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rlreps.errors import InputError
from rlreps.plotting.seeds import set_limits
from rlreps.plotting.style import INK, FloatArray, series_style, styled

_WIDE = 10.0
"""Ratio of the largest to the smallest place from which on the horizontal axis is logarithmic."""


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

    The horizontal axis is logarithmic if its places are positive and span a factor of ten or more,
    the vertical one if all means are positive.

    Args:
        lines: The lines, at least one; of all, places are numbers or of all, names.
        x_label: Text of the horizontal axis.
        y_label: Text of the vertical axis.

    Raises:
        InputError: No line.
    """
    if not lines:
        raise InputError("expected at least one line, got none")
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.add_subplot()
    axes.grid(visible=True)
    positions, names, is_log = _places(lines)
    means = np.concatenate([np.asarray(line.mean, np.float64) for line in lines])
    log_y = bool(np.all(means > 0))
    ends = [
        _draw(axes, line, index, np.array([positions[place] for place in line.places]))
        for index, line in enumerate(lines)
    ]
    set_limits(axes, means, np.concatenate(ends), log_y=log_y)
    if is_log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(names)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=x_label, ylabel=y_label)
    _legend(figure, axes, has_intervals=bool(np.isfinite(np.concatenate(ends)).any()))
    return figure


def _places(
    lines: Sequence[SweepLine],
) -> tuple[dict[float | str, float], dict[float, str], bool]:
    """Place → position, position → what stands below it, and whether the axis is logarithmic."""
    places: list[float | str] = list(
        dict.fromkeys(place for line in lines for place in line.places)
    )
    if any(isinstance(place, str) for place in places):
        positions = {place: float(index) for index, place in enumerate(places)}
        return positions, {index: str(place) for place, index in positions.items()}, False
    positions = {place: float(place) for place in places}
    numbers = positions.values()
    is_log = min(numbers) > 0 and max(numbers) / min(numbers) >= _WIDE
    return positions, {number: f"{number:g}" for number in numbers}, is_log


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


_DIVERGED = {
    "linestyle": "none",
    "marker": "x",
    "markersize": 9.0,
    "markeredgewidth": 1.4,
    "color": INK,
    "zorder": 5,
    "label": "some runs diverged",
}


def _legend(figure: Figure, axes: Axes, *, has_intervals: bool) -> None:
    """Legend under the axes, if there is anything to say; crosses are named once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    title = "mean over runs, 95 % bootstrap interval" if has_intervals else None
    if not named and title is None:
        return
    widest = max((len(label) for label in named), default=0)
    figure.legend(
        named.values(),
        named.keys(),
        loc="outside lower center",
        ncols=1 if widest > 48 else 2 if widest > 24 else 3,
        title=title,
        handlelength=3.2,
    )
