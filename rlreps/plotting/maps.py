"""Maps: fields of values over grids of states."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rlreps.envs.puddle_world import PuddleWorld
from rlreps.errors import require, require_positive, require_value
from rlreps.plotting.puddle_world import draw_outlines
from rlreps.plotting.style import (
    MISSING,
    MUTED,
    OKABE_ITO,
    plain_log_ticks,
    signed_colormap,
    styled,
)
from rlreps.successor.measure.grids import BoxGrid, Grid
from rlreps.typing import ArrayLike, DoubleArray

_MOST_PAIRS = 40

_SHORT_NAME = 3
"""Largest number of characters of an axis' name between the ends of a small map."""
MOST_MAPS = 10
"""Largest number of maps in a row."""
_NAME_WIDTH = 14
"""Largest number of characters in one line of a set's name beside its row."""
_MOST_OF_ONE_SET = 5
"""Largest number of maps in a row if there is one set: a strip of ten is too small to read."""


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
        grid = BoxGrid.spanning(points, most=100)
        cells = grid.cell(points)
    if grid is None:
        expected = "bins or a grid (BoxGrid((0,), (n,), (n,)) draws n numbered states as lines)"
        bins = require_value(bins, expected, "neither")
        grid = BoxGrid.unit_square(bins)
        if environment is not None:
            cells = Grid(bins).within(environment).states
    places = np.arange(grid.num_cells) if cells is None else np.asarray(cells)
    widths = next(iter(tables.values())).shape[-1:]
    maps = {}
    for name, table in tables.items():
        if table.ndim == 2 and len(table) == len(places):
            table = cell_means(table, places, grid.num_cells)
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
        figsize=(
            columns * (side + 0.06) + (1.2 if columns > 1 else 1.5),
            blocks * height + (0.1 if _named(grid) else 0.45),
        ),
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


def cell_means(table: npt.NDArray[Any], places: npt.NDArray[Any], num_cells: int) -> DoubleArray:
    """Average the rows [n, k] of each cell, [cells, k]; NaN in a cell without a row."""
    counts = np.bincount(places, minlength=num_cells)[:, None]
    sums = np.zeros((num_cells, table.shape[1]))
    np.add.at(sums, places, table)
    means: DoubleArray = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


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
    slices with most states are drawn. A place of several states shows their mean. A line above the
    maps says what they leave out.

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
    require_positive("most", most)
    require(len(grid.bins) >= 3, "a grid of three coordinates or more", grid.bins)
    plane = BoxGrid(grid.low[:2], grid.high[:2], grid.bins[:2], grid.names[:2])
    places = np.asarray(grid.centres())[np.asarray(cells)]
    others, slices, counts = np.unique(
        places[:, 2:], axis=0, return_inverse=True, return_counts=True
    )
    drawn = np.sort(np.argsort(-counts, kind="stable")[:most])
    at, maps = plane.cell(places[:, :2]), {}
    matches: dict[str, ArrayLike] = {}
    told = set[str]()
    for name, given in components.items():
        table = np.asarray(given, np.float64)
        require(table.ndim == 2 and len(table) == len(at), f"{name!r} [{len(at)}, k]", table.shape)
        for chosen in drawn:
            here = slices.ravel() == chosen
            said = _spell_slice(grid.names[2:], others[chosen], values or {})
            label = said if len(components) == 1 else f"{name}: {said}"
            if cosines and name in cosines and name not in told:
                matches[label] = cosines[name]
                told.add(name)
            maps[label] = cell_means(table[here], at[here], plane.num_cells)
    figure = plot_components(maps, grid=plane, cosines=matches)
    if note := _describe_drawn(at, slices.ravel(), drawn, len(counts)):
        figure.set_figheight(figure.get_figheight() + 0.25)
        figure.suptitle(note, fontsize=8.5)
    return figure


def _describe_drawn(
    at: npt.NDArray[Any], slices: npt.NDArray[Any], drawn: npt.NDArray[Any], count: int
) -> str:
    """Say which slices and states maps leave out, and whether their cells are means; else ""."""
    here = np.isin(slices, drawn)
    parts = []
    if len(drawn) < count:
        parts.append(f"{len(drawn)} of {count} slices, {here.sum():,} of {len(at):,} states")
    pairs = np.stack([slices[here], at[here]], axis=1)
    if len(np.unique(pairs, axis=0)) < len(pairs):
        parts.append("cells show means over their states, and ± the largest mean")
    return "; ".join(parts)


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
        points: Observations at one coordinate [n], or two [n, 2]. Integers at one coordinate, such
            as indices of states, have bars of width 1, or of a larger whole number beyond 400.
        names: Names of the coordinates.

    Raises:
        InputError: For points of another shape.
    """
    places = np.asarray(points)
    shape = places.shape
    places = places[:, None] if places.ndim == 1 else places
    fits = places.ndim == 2 and 1 <= places.shape[1] <= 2 and places.size > 0
    require(fits, "points [n] or [n, 2]", shape)
    along = places.shape[1]
    most = 400 if along == 1 else 40
    if along == 1 and places.dtype.kind in "biu":
        low, count = int(places.min()) - 0.5, int(places.max()) - int(places.min()) + 1
        width = math.ceil(count / most)
        bins = math.ceil(count / width)
        grid = BoxGrid((low,), (low + bins * width,), (bins,), tuple(names))
    else:
        grid = BoxGrid.spanning(places, names, most=most)
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
    for name, indices in pairs.items():
        require(np.size(indices) > 0, f"at least one pair of {name}", "none")
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
        ends_of = [0.0 if abs(end) < 1e-6 * abs(high - low) else end for end in (low, high)]
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
