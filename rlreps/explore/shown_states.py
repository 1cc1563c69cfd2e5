"""The cells or frames that the page shows, from the states of a store."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.transforms import Affine2D

from rlreps.config import from_json
from rlreps.errors import require
from rlreps.explore.page import Frames, MapGrid
from rlreps.plotting.images import as_frames
from rlreps.plotting.puddle_world import outline
from rlreps.successor.measure.grids import BoxGrid, Grid
from rlreps.successor.measure.settings import TransitionSettings
from rlreps.successor.truth.states import environment_of, is_between_states, state_cells
from rlreps.successor.truth.store import MatrixStore

POINTS = 1024
"""Moves from each state by each action; their standard error is below that of 1,000 draws."""


def find_cells(store: MatrixStore, seen: np.ndarray | None, most: int) -> MapGrid:
    """Return the grid in the plane that a store's states and tasks lie on, or else their frames.

    Raises:
        InputError: If there is neither.
    """
    states, tasks = store.shape
    grid, cells = state_cells(store)
    shared = len(cells) - len(np.unique(cells))
    square = is_between_states(store)
    if not square or len(grid.bins) != 2 or shared:
        framed = None if seen is None else _lay_out_frames(store, grid, cells, seen, most)
        if framed is not None:
            return framed
    place = "a store of a successor measure between the cells of a grid in the plane"
    if seen is not None:
        place += f", or whose states are seen as images (not {list(seen.shape[1:])})"
    got = f"{states} by {tasks}: {store.settings.get('quantity', 'a matrix')}"
    require(square, f"{place}, states by states", got)
    require(len(grid.bins) == 2, place, f"{len(grid.bins)} coordinates")
    require(shared == 0, place, f"{shared} states in the cells of others")
    return make_cells(grid, cells, store.settings)


def _lay_out_frames(
    store: MatrixStore, grid: BoxGrid, cells: np.ndarray, seen: np.ndarray, most: int
) -> MapGrid | None:
    """Choose the states whose frames the page shows; None if an encoder sees no images."""
    count = min(len(seen), most)
    shown = np.rint(np.linspace(0, len(seen) - 1, count)).astype(np.int64)
    images = as_frames(seen[shown])
    if images is None:
        return None
    images = _crop(images)
    axes: tuple[str, ...] = ("state",)
    places = shown[:, None].astype(np.float64)
    if len(grid.bins) > 1:
        axes, places = ("state", *grid.names), np.c_[places, grid.centres()[cells[shown]]]
    values = store.settings.get("values") or {}
    return MapGrid(
        grid=BoxGrid((0, 0), (count, 1), (count, 1)),
        states=np.arange(count),
        shown=shown,
        frames=Frames(images, axes, places, values, len(seen)),
    )


def _crop(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Leave out the edges of frames [m, height, width, channels] that are the same in all."""
    changing = (images != images[0]).any(axis=(0, 3))
    for axis in (1, 2):
        places = np.flatnonzero(changing.any(axis=2 - axis))
        if places.size:
            margin = 1 + (places[-1] - places[0]) // 8
            kept = slice(max(0, places[0] - margin), places[-1] + margin + 1)
            images = images[:, kept] if axis == 1 else images[:, :, kept]
    return images


def make_cells(grid: BoxGrid, cells: np.ndarray, settings: Mapping[str, Any]) -> MapGrid:
    """Make the cells of a grid in the plane, with the outlines of their puddles."""
    environment = environment_of(settings)
    outlines = []
    for puddle in () if environment is None else environment.puddles:
        # Segments of a thousandth of the square are fine enough for curves.
        large = outline(puddle.shape).transformed(Affine2D().scale(1000.0))
        outlines += [np.asarray(line) / 1000.0 for line in large.to_polygons()]
    return MapGrid(grid=grid, states=cells, shown=np.arange(len(cells)), outlines=outlines)


def count_moves(settings: Mapping[str, Any], cells: MapGrid) -> Sequence[Any] | None:
    """Count the moves of PuddleWorld's actions; None if unknown or if walls divide cells."""
    environment = environment_of(settings)
    names = {"discount", "horizon", "count_start"}
    if environment is None or not names <= settings.keys():
        return None
    from_json(TransitionSettings, {name: settings[name] for name in names})  # Checks the settings.
    grid = Grid(cells.grid.bins[0]).within(environment)
    if not np.array_equal(grid.states, cells.states) or len(grid.divided):
        return None
    # Deferred: this part of SciPy takes longer to import than everything else.
    from rlreps.successor.measure.transition_kernels.matrix import action_steps

    return action_steps(environment, grid, points=POINTS, seed=0)
