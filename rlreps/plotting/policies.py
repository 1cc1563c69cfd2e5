"""What an agent has learned about PuddleWorld, as maps over the unit square."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from rlreps.envs.puddle_world import GOAL_SUM, PuddleWorld
from rlreps.errors import require
from rlreps.plotting.components import plot_components
from rlreps.plotting.outlines import draw_outlines
from rlreps.plotting.style import INK, MISSING, FloatArray, styled

ACTIONS = ("up", "right", "down", "left")
_ARROWS = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])

# Okabe & Ito (2008), lightened: arrows and outlines have to stand out on them.
_ACTION_COLOURS = ("#8fc1e3", "#f2d98a", "#d9d9d9", "#e9a584")

_MOST_ARROWS = 13
"""Along each axis; more would be too small to read."""

_GOAL = f"goal, x + y ≥ {GOAL_SUM:g}"
_EDGE: Mapping[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (3, 1.5))}


@styled
def plot_policy_and_value(
    environment: PuddleWorld, values: npt.ArrayLike, *, value_label: str = "discounted return"
) -> Figure:
    """Two maps over the square: the value max_a Q(s, a), and the greedy action with arrows.

    Args:
        environment: Draws the outlines of its puddles, and its goal corner if it has one.
        values: Q at the cells' centres, [bins², 4]; entry row * bins + column is the cell's, where
            row counts upwards in y. Actions are up, right, down, left. A cell with a NaN is grey.
        value_label: Unit of the colour bar.

    Raises:
        InputError: For another shape.
    """
    table = np.asarray(values, np.float64)
    require(table.ndim == 2, "values [bins * bins, 4]", f"shape {table.shape}")
    bins = _bins(table)
    require(table.shape[1] == len(ACTIONS), "values [bins * bins, 4]", f"shape {table.shape}")
    known: npt.NDArray[np.bool_] = np.asarray(np.isfinite(table).all(axis=1))
    best = np.where(known, table.max(axis=1), np.nan).reshape(bins, bins)
    greedy = np.where(known, np.where(known[:, None], table, 0.0).argmax(axis=1), -1)
    figure = Figure(figsize=(8.6, 4.2), layout=ConstrainedLayoutEngine(h_pad=0.08, wspace=0.08))
    value_axes, policy_axes = figure.subplots(1, 2, sharex=True, sharey=True)
    sequential = matplotlib.colormaps["viridis"].with_extremes(bad=MISSING)
    image = value_axes.imshow(best, extent=(0, 1, 0, 1), cmap=sequential)
    value_axes.set_title("value of the greedy action")
    figure.colorbar(image, ax=value_axes, label=value_label, shrink=0.82)
    _draw_policy(policy_axes, greedy.reshape(bins, bins))
    policy_axes.set_title("greedy action")
    keys = [
        Patch(facecolor=colour, edgecolor=INK, linewidth=0.6, label=name)
        for name, colour in zip(ACTIONS, _ACTION_COLOURS, strict=True)
    ]
    for axes in (value_axes, policy_axes):
        draw_outlines(axes, environment, linewidth=1.0)
        if environment.goal:
            goal = axes.plot((GOAL_SUM - 1.0, 1.0), (1.0, GOAL_SUM - 1.0), label=_GOAL, **_EDGE)
        axes.set(xlabel="x", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.spines[:].set_visible(True)
    value_axes.set_ylabel("y")
    handles = [*keys, *goal] if environment.goal else keys
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _bins(table: FloatArray) -> int:
    """Cells a side of a table [bins * bins, ...]."""
    bins = math.isqrt(len(table))
    require(bins >= 1 and bins**2 == len(table), "rows for bins * bins cells", len(table))
    return bins


def _draw_policy(axes: Axes, greedy: npt.NDArray[np.int64]) -> None:
    """Cells in the colours of their actions, -1 in none, with an arrow in every few of them."""
    bins = len(greedy)
    axes.imshow(
        np.ma.masked_less(greedy, 0),
        extent=(0, 1, 0, 1),
        cmap=ListedColormap(_ACTION_COLOURS).with_extremes(bad=MISSING),
        norm=BoundaryNorm(np.arange(len(ACTIONS) + 1) - 0.5, len(ACTIONS)),
    )
    stride = math.ceil(bins / _MOST_ARROWS)
    chosen = np.arange(stride // 2, bins, stride)
    rows, columns = np.meshgrid(chosen, chosen, indexing="ij")
    shown = greedy[rows, columns] >= 0
    rows, columns = rows[shown], columns[shown]
    directions = _ARROWS[greedy[rows, columns]]
    axes.quiver(
        (columns + 0.5) / bins,
        (rows + 0.5) / bins,
        *directions.T,
        pivot="middle",
        angles="xy",
        scale_units="xy",
        scale=1.6 * bins / stride,
        width=0.006,
        headwidth=4.5,
        headlength=4.5,
        headaxislength=4.0,
        color=INK,
        zorder=4,
    )


def plot_torso_components(
    environment: PuddleWorld, learned: npt.ArrayLike, truth: npt.ArrayLike
) -> Figure:
    """A torso's principal components below the successor measure's, with the same limits.

    Columns are scaled to unit length, and learned ones turned to the sign of the true ones of the
    same number; |cosine| of the two is written below. Components are not otherwise matched: those
    of the torso are in the order of their own variance.

    Args:
        environment: Draws the outlines of its puddles.
        learned: Left singular vectors of the torso's centred features over the cells of a grid,
            [bins², k]; entry row * bins + column is the cell's.
        truth: Those of the centred successor measure, [bins², at least k].

    Raises:
        InputError: For shapes that do not fit together.
    """
    torso, measure = (np.asarray(part, np.float64) for part in (learned, truth))
    require(
        torso.ndim == measure.ndim == 2
        and len(torso) == len(measure)
        and 1 <= torso.shape[1] <= measure.shape[1],
        "learned [bins * bins, k] and true components [bins * bins, at least k]",
        (torso.shape, measure.shape),
    )
    bins = _bins(torso)
    torso, measure = _unit_columns(torso), _unit_columns(measure[:, : torso.shape[1]])
    cosines = np.sum(torso * measure, axis=0)
    return plot_components(
        {
            "successor measure": measure,
            "torso": torso * np.where(cosines < 0.0, -1.0, 1.0),
        },
        bins=bins,
        environment=environment,
        cosines={"torso": np.abs(cosines)},
    )


def _unit_columns(table: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(table, axis=0)
    scaled: FloatArray = table / np.where(lengths > 0.0, lengths, 1.0)
    return scaled
