"""PuddleWorld: the unit square with its puddles and goal, and an agent's values and policy."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.puddle_world import GOAL_SUM, PuddleWorld
from rlreps.errors import InputError, require, require_positive
from rlreps.plotting.style import INK, MISSING, MUTED, OKABE_ITO, styled
from rlreps.typing import ArrayLike

ACTIONS = ("up", "right", "down", "left")
ARROWS = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])
# Okabe & Ito (2008), lightened so that arrows and outlines are visible on them.
_ACTION_COLOURS = ("#8fc1e3", "#f2d98a", "#d9d9d9", "#e9a584")
_MOST_ARROWS = 13
"""Largest number of arrows along each axis; more would be too small to read."""

_WATER = OKABE_ITO[0]
_WALL: Mapping[str, Any] = {
    "facecolor": "#4d4d4d",
    "edgecolor": "#a6a6a6",
    "linewidth": 0.0,
    "hatch": "///",
}
_GOAL: Mapping[str, Any] = {"facecolor": "#a8dfca", "edgecolor": OKABE_ITO[2], "linewidth": 1.0}
_GOAL_EDGE: Mapping[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (3, 1.5))}
_CORNER_NAME = f"goal, x + y ≥ {GOAL_SUM:g}"


def outline(shape: Shape) -> Path:
    """Return the closed outline of a puddle's shape in the coordinates of the unit square.

    Raises:
        InputError: The shape is not a capsule, disc or convex polygon.
    """
    match shape:
        case Disc():
            x, y = np.asarray(shape.centre, np.float64).tolist()
            return Path.circle((x, y), float(shape.radius))
        case ConvexPolygon():
            vertices = np.asarray(shape.vertices, np.float64)
            return Path(np.concatenate([vertices, vertices[:1]]), closed=True)
        case Capsule():
            # Half a circle about each end point, joined by the two straight sides.
            start, end = (np.asarray(part, np.float64) for part in (shape.start, shape.end))
            heading, radius = np.rad2deg(np.arctan2(*(end - start)[::-1])), float(shape.radius)
            far, near = (Path.arc(heading + turn, heading + turn + 180) for turn in (-90, 90))
            ends = [
                centre + radius * np.asarray(arc.vertices)
                for centre, arc in ((end, far), (start, near))
            ]
            codes = np.concatenate(
                [np.asarray(far.codes), np.asarray(near.codes), [Path.CLOSEPOLY]]
            )
            codes[len(ends[0])] = Path.LINETO
            return Path(np.concatenate([*ends, ends[0][:1]]), codes)
    raise InputError(f"expected a Capsule, Disc or ConvexPolygon, got {type(shape).__name__}")


def draw_outlines(axes: Axes, environment: PuddleWorld, *, linewidth: float = 0.8) -> None:
    """Add the outline of every puddle of `environment` to axes over the unit square."""
    for puddle in environment.puddles:
        edge = PathPatch(
            outline(puddle.shape), fill=False, edgecolor=INK, linewidth=linewidth, zorder=3
        )
        axes.add_patch(edge)


@styled
def plot_environment(environment: PuddleWorld, *, bins: int | None = None) -> Figure:
    """Draw the unit square, x to the right and y up, shaded by the speed of moves.

    A puddle of multiplier m has opacity 1 − m. Where puddles overlap, transparencies multiply as
    the multipliers do, so every shade shows one product, as in the colour bar.

    Args:
        environment: Its `puddles`, and its goal if its task rewards reaching one.
        bins: Also draw the bins x bins cells of the successor measure.

    Raises:
        InputError: `bins` below 2, or a puddle of unknown shape.
    """
    if bins is not None:
        require_positive("bins", bins, least=2)
    multipliers = [float(np.asarray(puddle.multiplier)) for puddle in environment.puddles]
    figure = Figure(figsize=(5.0, 4.4))
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="x", ylabel="y", aspect="equal")
    axes.spines[:].set_visible(True)
    keys = []
    if environment.goal_region is not None:
        axes.add_patch(PathPatch(outline(environment.goal_region), zorder=1.5, **_GOAL))
        keys.append(Patch(label=_goal_name(environment), **_GOAL))
    for puddle, multiplier in zip(environment.puddles, multipliers, strict=True):
        look: dict[str, Any] = {**_WALL, "zorder": 2.5}
        if multiplier:
            look = {"facecolor": _WATER, "alpha": 1 - multiplier, "linewidth": 0.0, "zorder": 2.0}
        axes.add_patch(PathPatch(outline(puddle.shape), **look))
    draw_outlines(axes, environment)
    if bins is not None:
        borders = np.arange(1, bins) / bins
        for draw in (axes.vlines, axes.hlines):
            # Thinner if there are more.
            draw(borders, 0, 1, color=MUTED, linewidth=min(0.5, 15 / bins), alpha=0.6, zorder=2.7)
    if 0 in multipliers:
        keys.append(Patch(label="wall", **_WALL))
    if keys:
        figure.legend(handles=keys, loc="outside lower center", ncols=2, handlelength=2.2)
    if any(0 < multiplier < 1 for multiplier in multipliers):
        water = LinearSegmentedColormap.from_list("rlreps_water", [_WATER, "white"])
        figure.colorbar(
            ScalarMappable(Normalize(0, 1), water),
            ax=axes,
            label="speed multiplier (fraction of full speed)",
            shrink=0.85,
        )
    return figure


def _goal_name(environment: PuddleWorld) -> str:
    return _CORNER_NAME if environment.goal is True else "goal"


@styled
def plot_policy_and_value(environment: PuddleWorld, values: ArrayLike) -> Figure:
    """Draw two maps over the square: the value max_a Q(s, a), and the greedy action with arrows.

    Args:
        environment: Draw the outlines of its puddles, and of its goal if it has one.
        values: Q at the cells' centres, [bins², 4]; entry row * bins + column is the cell's, where
            row counts upwards in y. Actions are up, right, down, left. A cell with a NaN is grey.

    Raises:
        InputError: For another shape.
    """
    table = np.asarray(values, np.float64)
    bins = math.isqrt(table.size // len(ACTIONS))
    shape = (bins**2, len(ACTIONS))
    require(bins >= 1 and table.shape == shape, "values [bins * bins, 4]", table.shape)
    known: npt.NDArray[np.bool_] = np.asarray(np.isfinite(table).all(axis=1))
    best = np.where(known, table.max(axis=1), np.nan).reshape(bins, bins)
    greedy = np.where(known, np.where(known[:, None], table, 0.0).argmax(axis=1), -1)
    greedy = greedy.reshape(bins, bins)
    figure = Figure(figsize=(8.6, 4.2), layout=ConstrainedLayoutEngine(h_pad=0.08, wspace=0.08))
    value_axes, policy_axes = figure.subplots(1, 2, sharex=True, sharey=True)
    sequential = matplotlib.colormaps["viridis"].with_extremes(bad=MISSING)
    image = value_axes.imshow(best, extent=(0, 1, 0, 1), cmap=sequential)
    value_axes.set_title("value of the greedy action")
    value_axes.set_ylabel("y")
    figure.colorbar(image, ax=value_axes, label="discounted return", shrink=0.82)
    policy_axes.imshow(
        np.ma.masked_less(greedy, 0),
        extent=(0, 1, 0, 1),
        cmap=ListedColormap(_ACTION_COLOURS).with_extremes(bad=MISSING),
        norm=BoundaryNorm(np.arange(len(ACTIONS) + 1) - 0.5, len(ACTIONS)),
    )
    policy_axes.set_title("greedy action")
    stride = math.ceil(bins / _MOST_ARROWS)
    chosen = np.arange(stride // 2, bins, stride)
    rows, columns = (part.ravel() for part in np.meshgrid(chosen, chosen, indexing="ij"))
    decided = greedy[rows, columns] >= 0
    rows, columns = rows[decided], columns[decided]
    policy_axes.quiver(
        (columns + 0.5) / bins,
        (rows + 0.5) / bins,
        *ARROWS[greedy[rows, columns]].T,
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
    handles: list[Any] = [
        Patch(facecolor=colour, edgecolor=INK, linewidth=0.6, label=name)
        for name, colour in zip(ACTIONS, _ACTION_COLOURS, strict=True)
    ]
    for axes in (value_axes, policy_axes):
        draw_outlines(axes, environment, linewidth=1.0)
        if environment.goal_region is not None:
            # The other sides of the corner are those of the square.
            edge = np.asarray(outline(environment.goal_region).to_polygons()[0])
            edge = edge[:2] if environment.goal is True else edge
            goal = axes.plot(*edge.T, label=_goal_name(environment), **_GOAL_EDGE)
        axes.set(xlabel="x", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.spines[:].set_visible(True)
    if environment.goal_region is not None:
        handles += goal
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure
