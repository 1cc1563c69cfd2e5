"""How one run of agents went: its returns and every measure of its torsos over time."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from rlreps.errors import require
from rlreps.plotting.seeds import seed_count
from rlreps.plotting.style import OKABE_ITO, FloatArray, styled
from rlreps.runs.intervals import aggregate

_COLUMNS = 2
_FEW = 10


@styled
def plot_learning(steps: npt.ArrayLike, measures: Mapping[str, npt.ArrayLike]) -> Figure:
    """A panel for each measure, with limits of its own: every agent, and their interquartile mean.

    Its 95 % bootstrap interval is drawn where there are several agents.

    Args:
        steps: Environment steps of an agent at each evaluation, [p], increasing.
        measures: By the text above their panel, [seeds, p] each; NaN where there is no value.

    Raises:
        InputError: Without a measure, or for shapes that do not fit together.
    """
    when = np.asarray(steps, np.float64)
    require(len(measures) >= 1, "at least one measure", len(measures))
    tables = {title: np.asarray(values, np.float64) for title, values in measures.items()}
    for title, table in tables.items():
        require(
            when.ndim == 1 and table.ndim == 2 and table.shape[1] == when.size and table.size > 0,
            f"values [seeds, {when.size}] of {title!r}",
            f"shape {table.shape}",
        )
    columns = min(_COLUMNS, len(tables))
    rows = math.ceil(len(tables) / columns)
    figure = Figure(
        figsize=(max(5.6, 4.2 * columns), 0.8 + 2.5 * rows),
        layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08),
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, table) in zip(grid, tables.items(), strict=False):
        _draw(axes, when, table)
        axes.set_title(title)
    for axes in grid[len(tables) :]:
        axes.set_axis_off()
    for axes in grid[max(0, len(tables) - columns) : len(tables)]:
        axes.set_xlabel("environment steps of an agent")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return figure


def _draw(axes: Axes, when: FloatArray, table: FloatArray) -> None:
    colour = OKABE_ITO[0]
    centre, low, high = _interquartile(table)
    axes.grid(visible=True)
    if len(table) > 1:
        band = "95 % bootstrap interval"
        axes.fill_between(when, low, high, color=colour, alpha=0.2, linewidth=0, label=band)
        for index, line in enumerate(table):
            label = "each agent" if index == 0 else None
            axes.plot(when, line, color=colour, alpha=0.4, linewidth=0.7, label=label)
    several = f"interquartile mean ({seed_count(table)})"
    label = several if len(table) > 1 else "one agent"
    # A run that has just begun is a point, which a line would not show.
    marker = "o" if when.size <= _FEW else None
    axes.plot(when, centre, color=colour, linewidth=1.8, marker=marker, markersize=3.5, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _interquartile(table: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Interquartile mean [p] of [seeds, p] with its interval; NaN where a seed has no value."""
    parts = np.full((3, table.shape[1]), np.nan)
    known = np.isfinite(table).all(axis=0)
    if known.any():
        found = aggregate(table[:, known])
        for part, end in zip(parts, ("", "_low", "_high"), strict=True):
            part[known] = found[f"interquartile_mean{end}"]
    return parts[0], parts[1], parts[2]
