"""Maps: the unit square with its puddles, and fields of values over it."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import (
    BoundaryNorm,
    LinearSegmentedColormap,
    ListedColormap,
    LogNorm,
    Normalize,
)
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc, Shape
from rlreps.envs.puddle_world import GOAL_SUM, PuddleWorld
from rlreps.errors import InputError, require, require_positive
from rlreps.plotting.style import (
    INK,
    MISSING,
    MUTED,
    OKABE_ITO,
    DoubleArray,
    plain_log_ticks,
    signed_colormap,
    styled,
)
from rlreps.successor.measure.grids import BoxGrid, Grid
from rlreps.typing import ArrayLike

ACTIONS = ("up", "right", "down", "left")
ARROWS = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])
# Okabe & Ito (2008), lightened so that arrows and outlines are visible on them.
_ACTION_COLOURS = ("#8fc1e3", "#f2d98a", "#d9d9d9", "#e9a584")
_MOST_PAIRS = 40
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

_SHORT_NAME = 3
"""Largest number of characters of an axis' name between the ends of a small map."""
MOST_MAPS = 10
_NAME_WIDTH = 14
"""Largest number of maps in a row, and of characters in one line of a set's name beside the row."""
_MOST_OF_ONE_SET = 5
"""Largest number of maps in a row if there is one set: a strip of ten is too small to read."""


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
def plot_components(
    components: Mapping[str, ArrayLike],
    *,
    bins: int | None = None,
    grid: BoxGrid | None = None,
    cells: ArrayLike | None = None,
    coordinates: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
    environment: PuddleWorld | None = None,
    cosines: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """Draw component i of every set in column i, one set under the other, as maps over a grid.

    All maps of one component share their limits, symmetric about zero: the largest magnitude among
    them, written above the column. The caller must match signs and order beforehand. More than ten
    components, or five of a single set, wrap into blocks of rows. A grid of one axis is drawn as
    lines; for a grid with more than two, maps over the first two show means over the others.

    Args:
        components: Sets by name, each [n, k] with n the number of cells or of states; entry
            row * bins + column is the cell's, where row counts upwards in y and column to the right
            in x. Cells that are NaN or not states are grey.
        bins: Number of cells along a side of the unit square; give ``bins``, ``grid`` or
            ``coordinates``.
        grid: The cells, with their box and the names of its axes.
        cells: Cell of each state, [n]; by default every cell outside the environment's walls is a
            state. A cell of several states shows their mean.
        coordinates: Place of each state, [n, k], instead of ``grid`` and ``cells``: for states that
            ``Transitions.numbered`` has numbered, a function of its table.
        labels: Column titles [k]; the numbers 1 to k by default.
        environment: Draw the outlines of its puddles on every map.
        cosines: By set, |cosine| [k] of each map with the true map, written below the map.

    Raises:
        InputError: No set, a shape that is not [cells, k] with one k for all sets, labels or
            cosines that do not match, or cosines of an unknown set.
    """
    if bins is not None:
        require_positive("bins", bins)
    kind = type(components).__name__
    require(isinstance(components, Mapping), "sets of components by name, in a dict", kind)
    require(len(components) >= 1, "at least one set of components", "none")
    tables = {name: np.asarray(table, np.float64) for name, table in components.items()}
    if coordinates is not None:
        require(bins is None and grid is None, "bins, grid or coordinates", "several")
        points = np.asarray(coordinates)
        grid = BoxGrid.spanning(points)
        cells = grid.cell(points)
    if grid is None:
        expected = "bins or a grid (BoxGrid((0,), (n,), (n,)) draws n numbered states as lines)"
        require(bins is not None, expected, "neither")
        assert bins is not None
        grid = BoxGrid.unit_square(bins)
        if environment is not None:
            cells = Grid(bins).within(environment).states
    places = np.arange(grid.num_cells) if cells is None else np.asarray(cells)
    widths = next(iter(tables.values())).shape[-1:]
    maps = {}
    for name, table in tables.items():
        if table.ndim == 2 and len(table) == len(places):
            counts = np.bincount(places, minlength=grid.num_cells)[:, None]
            sums = np.zeros((grid.num_cells, table.shape[1]))
            np.add.at(sums, places, table)
            table = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        require(
            table.shape == (grid.num_cells, *widths) and table.size > 0,
            f"{name!r} to be [{grid.num_cells}, k] with one k for all sets",
            table.shape,
        )
        maps[name] = _shown(table.T.reshape(-1, *grid.bins[::-1]))
    count = widths[0]
    titles = [str(number + 1) for number in range(count)] if labels is None else labels
    matches = magnitudes(cosines, maps, titles)
    blocks = math.ceil(count / (MOST_MAPS if len(maps) > 1 else _MOST_OF_ONE_SET))
    columns = math.ceil(count / blocks)
    # A page shows a figure about 8 inches wide; a wider figure would shrink its text.
    side = min(7.0 / columns, 2.4)
    height = len(maps) * (side + (0.24 if matches else 0.08)) + 0.4
    figure = Figure(
        figsize=(columns * (side + 0.06) + 1.2, blocks * height + (0.1 if _named(grid) else 0.45)),
        layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02),
    )
    panels = figure.subplots(len(maps) * blocks, columns, squeeze=False)
    for axes in panels.flat:  # Shared axes would update each other at every change.
        axes.label_outer()
    for axes, name, index, limit in draw_signed(panels, maps, columns, grid=grid):
        axes.spines[:].set_visible(True)
        if environment is not None:
            draw_outlines(axes, environment, linewidth=0.6)
        if name == next(iter(maps)):
            axes.set_title(f"{titles[index]}\n±{limit:#.2g}", fontsize=8.5)
        if index % columns == 0:
            axes.set_ylabel(textwrap.fill(name, _NAME_WIDTH))
        if name in matches:
            axes.set_xlabel(f"|cos| {matches[name][index]:.3f}", fontsize=8.0, labelpad=2)
    for axes in panels[-len(maps) :, count - columns * (blocks - 1) :].ravel():
        axes.remove()
    _name_axes(figure, grid)
    if len(grid.bins) > 1:
        rows = len(panels)
        add_signed_bar(
            figure,
            "value relative\nto ± limit" if rows == 1 else "value relative to ± limit",
            aspect=8 if rows == 1 else 25,
        )
    return figure


_MOST_SLICES = 8
"""Largest number of rows of maps, those of most states."""


def plot_slices(
    components: Mapping[str, ArrayLike],
    *,
    grid: BoxGrid,
    cells: ArrayLike,
    values: Mapping[str, Sequence[str]] | None = None,
    cosines: Mapping[str, ArrayLike] | None = None,
    most: int = _MOST_SLICES,
) -> Figure:
    """Draw components as maps over the first two coordinates, one for each value of the others.

    For games: maps over the agent's position, for each direction and for what it carries. The
    slices with most states are drawn. A place of several states shows their mean.

    Args:
        components: Sets by name, each [n, k].
        grid: Grid of the coordinates, three or more.
        cells: Cell of each state, [n].
        values: Name of a coordinate → names of its values 0, 1, ...
        cosines: By set, |cosine| [k] of each component with the true one, below its first slice.
        most: Largest number of slices.

    Raises:
        InputError: For a grid of two axes or fewer, or sets that do not fit the states.
    """
    require(len(grid.bins) >= 3, "a grid of three coordinates or more", grid.bins)
    plane = BoxGrid(grid.low[:2], grid.high[:2], grid.bins[:2], grid.names[:2])
    places = np.asarray(grid.centres())[np.asarray(cells)]
    others, slices, counts = np.unique(
        places[:, 2:], axis=0, return_inverse=True, return_counts=True
    )
    at, maps = plane.cell(places[:, :2]), {}
    matches: dict[str, ArrayLike] = {}
    for name, given in components.items():
        table = np.asarray(given, np.float64)
        require(table.ndim == 2 and len(table) == len(at), f"{name!r} [{len(at)}, k]", table.shape)
        for chosen in np.sort(np.argsort(-counts, kind="stable")[:most]):
            here = slices.ravel() == chosen
            number = np.bincount(at[here], minlength=plane.num_cells)[:, None]
            sums = np.zeros((plane.num_cells, table.shape[1]))
            np.add.at(sums, at[here], table[here])
            said = _spell_slice(grid.names[2:], others[chosen], values or {})
            label = said if len(components) == 1 else f"{name}: {said}"
            if cosines and name in cosines and not any(each.startswith(name) for each in matches):
                matches[label] = cosines[name]
            maps[label] = np.where(number > 0, sums / np.maximum(number, 1), np.nan)
    return plot_components(maps, grid=plane, cosines=matches)


def _spell_slice(
    names: Sequence[str], numbers: DoubleArray, values: Mapping[str, Sequence[str]]
) -> str:
    """Describe a slice by the values of its coordinates."""
    parts = []
    for name, number in zip(names, numbers.tolist(), strict=True):
        index, known = round(number), values.get(name, ())
        told = known[index] if 0 <= index < len(known) else f"{name} {number:.3g}"
        parts += [told] if told else []
    return ", ".join(parts)


@styled
def plot_coverage(points: ArrayLike, *, names: Sequence[str] = ()) -> Figure:
    """Draw where data were: the number of observations in each cell.

    Args:
        points: Observations at one coordinate [n] (or indices of states), or two [n, 2].
        names: Names of the coordinates.

    Raises:
        InputError: For points of another shape.
    """
    places = np.asarray(points)
    shape = places.shape
    places = places[:, None] if places.ndim == 1 else places
    fits = places.ndim == 2 and 1 <= places.shape[1] <= 2
    require(fits, "points [n] or [n, 2]", shape)
    along = places.shape[1]
    grid = BoxGrid.spanning(places, names, most=400 if along == 1 else 40)
    visits = np.bincount(grid.cell(places), minlength=grid.num_cells)
    figure = Figure(figsize=(5.0, 4.0))
    axes = figure.add_subplot()
    axes.set_xlabel(grid.names[0])
    if along == 1:
        axes.bar(grid.centres()[:, 0], visits, grid.cell_widths[0], color=OKABE_ITO[0])
        axes.set_ylabel("observations")
        return figure
    axes.set_ylabel(grid.names[1])
    image = axes.imshow(
        np.ma.masked_equal(visits.reshape(grid.bins[::-1]), 0),
        origin="lower",
        extent=(grid.low[0], grid.high[0], grid.low[1], grid.high[1]),
        aspect="auto",
        norm=LogNorm(1, max(2, int(visits.max()))),
        cmap=matplotlib.colormaps["viridis"].with_extremes(bad=MISSING),
    )
    bar = figure.colorbar(image, ax=axes, label="observations (grey: none)")
    plain_log_ticks(bar.ax.yaxis)
    return figure


@styled
def plot_pairs(pairs: Mapping[str, ArrayLike], places: ArrayLike, grid: BoxGrid) -> Figure:
    """Draw pairs of states as lines between their places in a plane, a panel for each set.

    Args:
        pairs: Sets by name, indices of states [m, 2]. Every state is a point; at most 40 lines,
            evenly spaced in the set, keep a panel legible.
        places: Places of all states, [n, 2], in the units of the grid.
        grid: The box, and the names of its two axes.
    """
    points = np.asarray(places, np.float64)
    figure = Figure(figsize=(0.8 + 3.2 * len(pairs), 3.4))
    panels = figure.subplots(1, len(pairs), squeeze=False, sharey=True)[0]
    for axes, (name, indices) in zip(panels, pairs.items(), strict=True):
        ends = points[np.asarray(indices)]
        lines = ends[:: math.ceil(len(ends) / _MOST_PAIRS)]
        axes.plot(*lines.transpose(2, 1, 0), color=OKABE_ITO[0], linewidth=0.7, alpha=0.6)
        axes.plot(*ends.reshape(-1, 2).T, ".", color=OKABE_ITO[1], markersize=4.0)
        axes.set(xlim=(grid.low[0], grid.high[0]), ylim=(grid.low[1], grid.high[1]))
        axes.set(xlabel=grid.names[0], title=textwrap.fill(name, 2 * _NAME_WIDTH))
        axes.spines[:].set_visible(True)
        axes.set_box_aspect(1)
    panels[0].set_ylabel(grid.names[1])
    return figure


def _shown(values: DoubleArray) -> DoubleArray:
    """Return values by cell [count, ..., b₁, b₀] as images [count, b₁, b₀]; one axis is one row."""
    if values.ndim == 2:
        return values[:, None, :]
    hidden = tuple(range(1, values.ndim - 2))
    if not hidden:
        return values
    known = np.isfinite(values).sum(axis=hidden)
    sums = np.nansum(values, axis=hidden)
    means: DoubleArray = np.where(known > 0, sums / np.maximum(known, 1), np.nan)
    return means


def _named(grid: BoxGrid) -> bool:
    """Return whether the names of the axes fit between the tick labels of every map."""
    return len(grid.bins) == 2 and max(map(len, grid.names)) <= _SHORT_NAME


def _name_axes(figure: Figure, grid: BoxGrid) -> None:
    """Name the axes of all maps once; between the ends of the axes if names are short."""
    names = grid.names if len(grid.bins) > 1 else (grid.names[0], "value")
    if _named(grid):
        return
    size = 8.5
    figure.supxlabel(names[0], fontsize=size)
    text = names[1]
    if len(grid.bins) > 2:
        text += f"; means over {', '.join(names[2:])}"
    figure.supylabel(text, fontsize=size)


def _mark_ends(axes: Axes, grid: BoxGrid) -> None:
    """Label the ends of a map's axes, with short names in between to save space."""
    ends = list(zip(grid.low, grid.high, grid.names, strict=True))[:2]
    axes.tick_params(labelsize=7.0, length=0.0, pad=1.5)
    short = _named(grid)
    for axis, (low, high, name) in zip((axes.xaxis, axes.yaxis), ends, strict=False):
        # Centres in single precision leave a lattice's ends beside 0.
        ends_of = [0.0 if abs(end) < 1e-6 * (high - low) else end for end in (low, high)]
        numbers = [f"{end:.3g}".replace("-", "\N{MINUS SIGN}") for end in ends_of]
        labels = [numbers[0], name if short else "", numbers[1]]
        texts = axis.set_ticks([low, (low + high) / 2, high], labels=labels)
        if not short:  # Long numbers of two axes, or of two maps, would meet at a corner.
            for tick, x, y in zip(
                texts, ("left", "center", "right"), ("bottom", "center", "top"), strict=True
            ):
                tick.label1.set(**({"ha": x} if axis is axes.xaxis else {"va": y}))


def magnitudes(
    cosines: Mapping[str, ArrayLike] | None,
    tables: Mapping[str, DoubleArray],
    titles: Sequence[str],
) -> dict[str, DoubleArray]:
    """Check column titles and cosines [count] against images, and return |cosine|."""
    count = len(next(iter(tables.values())))
    require(len(titles) == count, f"{count} column titles", len(titles))
    matches = {name: np.abs(np.asarray(row, np.float64)) for name, row in (cosines or {}).items()}
    for name, row in matches.items():
        require(name in tables, f"cosines of {', '.join(map(repr, tables))}", name)
        require(row.shape == (count,), f"{count} cosines of {name!r}", row.shape)
    return matches


def draw_signed(
    panels: npt.NDArray[np.object_],
    tables: Mapping[str, DoubleArray],
    columns: int,
    *,
    grid: BoxGrid | None = None,
) -> Iterator[tuple[Axes, str, int, float]]:
    """Draw images [count, height, width] by name, blocks of rows one under the other.

    With a grid, they are maps over it, or lines if it has one axis. Without a grid their top row of
    pixels comes first.

    Yields:
        Axes, name, index and limit of each image; images of one index share their limits, symmetric
        about zero: the largest finite magnitude among them, or 1 if all are zero.
    """
    stacked = np.nan_to_num(list(tables.values()), posinf=0.0, neginf=0.0)
    for index, largest in enumerate(np.abs(stacked).max(axis=(0, 2, 3)).tolist()):
        limit = largest or 1.0
        block, column = divmod(index, columns)
        for row, (name, images) in enumerate(tables.items()):
            axes = panels[block * len(tables) + row, column]
            signs: dict[str, Any] = {"cmap": signed_colormap(), "vmin": -limit, "vmax": limit}
            if grid is None:
                axes.imshow(images[index], origin="upper", **signs)
            elif len(grid.bins) == 1:
                axes.plot(grid.centres()[:, 0], images[index][0], color=OKABE_ITO[0], linewidth=1.0)
                axes.axhline(0.0, color=MUTED, linewidth=0.5)
                axes.set_ylim(-1.05 * limit, 1.05 * limit)
                axes.set_yticks([])
                _mark_ends(axes, grid)
            else:
                (left, bottom), (right, top) = grid.low[:2], grid.high[:2]
                extent = (left, right, bottom, top)
                axes.imshow(images[index], origin="lower", extent=extent, aspect="auto", **signs)
                axes.set_box_aspect(1)
                _mark_ends(axes, grid)
            yield axes, name, index, limit


def add_signed_bar(figure: Figure, label: str, *, aspect: float) -> None:
    """Add the colour bar of signed values, as fractions of each map's limit."""
    figure.colorbar(
        ScalarMappable(Normalize(-1, 1), signed_colormap()),
        ax=figure.axes,
        label=label,
        ticks=[-1, 0, 1],
        shrink=0.8,
        aspect=aspect,
        pad=0.01,
    )


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
