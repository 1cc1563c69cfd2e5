"""Maps: the unit square with its puddles, fields of values over it, and small images in rows."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, PathPatch, Polygon
from matplotlib.path import Path

from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.puddle_world import GOAL_SUM, Puddle, PuddleWorld
from rlreps.errors import InputError, require
from rlreps.plotting.style import (
    INK,
    MISSING,
    MUTED,
    OKABE_ITO,
    FloatArray,
    signed_colormap,
    styled,
)


def outline(shape: Shape) -> Path:
    """Return the closed outline of a puddle's shape in the coordinates of the unit square.

    Raises:
        InputError: The shape is none of capsule, disc and convex polygon.
    """
    match shape:
        case Disc():
            centre = np.asarray(shape.centre, dtype=np.float64)
            return Path.circle((float(centre[0]), float(centre[1])), float(shape.radius))
        case ConvexPolygon():
            vertices = np.asarray(shape.vertices, dtype=np.float64)
            return Path(np.concatenate([vertices, vertices[:1]]), closed=True)
        case Capsule():
            start, end = (np.asarray(part, dtype=np.float64) for part in (shape.start, shape.end))
            return _capsule_outline(start, end, float(shape.radius))
    raise InputError(f"expected a Capsule, Disc or ConvexPolygon, got {type(shape).__name__}")


def _capsule_outline(start: FloatArray, end: FloatArray, radius: float) -> Path:
    """Join half a circle about each end point by the two straight sides."""
    axis = end - start
    heading = float(np.rad2deg(np.arctan2(axis[1], axis[0])))
    far, near = Path.arc(heading - 90, heading + 90), Path.arc(heading + 90, heading + 270)
    corners = [end + radius * np.asarray(far.vertices), start + radius * np.asarray(near.vertices)]
    codes = np.concatenate([np.asarray(far.codes), np.asarray(near.codes), [Path.CLOSEPOLY]])
    codes[len(corners[0])] = Path.LINETO
    return Path(np.concatenate([*corners, corners[0][:1]]), codes)


def draw_outlines(axes: Axes, environment: PuddleWorld, *, linewidth: float = 0.8) -> None:
    """Add the outline of every puddle of `environment` to axes over the unit square."""
    for puddle in environment.puddles:
        axes.add_patch(
            PathPatch(
                outline(puddle.shape), fill=False, edgecolor=INK, linewidth=linewidth, zorder=3
            )
        )


_WATER = OKABE_ITO[0]


class _PatchLook(TypedDict):
    facecolor: str
    edgecolor: str
    linewidth: float
    hatch: str


_WALL: _PatchLook = {
    "facecolor": "#4d4d4d",
    "edgecolor": "#a6a6a6",
    "linewidth": 0.0,
    "hatch": "///",
}
_GOAL: _PatchLook = {
    "facecolor": "#a8dfca",
    "edgecolor": OKABE_ITO[2],
    "linewidth": 1.0,
    "hatch": "",
}
_MOST_TICKS = 6


@styled
def plot_environment(environment: PuddleWorld, *, bins: int | None = None) -> Figure:
    """Draw the unit square, x to the right and y up, shaded by how far a move gets.

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
    """Fill one puddle; the opacities of overlapping ones multiply what they let through."""
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
    """Draw the borders between cells, thinner the more there are."""
    inner = np.arange(1, bins) / bins
    width = min(0.5, 15 / bins)
    axes.vlines(inner, 0, 1, color=MUTED, linewidth=width, alpha=0.6, zorder=2.7)
    axes.hlines(inner, 0, 1, color=MUTED, linewidth=width, alpha=0.6, zorder=2.7)


def _draw_goal(axes: Axes) -> Patch:
    """Fill the corner x + y >= 1.9 and return its key for the legend."""
    cut = GOAL_SUM - 1.0
    axes.add_patch(Polygon([(cut, 1.0), (1.0, cut), (1.0, 1.0)], zorder=1.5, **_GOAL))
    return Patch(label=f"goal, x + y ≥ {GOAL_SUM:g}", **_GOAL)


def _products(puddles: Sequence[Puddle]) -> FloatArray:
    """Find the products of multipliers that occur in the square, largest first, walls left out."""
    places = (np.arange(200) + 0.5) / 200
    points = jnp.asarray(np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2))
    product = np.ones(len(points))
    for puddle in puddles:
        inside = np.asarray(jax.vmap(puddle.shape.depth)(points)) > 0
        product = np.where(inside, product * _multiplier(puddle), product)
    return np.unique(np.round(product[product > 0], 6))[::-1]


def _add_colour_bar(figure: Figure, axes: Axes, puddles: Sequence[Puddle]) -> None:
    """Add a bar of all shades, with ticks at the products that occur where they are few."""
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


_MOST_MAPS = 10
_NAME_WIDTH = 14
"""Most maps side by side, and most characters of a set's name in one line beside them."""


@styled
def plot_components(
    components: Mapping[str, npt.ArrayLike],
    *,
    bins: int,
    labels: Sequence[str] | None = None,
    environment: PuddleWorld | None = None,
    cosines: Mapping[str, npt.ArrayLike] | None = None,
) -> Figure:
    """Draw component i of every set in column i, one set under the other, as bins x bins maps.

    All maps of one component share their limits, symmetric about zero: the largest magnitude among
    them, written above the column. Signs and order are the caller's to match beforehand. More than
    ten components wrap into blocks of rows.

    Args:
        components: Sets by name, each [n, k] with n = bins * bins; entry row * bins + column is the
            cell's, where row counts upwards in y and column to the right in x. NaN cells are grey.
        bins: Cells a side.
        labels: Column titles [k]; the numbers 1 to k by default.
        environment: Draws the outlines of its puddles on every map.
        cosines: For sets named here, |cosine| [k] between each map and the true one, written below
            it.

    Raises:
        InputError: No set, a shape that is not [bins * bins, k] with one k for all sets, labels or
            cosines that do not match, or cosines of a set that is not there.
    """
    maps = _as_maps(components, bins)
    count = next(iter(maps.values())).shape[0]
    titles = [str(number + 1) for number in range(count)] if labels is None else list(labels)
    if len(titles) != count:
        raise InputError(f"expected {count} labels, one a component, got {len(titles)}")
    matches = _as_matches(cosines or {}, maps, count)
    limits = _shared_limits(maps)
    blocks = math.ceil(count / _MOST_MAPS)
    columns = math.ceil(count / blocks)
    figure, grid = _map_grid(len(maps), blocks, columns, has_notes=bool(matches))
    for number, column_limit in enumerate(limits.tolist()):
        block, column = divmod(number, columns)
        for row, (name, table) in enumerate(maps.items()):
            axes = grid[block * len(maps) + row, column]
            _draw_map(axes, table[number], column_limit, environment)
            if row == 0:
                axes.set_title(f"{titles[number]}\n±{column_limit:#.2g}", fontsize=8.5)
            if column == 0:
                axes.set_ylabel(textwrap.fill(name, _NAME_WIDTH))
            if name in matches:
                axes.set_xlabel(f"|cos| {matches[name][number]:.3f}", fontsize=8.0, labelpad=2)
    _finish_maps(figure, grid, count - columns * (blocks - 1), len(maps))
    return figure


def _as_maps(components: Mapping[str, npt.ArrayLike], bins: int) -> dict[str, FloatArray]:
    """Return every set as maps [k, bins, bins], row upwards in y."""
    if not components:
        raise InputError("expected at least one set of components, got none")
    tables = {name: np.asarray(table, dtype=np.float64) for name, table in components.items()}
    count = next(iter(tables.values())).shape[-1:]
    for name, table in tables.items():
        if table.ndim != 2 or table.shape != (bins * bins, *count) or table.size == 0:
            raise InputError(
                f"expected {name!r} to be [{bins * bins}, k] with one k for all sets, "
                f"got shape {table.shape}"
            )
    return {name: table.T.reshape(-1, bins, bins) for name, table in tables.items()}


def _as_matches(
    cosines: Mapping[str, npt.ArrayLike], maps: Mapping[str, FloatArray], count: int
) -> dict[str, FloatArray]:
    matches = {name: np.abs(np.asarray(row, dtype=np.float64)) for name, row in cosines.items()}
    for name, row in matches.items():
        if name not in maps:
            raise InputError(f"expected cosines of {', '.join(map(repr, maps))}, got {name!r}")
        if row.shape != (count,):
            raise InputError(f"expected {count} cosines for {name!r}, got shape {row.shape}")
    return matches


def _shared_limits(maps: Mapping[str, FloatArray]) -> FloatArray:
    """Find the largest finite magnitude of each component over all sets [k]; 1 if all are zero."""
    stacked = np.stack(list(maps.values()))
    limits = np.abs(np.where(np.isfinite(stacked), stacked, 0.0)).max(axis=(0, 2, 3))
    return np.where(limits > 0, limits, 1.0)


def _map_grid(
    sets: int, blocks: int, columns: int, *, has_notes: bool
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """Make an empty figure with a grid of axes [sets * blocks, columns] for square maps."""
    side = min(max(7.0 / columns, 0.9), 2.4)
    height = sets * (side + (0.24 if has_notes else 0.08)) + 0.4
    figure = Figure(
        figsize=(columns * (side + 0.06) + 1.2, blocks * height + 0.1),
        layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02),
    )
    grid = figure.subplots(sets * blocks, columns, squeeze=False, sharex=True, sharey=True)
    return figure, grid


def _draw_map(axes: Axes, cells: FloatArray, limit: float, environment: PuddleWorld | None) -> None:
    axes.imshow(
        cells,
        origin="lower",
        extent=(0, 1, 0, 1),
        cmap=signed_colormap(),
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
    )
    # The axis names stand between the ends of the axes: beside 30 maps there is no room elsewhere.
    axes.set_xticks([0, 0.5, 1], labels=["0", "x", "1"])
    axes.set_yticks([0, 0.5, 1], labels=["0", "y", "1"])
    axes.tick_params(labelsize=7.0, length=0.0, pad=1.5)
    axes.spines[:].set_visible(True)
    if environment is not None:
        draw_outlines(axes, environment, linewidth=0.6)


def _finish_maps(
    figure: Figure, grid: npt.NDArray[np.object_], in_last_block: int, rows_in_block: int
) -> None:
    """Remove the empty axes of the last block and add the one colour bar."""
    for axes in grid[-rows_in_block:, in_last_block:].ravel():
        axes.remove()
    figure.colorbar(
        ScalarMappable(Normalize(-1, 1), signed_colormap()),
        ax=[axes for axes in grid.ravel() if axes.figure is not None],
        label="value relative to ± limit",
        ticks=[-1, 0, 1],
        shrink=0.8,
        aspect=25,
        pad=0.01,
    )


ACTIONS = ("up", "right", "down", "left")
_ARROWS = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])

# Okabe & Ito (2008), lightened: arrows and outlines have to stand out on them.
_ACTION_COLOURS = ("#8fc1e3", "#f2d98a", "#d9d9d9", "#e9a584")

_MOST_ARROWS = 13
"""Along each axis; more would be too small to read."""

_GOAL_NAME = f"goal, x + y ≥ {GOAL_SUM:g}"
_EDGE: Mapping[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (3, 1.5))}


@styled
def plot_policy_and_value(
    environment: PuddleWorld, values: npt.ArrayLike, *, value_label: str = "discounted return"
) -> Figure:
    """Draw two maps over the square: the value max_a Q(s, a), and the greedy action with arrows.

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
    bins = _cells_a_side(table)
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
    _draw_greedy(policy_axes, greedy.reshape(bins, bins))
    policy_axes.set_title("greedy action")
    keys = [
        Patch(facecolor=colour, edgecolor=INK, linewidth=0.6, label=name)
        for name, colour in zip(ACTIONS, _ACTION_COLOURS, strict=True)
    ]
    for axes in (value_axes, policy_axes):
        draw_outlines(axes, environment, linewidth=1.0)
        if environment.goal:
            goal = axes.plot(
                (GOAL_SUM - 1.0, 1.0), (1.0, GOAL_SUM - 1.0), label=_GOAL_NAME, **_EDGE
            )
        axes.set(xlabel="x", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.spines[:].set_visible(True)
    value_axes.set_ylabel("y")
    handles = [*keys, *goal] if environment.goal else keys
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _cells_a_side(table: FloatArray) -> int:
    """Count the cells a side of a table [bins * bins, ...]."""
    bins = math.isqrt(len(table))
    require(bins >= 1 and bins**2 == len(table), "rows for bins * bins cells", len(table))
    return bins


def _draw_greedy(axes: Axes, greedy: npt.NDArray[np.int64]) -> None:
    """Draw cells in the colours of their actions, -1 in none, with arrows in some of them."""
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
    """Draw a torso's principal components below the successor measure's, with the same limits.

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
    bins = _cells_a_side(torso)
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


_SIDE = 0.62
"""Width of one image in inches."""

_LABEL = 1.85
"""Width of the row labels in inches."""

_MARGIN = 0.1
"""Height of the figure's margins in inches."""

_TITLE = 0.2
"""Height of column titles and of a line below every row, in inches."""


@styled
def plot_reconstructions(
    rows: Mapping[str, npt.ArrayLike], *, notes: Mapping[str, str] | None = None
) -> Figure:
    """Draw a row of grey images for each name, the same image in each column.

    All images share one scale: 0 is black and 1 is white, and what lies outside is clipped.

    Args:
        rows: Images [count, height, width] by name, the top row of pixels first.
        notes: Second line of a row's label, such as its mean error.

    Raises:
        InputError: No row, images of different shapes, or notes of a row that is not there.
    """
    tables, remarks = _as_tables(rows), dict(notes or {})
    _require_known(remarks, tables, "notes")
    count = len(next(iter(tables.values())))
    figure, grid = _image_grid(tables, count, 1, text_height=0.0)
    for (name, images), line in zip(tables.items(), grid, strict=True):
        for image, axes in zip(images, line, strict=True):
            axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, origin="upper")
        _label_row(line[0], f"{name}\n{remarks[name]}" if name in remarks else name)
    return figure


@styled
def plot_signed_images(
    rows: Mapping[str, npt.ArrayLike],
    *,
    titles: Sequence[str],
    cosines: Mapping[str, npt.ArrayLike] | None = None,
) -> Figure:
    """Draw a row of images of signed values for each name, such as principal components.

    The images of one column share their limits, symmetric about zero: the largest magnitude among
    them. Signs and order are the caller's to match beforehand. More than ten columns wrap into
    blocks of rows.

    Args:
        rows: Images [count, height, width] by name, the top row of pixels first.
        titles: Column titles [count].
        cosines: For names given here, |cosine| [count] written below each image.

    Raises:
        InputError: No row, images of different shapes, titles or cosines that do not match them.
    """
    tables = _as_tables(rows)
    matches = {name: np.abs(np.asarray(row, float)) for name, row in (cosines or {}).items()}
    _require_known(matches, tables, "cosines")
    count = len(next(iter(tables.values())))
    for what, given in (("titles", titles), *matches.items()):
        if len(given) != count:
            raise InputError(f"expected {count} entries of {what}, got {len(given)}")
    limits = np.max(np.abs(np.stack(list(tables.values()))), axis=(0, 2, 3))
    blocks = math.ceil(count / _MOST_MAPS)
    columns = math.ceil(count / blocks)
    figure, grid = _image_grid(tables, columns, blocks, text_height=_TITLE * (1 + len(matches)))
    for index in range(count):
        block, column = divmod(index, columns)
        panels = grid[block * len(tables) : (block + 1) * len(tables), column]
        limit = float(limits[index]) or 1.0
        for axes, (name, images) in zip(panels, tables.items(), strict=True):
            axes.imshow(
                images[index], cmap=signed_colormap(), vmin=-limit, vmax=limit, origin="upper"
            )
            if name in matches:
                axes.set_xlabel(f"{matches[name][index]:.3f}", fontsize=7.5, labelpad=2)
            if column == 0:
                _label_row(axes, f"{name}\n|cos|, below" if name in matches else name)
        panels[0].set_title(titles[index], fontsize=8.5)
    figure.colorbar(
        ScalarMappable(Normalize(-1, 1), signed_colormap()),
        ax=grid.ravel().tolist(),
        label="value relative to\nits column's largest",
        ticks=[-1, 0, 1],
        shrink=0.8,
        aspect=18,
        pad=0.01,
    )
    return figure


def _image_grid(
    tables: Mapping[str, FloatArray], columns: int, blocks: int, *, text_height: float
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """Make a figure with one axes an image and ``text_height`` inches of text a block."""
    _, height, width = next(iter(tables.values())).shape
    block_height = _SIDE * height / width * len(tables) + text_height
    figure = Figure(figsize=(_LABEL + _SIDE * columns, _MARGIN + block_height * blocks))
    grid = figure.subplots(
        len(tables) * blocks, columns, squeeze=False, gridspec_kw={"wspace": 0.04}
    )
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure, grid


def _label_row(axes: Axes, text: str) -> None:
    axes.set_ylabel(text, rotation=0, horizontalalignment="right", verticalalignment="center")


def _require_known(
    given: Mapping[str, object], tables: Mapping[str, FloatArray], what: str
) -> None:
    for name in given:
        if name not in tables:
            raise InputError(f"expected {what} of {', '.join(map(repr, tables))}, got {name!r}")


def _as_tables(rows: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
    """Return every row as images [count, height, width]."""
    if not rows:
        raise InputError("expected at least one row of images, got none")
    tables = {name: np.asarray(images, dtype=np.float64) for name, images in rows.items()}
    shape = next(iter(tables.values())).shape
    for name, images in tables.items():
        if images.ndim != 3 or images.shape != shape or images.size == 0:
            raise InputError(
                f"expected images [count, height, width] of one shape, got {images.shape} for "
                f"{name!r}"
            )
    return tables
