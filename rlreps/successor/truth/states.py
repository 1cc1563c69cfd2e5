"""The states of a store: cells, what an encoder sees of them, and their environment."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from rlreps.config import from_json
from rlreps.envs import PuddleWorld, arena_from_settings
from rlreps.errors import require
from rlreps.files import read_archive
from rlreps.numerics import digest_of
from rlreps.successor.measure.grids import BoxGrid, parse_cells
from rlreps.successor.truth.store import MatrixStore

STATES = "states"
"""Name of the setting, and of the file, of what an encoder sees of the states."""
CUMULANT_SUMS = "discounted sums of cumulants"
"""Quantity of a store whose columns are cumulants, even where there are as many as states."""


def is_between_states(store: MatrixStore) -> bool:
    """Tell whether the columns of a store are its states."""
    states, tasks = store.shape
    return states == tasks and store.settings.get("quantity") != CUMULANT_SUMS


def check_states(observations: np.ndarray, cells: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is kept of states that an encoder sees otherwise than by their place."""
    kinds = observations.dtype in (np.uint8, np.float32)
    require(kinds, "observations of type uint8 or float32", observations.dtype.name)
    count = len(observations)
    require(count == len(cells), f"an observation of each of {len(cells)} states", count)
    finite = observations.dtype == np.uint8 or bool(np.isfinite(observations).all())
    require(finite, "finite observations", "NaN or infinity")
    return {"observations": np.ascontiguousarray(observations), "cells": cells.astype(np.int64)}


def read_states(store: MatrixStore) -> dict[str, np.ndarray]:
    """Read the observations and cells of a store's states; nothing if they are only cells.

    Raises:
        InputError: If the file is missing, damaged or another one.
    """
    if STATES not in store.settings:
        return {}
    path = store.path / f"{STATES}.npz"
    require(path.is_file(), f"the observations of the states in {path}", "no such file")
    arrays, _ = read_archive(path, str(path))
    same = {*arrays} == {"cells", "observations"} and digest_of(arrays) == store.settings[STATES]
    require(same, f"the observations that were saved in {path}", "others")
    return arrays


def state_cells(store: MatrixStore) -> tuple[BoxGrid, np.ndarray]:
    """Return the grid and the cell [n] of each state, from the settings."""
    bins, box = store.settings.get("bins"), store.settings.get("box")
    if isinstance(box, Mapping):
        grid = from_json(BoxGrid, box)
    else:
        expected = "a store over a grid of bins x bins states, or of a box"
        require(isinstance(bins, int), expected, f"bins={bins!r}")
        grid = BoxGrid.unit_square(int(cast(int, bins)))
    inside = parse_cells(store.settings.get("wall_cells", ""), grid.num_cells)
    seen = read_states(store)
    cells = seen["cells"] if seen else np.delete(np.arange(grid.num_cells), inside)
    require(
        len(cells) == store.shape[0],
        f"a store over a grid of bins x bins states ({len(cells)})",
        f"{store.shape[0]} rows, bins={bins!r}",
    )
    return grid, cells


def environment_of(settings: Mapping[str, Any]) -> PuddleWorld | None:
    """Return the PuddleWorld whose measure a store holds; None for another environment."""
    described = settings.get("environment")
    return arena_from_settings(described) if isinstance(described, Mapping) else None
