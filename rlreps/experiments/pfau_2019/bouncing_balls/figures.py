"""Figures of the bouncing-balls experiment, each with the numbers behind it."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from rlreps import plotting
from rlreps.plotting import Line, Panel, plot_panels
from rlreps.plotting.style import INK, MUTED, plain_log_ticks, styled
from rlreps.runs.intervals import aggregate

Rows: TypeAlias = list[dict[str, object]]

EIGENVALUE = "eigenvalue λ (0 never changes, 2 white noise)"


def draw_eigenvalues(
    networks: npt.ArrayLike, exact: Mapping[str, npt.ArrayLike], label: str
) -> Figure:
    """Eigenvalues of networks [networks, d] beside those of exact analyses [d], by name."""
    learned = aggregate(networks)
    count = np.arange(1, len(learned["mean"]) + 1)
    missing = np.full(len(count), np.nan)
    lines = [
        Line(
            label=label,
            x=count,
            mean=learned["mean"],
            low=learned["mean_low"],
            high=learned["mean_high"],
        )
    ]
    lines += [
        Line(label=name, x=count, mean=np.asarray(values), low=missing, high=missing)
        for name, values in exact.items()
    ]
    return plot_panels(
        [Panel(title="slowness of every feature, on fresh frames", lines=lines)],
        x_label="feature, after the constant",
        y_label=EIGENVALUE,
        x_ticks=count.tolist(),
        note=over(learned["runs"]),
    )


def over(networks: int) -> str:
    """What lines and bars of figures are."""
    if networks == 1:
        return "one network"
    return f"mean over {networks} networks, 95 % bootstrap interval"


@styled
def draw_training(steps: Sequence[int], networks: npt.ArrayLike, best: npt.ArrayLike) -> Figure:
    """Held-out eigenvalues over training.

    Args:
        steps: Updates, [p].
        networks: [networks, p, d].
        best: Eigenvalues of functions of positions, [d], as dashes at the right edge.
    """
    values = np.asarray(networks, np.float64)
    count = values.shape[2]
    colors = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, count))
    figure = Figure(figsize=(6.8, 4.2))
    axes = figure.subplots()
    axes.set(yscale="log", xlabel="update", ylabel=EIGENVALUE)
    axes.grid(visible=True)
    for index, color in enumerate(colors):
        curve = aggregate(values[:, :, index])
        axes.plot(steps, curve["mean"], color=color, label=str(index + 1))
        if len(values) > 1:
            axes.fill_between(
                steps, curve["mean_low"], curve["mean_high"], color=color, alpha=0.2, lw=0
            )
    margin = 0.04 * steps[-1]
    axes.set_xlim(-0.01 * steps[-1], steps[-1] + 1.5 * margin)
    axes.scatter(
        np.full(count, steps[-1] + margin),
        np.asarray(best),
        marker="_",
        s=70,
        c=colors,
        linewidths=1.8,
        zorder=3,
    )
    axes.plot([], [], "_", markersize=8, markeredgewidth=1.8, color=MUTED, label="positions")
    plain_log_ticks(axes.yaxis)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.legend(
        loc="outside right center",
        title="feature",
        handlelength=1.6,
        reverse=True,
    )
    return figure


def draw_maps(maps: npt.ArrayLike, eigenvalues: npt.ArrayLike) -> Figure:
    """Mean features [bins², d] against one ball's position."""
    table = np.asarray(maps)
    titles = [f"{k}: λ {value:.4f}" for k, value in enumerate(np.asarray(eigenvalues), start=1)]
    return plotting.plot_components(
        {"mean feature": table}, bins=round(len(table) ** 0.5), labels=titles
    )


@styled
def draw_extremes(frames: npt.ArrayLike, eigenvalues: npt.ArrayLike) -> Figure:
    """Frames [d, 2 · shown, size, size] that excite each feature least (left) and most (right)."""
    pictures, values = np.asarray(frames), np.asarray(eigenvalues)
    count, columns = pictures.shape[:2]
    half, side = columns // 2, 0.6
    figure = Figure(figsize=(1.0 + side * (columns + 0.3), 0.4 + side * count))
    grid = figure.subplots(
        count,
        columns + 1,
        squeeze=False,
        gridspec_kw={"width_ratios": [1.0] * half + [0.3] + [1.0] * half, "wspace": 0.04},
    )
    for index, line in enumerate(grid):
        line[half].set_axis_off()
        shown = [axes for column, axes in enumerate(line) if column != half]
        for axes, picture in zip(shown, pictures[index], strict=True):
            axes.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0, origin="upper")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(True)
        line[0].set_ylabel(
            f"{index + 1}\nλ {values[index]:.4f}",
            rotation=0,
            horizontalalignment="right",
            verticalalignment="center",
            fontsize=8.0,
            color=INK,
        )
    for column, text in ((half // 2, "least (most negative)"), (half + 1 + half // 2, "most")):
        grid[0, column].set_title(text, fontsize=9.0)
    return figure


def map_rows(maps: npt.ArrayLike) -> Rows:
    """The numbers behind the maps, a row a cell."""
    table = np.asarray(maps)
    bins = round(len(table) ** 0.5)
    return [
        {
            "x": (cell % bins + 0.5) / bins,
            "y": (cell // bins + 0.5) / bins,
            **{f"feature_{k}": value for k, value in enumerate(row, start=1)},
        }
        for cell, row in enumerate(table)
    ]
