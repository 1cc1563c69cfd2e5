"""Agents compared: learning curves of their returns, and how likely one improves on another."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps.errors import require
from rlreps.plotting.panels import Line, Panel, plot_panels
from rlreps.plotting.seeds import seed_count
from rlreps.plotting.style import MUTED, OKABE_ITO, styled
from rlreps.runs.intervals import aggregate


def plot_sample_efficiency(
    steps: npt.ArrayLike,
    returns: Mapping[str, npt.ArrayLike],
    *,
    title: str = "",
    reference: tuple[float, str] | None = None,
) -> Figure:
    """Returns by environment steps: interquartile means over seeds with 95 % bootstrap intervals.

    Args:
        steps: Environment steps of an agent at each evaluation, [p], increasing.
        returns: Mean return of an evaluation's episodes by method, [seeds, p] each, all finite.
        title: Text above the axes.
        reference: A return to draw a dotted line at, and its name in the legend.

    Raises:
        InputError: Without a method, for shapes that do not fit together, or values that are not
            finite.
    """
    require(len(returns) >= 1, "at least one method", len(returns))
    when = np.asarray(steps)
    lines = []
    for label, values in returns.items():
        table = np.asarray(values, np.float64)
        require(
            table.ndim == 2 and when.ndim == 1 and table.shape[1] == when.size,
            f"returns [seeds, {when.size}] of {label!r}",
            f"shape {table.shape}",
        )
        found = aggregate(table)
        lines.append(
            Line(
                label=f"{label} ({seed_count(table)})",
                x=when,
                mean=found["interquartile_mean"],
                low=found["interquartile_mean_low"],
                high=found["interquartile_mean_high"],
            )
        )
    figure = plot_panels(
        [Panel(title=title, lines=lines)],
        x_label="environment steps of an agent",
        y_label="",
        log_y=False,
        reference_y=None if reference is None else ([reference[0]], reference[1]),
        note="interquartile mean over seeds, 95 % bootstrap interval",
    )
    # Beside the axes: beside the figure it would stand in the middle of axes and legend.
    figure.axes[0].set_ylabel("return of an evaluation episode")
    return figure


@styled
def plot_improvements(
    estimates: Mapping[str, Sequence[float]], *, baseline: str = "no auxiliary task"
) -> Figure:
    """Probabilities of improvement with their intervals, one row a method, around a line at 1/2.

    Intervals on one side of the line are drawn filled, those that reach over it hollow.

    Args:
        estimates: (probability, low, high) by method, the first at the top; NaN ends for none.
        baseline: What the methods are compared with.

    Raises:
        InputError: Without a method, or numbers that are not (probability, low, high) in [0, 1].
    """
    require(len(estimates) >= 1, "at least one method", len(estimates))
    for label, estimate in estimates.items():
        numbers = np.asarray(estimate, np.float64)
        known = numbers[~np.isnan(numbers)]
        require(
            numbers.shape == (3,) and bool(np.all((known >= 0.0) & (known <= 1.0))),
            f"(probability, low, high) in [0, 1] of {label!r}",
            estimate,
        )
    figure = Figure(figsize=(5.6, 1.2 + 0.34 * len(estimates)))
    axes = figure.add_subplot()
    axes.axvline(0.5, color=MUTED, linestyle=":", zorder=1)
    for row, (value, low, high) in enumerate(estimates.values()):
        decided = low > 0.5 or high < 0.5
        axes.plot([low, high], [row, row], color=OKABE_ITO[0], linewidth=2.4, solid_capstyle="butt")
        axes.plot(
            value,
            row,
            "o",
            color=OKABE_ITO[0],
            markerfacecolor=OKABE_ITO[0] if decided else "white",
            markersize=6.5,
            markeredgewidth=1.5,
        )
    axes.set(
        xlim=(-0.02, 1.02),
        ylim=(len(estimates) - 0.4, -0.6),
        xlabel=f"probability of improvement over {baseline}, 95 % bootstrap interval",
    )
    axes.set_yticks(range(len(estimates)), labels=list(estimates))
    axes.tick_params(axis="y", length=0.0)
    axes.grid(visible=True, axis="x")
    return figure
