"""Line plots: panels of lines with intervals.

Heights are arithmetic or interquartile means over runs, with the same intervals as in tables
(``rlreps.stats``).
"""

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from rlreps.errors import InputError, require, require_choice
from rlreps.plotting.style import MUTED, plain_log_ticks, series_style, styled
from rlreps.stats import FEWEST_BANDED, interquartile_mean_interval, mean_interval
from rlreps.typing import ArrayLike, DoubleArray

DISTANCE = "subspace distance (0 equal, 1 orthogonal)"

_EACH = "each run"
_MOST_MARKERS = 10
"""A line with at most this many points has bars instead of a band."""
_MOST_COLUMNS = 3
"""Largest number of panels side by side."""
_SHIFT = 0.008
"""Distance between neighbouring lines with bars, as a share of the axis, to keep bars apart."""

REFERENCE: Mapping[str, Any] = {"color": MUTED, "zorder": 1}
_NOISE_FLOOR: Mapping[str, Any] = {**REFERENCE, "linestyle": (0, (4, 3)), "linewidth": 1.1}
_TITLE_WIDTH = 42
"""Characters of a title that fit above one of several panels."""
_LEGEND_ROWS, _ROW_HEIGHT = 3, 0.2
"""Rows of the legend that the figure has room for, and the height in inches of a further row."""


Look: TypeAlias = Mapping[str, Any]
"""Style of the lines of a variant, as arguments of matplotlib's ``plot``; solid by default."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """One line of a panel.

    Attributes:
        label: Its name in the legend; lines of one name look the same in every panel.
        x: Horizontal coordinates, [p], increasing.
        mean: Vertical coordinates, [p]; or [lines, p] for several lines with one name. NaN breaks a
            line.
        low: Lower ends of its intervals, [p]; NaN for points without one.
        high: Upper ends, [p].
        runs: Values of the runs, [runs, p], drawn thin behind the line.
        variant: The variant, which decides its style.

    Raises:
        InputError: For parts of different lengths, or no point.
    """

    label: str
    x: ArrayLike
    mean: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    runs: ArrayLike | None = None
    variant: str | None = None

    def __post_init__(self) -> None:
        points = np.shape(self.x)
        require(len(points) == 1 and points[0] >= 1, "x [p] with p >= 1", f"shape {points}")
        for name in ("mean", "low", "high", "runs"):
            part = getattr(self, name)
            if part is not None and (np.ndim(part) == 0 or np.shape(part)[-1] != points[0]):
                raise InputError(
                    f"expected {name} [..., {points[0]}] of line {self.label!r}, "
                    f"got shape {np.shape(part)}"
                )

    @classmethod
    def of_runs(
        cls,
        label: str,
        x: ArrayLike,
        runs: ArrayLike,
        *,
        middle: bool = False,
        within: tuple[float, float] | None = None,
        **others: Any,
    ) -> "Line":
        """Take the mean over runs with its 95 % interval or, at points of few runs, with the runs.

        Args:
            label: The line's name.
            x: Horizontal places of the runs' values, [p].
            runs: [runs, p], or [p] for one run; values that are not finite are left out, point by
                point.
            middle: Whether to take the interquartile mean.
            within: Smallest and largest possible value, to which intervals are clipped.
            **others: Further attributes.

        Raises:
            InputError: For shapes that do not fit together.
        """
        table = np.atleast_2d(np.asarray(runs, np.float64))
        parts = np.full((3, table.shape[1]), np.nan)
        known = np.isfinite(table)
        # Points at which the same runs have values share their resamples.
        for pattern in np.unique(known[:, known.any(axis=0)], axis=1).T:
            points = (known == pattern[:, None]).all(axis=0)
            interval = interquartile_mean_interval if middle else mean_interval
            parts[:, points] = interval(table[pattern][:, points])
            if pattern.sum() < FEWEST_BANDED:
                parts[1:, points] = np.nan
        if within is not None:
            parts[1:] = np.clip(parts[1:], *within)
        few = known & (known.sum(axis=0) < FEWEST_BANDED)
        if len(table) > 1 and few.any():
            others = {"runs": np.where(few, table, np.nan), **others}
        return cls(label=label, x=x, mean=parts[0], low=parts[1], high=parts[2], **others)


def over_runs(count: int, what: str = "seed") -> str:
    """Describe lines of this many runs: "mean over 5 seeds, 95 % interval"."""
    if count == 1:
        return f"one {what}"
    spread = "95 % interval" if count >= FEWEST_BANDED else "thin: each of them"
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"mean over {count} {several}, {spread}"


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
    noise_floor: tuple[ArrayLike, ArrayLike] | None = None


@styled
def plot_panels(
    panels: Sequence[Panel],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = True,
    x_ticks: Sequence[float] | Mapping[float, str] | None = None,
    reference_x: tuple[float, str] | None = None,
    reference_y: tuple[Sequence[float], str] | None = None,
    y_limits: tuple[float, float] | None = None,
    share_y: bool = True,
    looks: Mapping[str, Look] = MappingProxyType({}),
    note: str | None = None,
) -> Figure:
    """Draw panels, two or three to a row, with one legend below them.

    Args:
        panels: The panels, at least one.
        x_label: Text of the horizontal axes, with unit.
        y_label: Text of the vertical axes, with unit.
        log_x: Whether the horizontal axes are logarithmic.
        log_y: Whether the vertical axes are logarithmic; values that are not positive then count as
            missing.
        x_ticks: The only ticks of the horizontal axes, with their texts if a mapping.
        reference_x: Place of a dotted vertical line, and its name in the legend.
        reference_y: Places of dotted horizontal lines, and their name in the legend.
        y_limits: Limits of the vertical axes; by default they contain everything drawn.
        share_y: Whether all panels have the same vertical scale.
        looks: Variant → style of its lines; the legend names series in colour, then variants.
        note: Text above the legend, such as the meaning of the bands.

    Raises:
        InputError: Without a panel, a panel without a line, or a variant without a look.
    """
    require(len(panels) >= 1, "at least one panel", len(panels))
    require(all(panel.lines for panel in panels), "at least one line in every panel", "none")
    every = [line for panel in panels for line in panel.lines]
    for line in every:
        if line.variant is not None:
            require_choice("variant", line.variant, tuple(looks))
    # Rows are as even as possible: four panels make two rows of two.
    rows = math.ceil(len(panels) / (2 if not share_y else _MOST_COLUMNS))
    columns = math.ceil(len(panels) / rows)
    size = (6.4, 4.3) if len(panels) == 1 else (1.2 + 3.3 * columns, 1.1 + 2.9 * rows)
    figure = Figure(figsize=size)
    cells: npt.NDArray[Any] = figure.subplots(
        rows, columns, sharex=True, sharey=share_y, squeeze=False
    ).ravel()
    grid = cells[: len(panels)]
    for unused in cells[len(panels) :]:
        unused.set_axis_off()
    series = list(dict.fromkeys(line.label for line in every))
    bars = all(np.size(line.x) <= _MOST_MARKERS for line in every) and not looks
    # In units of the axis, or of its logarithm.
    places = joined(line.x for line in every)
    shifted = bars and have_intervals(every)
    shift = _SHIFT * np.ptp(np.log(places) if log_x else places) if shifted else 0.0
    for axes, panel in zip(grid, panels, strict=True):
        axes.grid(visible=True)
        title = panel.title if columns == 1 else textwrap.fill(panel.title, _TITLE_WIDTH)
        axes.set_title(title)
        axes.set_xscale("log" if log_x else "linear")
        axes.set_yscale("log" if log_y else "linear")
        if reference_x is not None:
            axes.axvline(reference_x[0], linestyle=":", label=reference_x[1], **REFERENCE)
        if reference_y is not None:
            for height in reference_y[0]:
                axes.axhline(height, linestyle=":", label=reference_y[1], **REFERENCE)
        for line in panel.lines:
            index = series.index(line.label)
            moved = shift * (index - (len(series) - 1) / 2)
            x = np.asarray(line.x, np.float64)
            x = x * np.exp(moved) if log_x else x + moved
            _draw(axes, line, x, index, bars=bars, log_y=log_y, look=looks.get(line.variant or ""))
        if panel.noise_floor is not None:
            floor = [np.asarray(part) for part in panel.noise_floor]
            axes.plot(*floor, label="noise floor of the ground truth", **_NOISE_FLOOR)
    for axes in grid[-columns:]:
        axes.set_xlabel(x_label)
        axes.xaxis.set_tick_params(labelbottom=True)
    if rows == 1:
        for axes in grid[:1] if share_y else grid:
            axes.set_ylabel(y_label)
    else:
        figure.supylabel(y_label, fontsize=grid[0].yaxis.label.get_size())
    if y_limits is not None:
        grid[0].set_ylim(*y_limits)
    elif log_y:
        groups = [panels] if share_y else [[panel] for panel in panels]
        for group, axes in zip(groups, grid, strict=False):
            _set_heights(axes, group, () if reference_y is None else reference_y[0])
    _set_ticks(grid, x_ticks, log_x=log_x, log_y=log_y)
    _legend(figure, grid, columns, note, series, looks)
    return figure


def joined(parts: Iterable[ArrayLike | None]) -> DoubleArray:
    """Join arrays of any shapes into one [entries]."""
    known = [np.ravel(np.asarray(part, np.float64)) for part in parts if part is not None]
    return np.concatenate([np.empty(0), *known])


def _draw(
    axes: Axes,
    line: Line,
    x: DoubleArray,
    index: int,
    *,
    bars: bool,
    log_y: bool,
    look: Look | None,
) -> None:
    """Draw a line, with its intervals as bars for few points and as a band for many."""
    mean = np.asarray(line.mean, np.float64)
    mean = np.where((mean > 0.0) | (not log_y), mean, np.nan)
    low, high = (
        np.asarray(np.full(x.shape, np.nan) if part is None else part, np.float64)
        for part in (line.low, line.high)
    )
    style = series_style(index)
    if look is not None:
        style |= {"linestyle": "-", "linewidth": 1.6, "alpha": 1.0, **look}
        # Bold lines must neither hide thin lines nor be covered by them.
        style["zorder"] = 2.0 + style["linewidth"] / 10.0
    if line.runs is not None:
        for number, run in enumerate(np.atleast_2d(np.asarray(line.runs, np.float64))):
            name = _EACH if number == 0 else None
            marked = np.flatnonzero(_isolated(np.isfinite(run))).tolist()
            thin = {"color": style["color"], "alpha": 0.4, "linewidth": 0.7}
            axes.plot(x, run, label=name, marker=".", markersize=4.0, markevery=marked, **thin)
    if bars and not (np.isfinite(low) & np.isfinite(high)).any():
        # Otherwise the legend would show bars.
        axes.plot(x, mean.T, label=line.label, **style)
        return
    if bars:
        ends = np.nan_to_num(np.maximum([mean - low, high - mean], 0.0))
        axes.errorbar(x, mean, ends, label=line.label, capsize=2.5, elinewidth=1.1, **style)
        return
    finite = np.isfinite(low) & np.isfinite(high)
    if finite.any():
        faint = 0.2 if look is None else 0.12 * style["alpha"]
        axes.fill_between(x, low, high, where=finite, color=style["color"], alpha=faint, lw=0)
        if (alone := _isolated(finite)).any():
            axes.vlines(x[alone], low[alone], high[alone], color=style["color"], alpha=0.5, lw=1.1)
    stride = max(1, len(x) // _MOST_MARKERS)
    marks = list(range((index * stride // 3) % stride, len(x), stride))
    style |= {"markeredgecolor": "white", "markeredgewidth": 0.6, "markevery": marks}
    axes.plot(x, mean.T, label=line.label, **style)


def _isolated(known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mark points without a known neighbour, [p], where lines and bands are invisible."""
    padded = np.pad(known, 1)
    return np.asarray(padded[1:-1] & ~padded[:-2] & ~padded[2:])


def _set_ticks(
    grid: npt.NDArray[Any],
    x_ticks: Sequence[float] | Mapping[float, str] | None,
    *,
    log_x: bool,
    log_y: bool,
) -> None:
    names = x_ticks if isinstance(x_ticks, Mapping) else {x: f"{x:g}" for x in x_ticks or ()}
    for axes in grid:
        if log_y:
            plain_log_ticks(axes.yaxis)
        if x_ticks is not None:
            axes.xaxis.set_major_locator(FixedLocator(list(names)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FixedFormatter(list(names.values())))
        elif log_x:
            plain_log_ticks(axes.xaxis)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6 if len(grid) == 1 else 4))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _set_heights(axes: Axes, panels: Sequence[Panel], references: Sequence[float]) -> None:
    """Set limits of logarithmic axes: they contain everything but ends of intervals near zero."""
    lines = [line for panel in panels for line in panel.lines]
    floors = [panel.noise_floor[1] for panel in panels if panel.noise_floor is not None]
    middle, outer, runs = (
        part[np.isfinite(part) & (part > 0.0)]
        for part in (
            joined([*(line.mean for line in lines), *floors, references]),
            joined(end for line in lines for end in (line.low, line.high)),
            joined(line.runs for line in lines),
        )
    )
    if middle.size:
        outer = np.clip(outer, middle.min() / 3.0, middle.max() * 3.0)
        heights: DoubleArray = np.concatenate([middle, outer, runs])
        margin = max((heights.max() / heights.min()) ** 0.05, 1.05)
        axes.set_ylim(heights.min() / margin, heights.max() * margin)


def _legend(
    figure: Figure,
    grid: npt.NDArray[Any],
    columns: int,
    note: str | None,
    series: Sequence[str],
    looks: Mapping[str, Look],
) -> None:
    """Name series in their order, then variants or references."""
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    entries: dict[str, Any] = {}
    for index, label in enumerate(series):
        style = series_style(index)
        plain = Line2D([], [], color=style["color"], marker=style["marker"])
        if label in handles:
            entries[label] = plain if looks else handles.pop(label)
    if not looks:
        entries |= handles
    for variant, look in looks.items():
        opacity = max(look.get("alpha", 1.0), 0.5)
        entries[variant] = Line2D(
            [], [], **{"color": MUTED, **look, "alpha": opacity, "marker": ""}
        )
    if _EACH in entries and len(series) > 1:
        entries[_EACH] = Line2D([], [], color=MUTED, alpha=0.6, linewidth=0.7)
    widest = max(map(len, entries), default=0)
    if widest == 0 and note is None:
        return
    fitting = max(1, int(columns * (1 if widest > 44 else 2 if widest > 20 else 3)))
    if columns > 1:
        fitting = min(fitting, 2 * columns if widest <= 24 else 2)
    fitting = max(1, min(fitting, len(entries)))
    further = math.ceil(len(entries) / fitting) - _LEGEND_ROWS
    figure.set_figheight(figure.get_figheight() + _ROW_HEIGHT * max(0, further))
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=fitting,
        title=note,
        handlelength=3.0,
    )


def have_intervals(lines: Iterable[Line]) -> bool:
    """Tell whether any line has an interval."""
    return bool(np.isfinite(joined(line.high for line in lines)).any())
