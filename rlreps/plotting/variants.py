"""Panels of series in variants: a series has a colour and a marker, a variant a way to be drawn."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from rlreps.errors import require, require_choice
from rlreps.plotting.style import MUTED, plain_log_ticks, series_style, styled

_MOST_MARKERS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """How the lines of a variant are drawn.

    Attributes:
        linestyle: Matplotlib's.
        linewidth: In points.
        alpha: Opacity, in (0, 1].
        marked: Whether they have their series' marker.
    """

    linestyle: Literal["-", "--", ":"] | tuple[float, tuple[float, ...]] = "-"
    linewidth: float = 1.6
    alpha: float = 1.0
    marked: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class VariantLines:
    """Lines of one series in one variant.

    Attributes:
        series: Its name in the legend.
        variant: Which of the looks they have.
        x: [p].
        y: [p], or [lines, p]; NaN breaks a line, and so does what is not positive.
        band: Lower and upper ends [p] of a band behind them, or None.
    """

    series: str
    variant: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    band: tuple[npt.ArrayLike, npt.ArrayLike] | None = None


@styled
def plot_variants(
    panels: Mapping[str, Sequence[VariantLines]],
    looks: Mapping[str, Look],
    *,
    x_label: str,
    y_label: str,
    note: str | None = None,
) -> Figure:
    """Panels side by side, with the same logarithmic heights and one legend.

    Args:
        panels: Title → lines.
        looks: Variant → how it is drawn, in the legend's order.
        x_label: Text of the horizontal axes, with unit.
        y_label: Text of the vertical axis, with unit.
        note: Text above the legend.

    Raises:
        InputError: Without a panel, or for a variant without a look.
    """
    require(len(panels) >= 1, "at least one panel", len(panels))
    every = [lines for panel in panels.values() for lines in panel]
    for lines in every:
        require_choice("variant", lines.variant, tuple(looks))
    series = list(dict.fromkeys(lines.series for lines in every))
    figure = Figure(figsize=(max(5.6, 1.2 + 3.3 * len(panels)), 3.9))
    grid: npt.NDArray[Any] = figure.subplots(1, len(panels), sharey=True, squeeze=False).ravel()
    for axes, (title, panel) in zip(grid, panels.items(), strict=True):
        axes.grid(visible=True)
        axes.set_title(title)
        axes.set_yscale("log")
        axes.set_xlabel(x_label)
        for lines in panel:
            _draw(axes, lines, looks[lines.variant], series.index(lines.series))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    plain_log_ticks(grid[0].yaxis)
    grid[0].set_ylabel(y_label)
    _legend(figure, len(panels), series, looks, note)
    return figure


def _draw(axes: Axes, lines: VariantLines, look: Look, index: int) -> None:
    x, y = np.asarray(lines.x, np.float64), np.atleast_2d(np.asarray(lines.y, np.float64))
    style = series_style(index)
    stride = max(1, len(x) // _MOST_MARKERS)
    if lines.band is not None:
        low, high = (np.asarray(end, np.float64) for end in lines.band)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.12 * look.alpha, linewidth=0)
    axes.plot(
        x,
        np.where(y > 0.0, y, np.nan).T,
        color=style["color"],
        marker=style["marker"] if look.marked else "",
        markevery=list(range((index * stride // 3) % stride, len(x), stride)),
        linestyle=look.linestyle,
        linewidth=look.linewidth,
        alpha=look.alpha,
        # What is drawn thin must not hide behind what is drawn bold, nor cover it.
        zorder=2.0 + look.linewidth / 10.0,
    )


def _legend(
    figure: Figure,
    columns: int,
    series: Sequence[str],
    looks: Mapping[str, Look],
    note: str | None,
) -> None:
    """Series as coloured lines with markers, then variants in grey."""
    styles = [series_style(index) for index in range(len(series))]
    handles = [Line2D([], [], color=each["color"], marker=each["marker"]) for each in styles]
    handles += [
        Line2D(
            [],
            [],
            color=MUTED,
            linestyle=look.linestyle,
            linewidth=look.linewidth,
            alpha=max(look.alpha, 0.5),
        )
        for look in looks.values()
    ]
    figure.legend(
        handles,
        [*series, *looks],
        loc="outside lower center",
        # Two entries fit below a panel.
        ncols=min(2 * columns, 4, len(handles)),
        title=note,
        handlelength=3.0,
    )
