"""Panels side by side: lines with intervals that were worked out beforehand."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rlreps.errors import require
from rlreps.plotting.seeds import NOISE_FLOOR
from rlreps.plotting.style import MUTED, FloatArray, plain_log_ticks, series_style, styled
from rlreps.runs.intervals import mean_interval

_MOST_MARKERS = 10
_MOST_COLUMNS = 3
"""Panels side by side before they wrap."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """One line of a panel.

    Attributes:
        label: Its name in the legend; lines of one name look the same in every panel.
        x: Where it was measured, [p], increasing.
        mean: Its height, [p].
        low: Lower ends of its intervals, [p]; NaN where there are none.
        high: Upper ends, [p].
    """

    label: str
    x: npt.ArrayLike
    mean: npt.ArrayLike
    low: npt.ArrayLike
    high: npt.ArrayLike

    @classmethod
    def of_runs(cls, label: str, x: npt.ArrayLike, runs: npt.ArrayLike) -> "Line":
        """Draw the mean over runs [runs, p] with its 95 % bootstrap interval."""
        mean, low, high = mean_interval(np.atleast_2d(np.asarray(runs, np.float64)))
        return cls(label=label, x=x, mean=mean, low=low, high=high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: Text above it.
        lines: What it shows.
        noise_floor: x [p] and height [p] of the ground truth's own error, drawn dashed.
    """

    title: str
    lines: Sequence[Line]
    noise_floor: tuple[npt.ArrayLike, npt.ArrayLike] | None = None


@styled
def plot_panels(
    panels: Sequence[Panel],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = True,
    x_ticks: Sequence[float] | None = None,
    reference_x: tuple[float, str] | None = None,
    reference_y: tuple[Sequence[float], str] | None = None,
    y_limits: tuple[float, float] | None = None,
    note: str | None = None,
) -> Figure:
    """Panels, at most three to a row, with the same limits and one legend.

    Args:
        panels: The panels, at least one.
        x_label: Text of the horizontal axes, with unit.
        y_label: Text of the vertical axes, with unit.
        log_x: Whether the horizontal axes are logarithmic.
        log_y: Whether the vertical axes are; heights that are not positive count as missing then.
        x_ticks: The only ticks of the horizontal axes.
        reference_x: Where to draw a dotted vertical line, and its name in the legend.
        reference_y: Where to draw dotted horizontal lines, and their name in the legend.
        y_limits: Limits of the vertical axes; by default they hold what is drawn.
        note: Text above the legend, such as what the bands are.

    Raises:
        InputError: Without a panel, or a panel without a line.
    """
    require(len(panels) >= 1, "at least one panel", len(panels))
    require(all(panel.lines for panel in panels), "at least one line in every panel", "none")
    # Rows as even as can be: four panels are two and two.
    rows = math.ceil(len(panels) / _MOST_COLUMNS)
    columns = math.ceil(len(panels) / rows)
    figure = Figure(figsize=(max(5.6, 1.2 + 3.3 * columns), 1.0 + 2.9 * rows))
    cells: npt.NDArray[Any] = figure.subplots(
        rows, columns, sharex=True, sharey=True, squeeze=False
    )
    grid = cells.ravel()[: len(panels)]
    for unused in cells.ravel()[len(panels) :]:
        unused.set_axis_off()
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    few = all(len(np.asarray(line.x)) <= _MOST_MARKERS for panel in panels for line in panel.lines)
    for axes, panel in zip(grid, panels, strict=True):
        axes.grid(visible=True)
        axes.set_title(panel.title)
        axes.set_xscale("log" if log_x else "linear")
        axes.set_yscale("log" if log_y else "linear")
        if reference_x is not None:
            axes.axvline(reference_x[0], color=MUTED, linestyle=":", label=reference_x[1], zorder=1)
        for height in reference_y[0] if reference_y is not None else ():
            label = reference_y[1] if reference_y is not None else None
            axes.axhline(height, color=MUTED, linestyle=":", label=label, zorder=1)
        for line in panel.lines:
            _draw(axes, line, labels.index(line.label), bars=few, log_y=log_y)
        if panel.noise_floor is not None:
            axes.plot(*(np.asarray(part) for part in panel.noise_floor), **NOISE_FLOOR)
    for axes in grid[-columns:]:
        axes.set_xlabel(x_label)
        axes.xaxis.set_tick_params(labelbottom=True)
    figure.supylabel(y_label, fontsize=grid[0].yaxis.label.get_size())
    if y_limits is not None:
        grid[0].set_ylim(*y_limits)
    elif log_y:
        _set_heights(grid, panels)
    _set_ticks(grid, x_ticks, log_x=log_x, log_y=log_y)
    _legend(figure, grid, columns, note)
    return figure


def _draw(axes: Axes, line: Line, index: int, *, bars: bool, log_y: bool) -> None:
    """A line with bars where it has few points, else with a band."""
    x, mean, low, high = (
        np.asarray(part, np.float64) for part in (line.x, line.mean, line.low, line.high)
    )
    mean = np.where((mean > 0.0) | (not log_y), mean, np.nan)
    look = series_style(index)
    if bars:
        ends = np.nan_to_num(np.maximum([mean - low, high - mean], 0.0))
        axes.errorbar(x, mean, ends, label=line.label, capsize=2.5, elinewidth=1.1, **look)
        return
    shown = np.isfinite(low) & np.isfinite(high)
    if shown.any():
        axes.fill_between(x[shown], low[shown], high[shown], color=look["color"], alpha=0.2, lw=0)
    stride = max(1, len(x) // _MOST_MARKERS)
    start = (index * stride // 3) % stride
    axes.plot(x, mean, label=line.label, markevery=list(range(start, len(x), stride)), **look)


def _set_ticks(
    grid: npt.NDArray[Any], x_ticks: Sequence[float] | None, *, log_x: bool, log_y: bool
) -> None:
    for axes in grid:
        if log_y:
            plain_log_ticks(axes.yaxis)
        if x_ticks is not None:
            axes.xaxis.set_major_locator(FixedLocator(list(x_ticks)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        elif log_x:
            plain_log_ticks(axes.xaxis)
        else:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _set_heights(grid: npt.NDArray[Any], panels: Sequence[Panel]) -> None:
    """Limits of logarithmic axes that an interval close to zero does not stretch."""
    lines = [line for panel in panels for line in panel.lines]
    means, ends = (
        np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts])
        for parts in (
            [line.mean for line in lines],
            [end for line in lines for end in (line.low, line.high)],
        )
    )
    floors = [np.asarray(panel.noise_floor[1]) for panel in panels if panel.noise_floor is not None]
    means = np.concatenate([means, *floors])
    means, ends = (part[np.isfinite(part) & (part > 0.0)] for part in (means, ends))
    if means.size:
        ends = np.clip(ends, means.min() / 3.0, means.max() * 3.0)
        heights: FloatArray = np.concatenate([means, ends])
        margin = max((heights.max() / heights.min()) ** 0.05, 1.05)
        grid[0].set_ylim(heights.min() / margin, heights.max() * margin)


def _legend(figure: Figure, grid: npt.NDArray[Any], columns: int, note: str | None) -> None:
    entries: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    entries_a_line = 2 * columns if max(map(len, entries)) <= 24 else 2
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=min(entries_a_line, len(entries)),
        title=note,
        handlelength=3.0,
    )
