"""The unit square with its puddles, walls and goal corner."""

from collections.abc import Sequence
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch, Polygon

from rlreps.envs.puddle_world import GOAL_SUM, Puddle, PuddleWorld
from rlreps.errors import InputError
from rlreps.plotting.outlines import draw_outlines, outline
from rlreps.plotting.style import MUTED, OKABE_ITO, FloatArray, styled

_WATER = OKABE_ITO[0]


class _Look(TypedDict):
    facecolor: str
    edgecolor: str
    linewidth: float
    hatch: str


_WALL: _Look = {"facecolor": "#4d4d4d", "edgecolor": "#a6a6a6", "linewidth": 0.0, "hatch": "///"}
_GOAL: _Look = {"facecolor": "#a8dfca", "edgecolor": OKABE_ITO[2], "linewidth": 1.0, "hatch": ""}
_MOST_TICKS = 6


@styled
def plot_environment(environment: PuddleWorld, *, bins: int | None = None) -> Figure:
    """The unit square, x to the right and y up, shaded by how far a move gets.

    A puddle of multiplier m lets the fraction m of the paper's white through, so overlaps darken
    exactly as multipliers compound: every shade stands for one product, as the colour bar shows.

    Args:
        environment: Its `puddles`, and its goal corner where its task rewards reaching one.
        bins: Draws the bins x bins cells of the successor measure.

    Raises:
        InputError: `bins` below 2, or a puddle whose shape is none of the known ones.
    """
    if bins is not None and bins < 2:
        raise InputError(f"expected at least 2 bins, got {bins}")
    figure = Figure(figsize=(5.0, 4.4))
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="x", ylabel="y", aspect="equal")
    axes.spines[:].set_visible(True)
    keys = [_draw_goal(axes)] if environment.goal else []
    for puddle in environment.puddles:
        _shade(axes, puddle)
    draw_outlines(axes, environment)
    if bins is not None:
        _draw_cells(axes, bins)
    if any(_multiplier(puddle) == 0 for puddle in environment.puddles):
        keys.append(Patch(label="wall", **_WALL))
    if keys:
        figure.legend(handles=keys, loc="outside lower center", ncols=2, handlelength=2.2)
    if any(0 < _multiplier(puddle) < 1 for puddle in environment.puddles):
        _add_colour_bar(figure, axes, environment.puddles)
    return figure


def _multiplier(puddle: Puddle) -> float:
    return float(np.asarray(puddle.multiplier))


def _shade(axes: Axes, puddle: Puddle) -> None:
    """Fills one puddle; the opacities of overlapping ones multiply what they let through."""
    multiplier = _multiplier(puddle)
    if multiplier == 0:
        axes.add_patch(PathPatch(outline(puddle.shape), zorder=2.5, **_WALL))
    else:
        axes.add_patch(
            PathPatch(
                outline(puddle.shape),
                facecolor=_WATER,
                alpha=1 - multiplier,
                linewidth=0.0,
                zorder=2.0,
            )
        )


def _draw_cells(axes: Axes, bins: int) -> None:
    """The borders between cells, thinner the more there are."""
    inner = np.arange(1, bins) / bins
    width = min(0.5, 15 / bins)
    axes.vlines(inner, 0, 1, color=MUTED, linewidth=width, alpha=0.6, zorder=2.7)
    axes.hlines(inner, 0, 1, color=MUTED, linewidth=width, alpha=0.6, zorder=2.7)


def _draw_goal(axes: Axes) -> Patch:
    """Fills the corner x + y >= 1.9 and returns its key for the legend."""
    cut = GOAL_SUM - 1.0
    axes.add_patch(Polygon([(cut, 1.0), (1.0, cut), (1.0, 1.0)], zorder=1.5, **_GOAL))
    return Patch(label=f"goal, x + y ≥ {GOAL_SUM:g}", **_GOAL)


def _products(puddles: Sequence[Puddle]) -> FloatArray:
    """The products of multipliers that occur in the square, largest first, walls left out."""
    places = (np.arange(200) + 0.5) / 200
    points = jnp.asarray(np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2))
    product = np.ones(len(points))
    for puddle in puddles:
        inside = np.asarray(jax.vmap(puddle.shape.depth)(points)) > 0
        product = np.where(inside, product * _multiplier(puddle), product)
    return np.unique(np.round(product[product > 0], 6))[::-1]


def _add_colour_bar(figure: Figure, axes: Axes, puddles: Sequence[Puddle]) -> None:
    """A bar of all shades, with ticks at the products that occur where they are few."""
    water = LinearSegmentedColormap.from_list("rlreps_water", [_WATER, "white"])
    products = _products(puddles)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), water),
        ax=axes,
        label="speed multiplier (fraction of full speed)",
        shrink=0.85,
    )
    if products.size <= _MOST_TICKS:
        bar.set_ticks(products.tolist(), labels=[f"{product:.3g}" for product in products])
