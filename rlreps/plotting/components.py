"""Principal components as a grid of maps over the unit square."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rlreps.envs.puddle_world import PuddleWorld
from rlreps.errors import InputError
from rlreps.plotting.outlines import draw_outlines
from rlreps.plotting.style import FloatArray, signed_colormap, styled

_WIDEST = 10
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
    """Component i of every set in column i, one set under the other, as bins x bins maps.

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
    blocks = math.ceil(count / _WIDEST)
    columns = math.ceil(count / blocks)
    figure, grid = _panels(len(maps), blocks, columns, has_notes=bool(matches))
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
    _finish(figure, grid, count - columns * (blocks - 1), len(maps))
    return figure


def _as_maps(components: Mapping[str, npt.ArrayLike], bins: int) -> dict[str, FloatArray]:
    """Every set as maps [k, bins, bins], row upwards in y."""
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
    """Largest finite magnitude of each component over all sets [k]; 1 where everything is zero."""
    stacked = np.stack(list(maps.values()))
    limits = np.abs(np.where(np.isfinite(stacked), stacked, 0.0)).max(axis=(0, 2, 3))
    return np.where(limits > 0, limits, 1.0)


def _panels(
    sets: int, blocks: int, columns: int, *, has_notes: bool
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """An empty figure with its grid of axes [sets * blocks, columns], sized to fit square maps."""
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


def _finish(
    figure: Figure, grid: npt.NDArray[np.object_], in_last_block: int, rows_in_block: int
) -> None:
    """Takes the empty axes of the last block away; adds the one colour bar."""
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
