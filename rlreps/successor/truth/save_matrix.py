"""Matrices of a user's own, stored for every command."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlreps import __version__
from rlreps.errors import InputError, require
from rlreps.files import write_archive
from rlreps.numerics import digest_of
from rlreps.successor.measure.grids import BoxGrid, spell_cells
from rlreps.successor.measure.methods import CENTRED_ON_READING
from rlreps.successor.measure.rows import RowEstimates
from rlreps.successor.truth.states import STATES, check_states
from rlreps.successor.truth.store import MatrixStore
from rlreps.successor.truth.store.estimates import EstimateStore, create_estimates
from rlreps.successor.truth.stored_subspace import centring_of
from rlreps.typing import ArrayLike

_BLOCK_ENTRIES = 2**20
_RECORDED = ("box", "centring", "halves", "sha256", STATES, "wall_cells")
"""Settings that a store records by itself."""
_MOST_LOST = 1e-3
"""Largest share of the differences between states that rounding to float32 may change."""


def save_matrix(
    path: str | Path,
    matrix: ArrayLike | RowEstimates,
    grid: BoxGrid | None = None,
    *,
    cells: ArrayLike | None = None,
    observations: ArrayLike | None = None,
    settings: Mapping[str, Any] | None = None,
) -> MatrixStore:
    """Store a matrix of your own, so that every command and ``load`` can read it.

    ``rlreps svd``, ``train`` and ``plot components`` then take the folder. As for any store, column
    means are subtracted on reading; ``settings={"centred_on_reading": "rows"}`` subtracts row means
    instead, "both" both. Everything is checked before anything is written.

    Args:
        path: A folder that does not exist, is empty, or holds this matrix already.
        matrix: One row per state and one column per task, [n, tasks], finite; kept as float32. For
            ``RowEstimates``, the difference of the halves is kept too; ``rlreps successor info``
            and learning curves compute the noise floor from it.
        grid: The grid whose cells are the states, for maps and for encoders of coordinates. None
            places the states 0 … n − 1 along one axis.
        cells: The cell of each state, [n], in ascending order; None if every cell is a state. With
            ``observations``, several states may share a cell, in any order.
        observations: What an encoder sees of each state, [n, ...], uint8 or float32, instead of its
            place in the grid: kept beside the matrix.
        settings: How the matrix was made, JSON values.

    Returns:
        The store.

    Raises:
        InputError: If shapes do not match, an entry is not finite, float32 does not hold the
            differences between states, cells are invalid, settings have a name that the store
            records by itself, or the path holds something else.
    """
    check_settings(settings or {})
    rows, half = matrix if isinstance(matrix, RowEstimates) else (matrix, None)
    parts = [_single(part) for part in (rows, half) if part is not None]
    shape = parts[0].shape
    require(parts[-1].shape == shape, f"half differences {shape}", f"shape {parts[-1].shape}")
    _require_differences(np.asarray(rows), parts[0])
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part.data)
    store = create_matrix(
        path,
        shape,
        grid,
        cells=cells,
        observations=observations,
        settings={**(settings or {}), "sha256": hasher.hexdigest()},
        block_rows=max(1, _BLOCK_ENTRIES // shape[1]),
        sampled=half is not None,
    )
    for index in store.missing_blocks():
        block = slice(*store.matrix.block_range(index))
        store.write_block(index, RowEstimates(*(part[block] for part in parts)))
    return store.matrix


def create_matrix(
    path: str | Path,
    shape: tuple[int, int],
    grid: BoxGrid | None,
    *,
    cells: ArrayLike | None,
    observations: ArrayLike | None,
    settings: Mapping[str, Any],
    block_rows: int,
    sampled: bool,
) -> EstimateStore:
    """Make the store of a matrix [states, tasks], or open it; its missing blocks are the caller's.

    Args:
        path: As for ``save_matrix``.
        shape: (states, tasks).
        grid: As for ``save_matrix``.
        cells: As for ``save_matrix``.
        observations: As for ``save_matrix``.
        settings: What decides the matrix, JSON values.
        block_rows: Rows in a block, at most; the last block may have fewer.
        sampled: Whether rows have half differences.

    Raises:
        InputError: If cells or observations are invalid, or the path holds something else.
    """
    states, _ = shape
    if grid is None:
        grid = BoxGrid.numbered(states)
    found = np.arange(grid.num_cells) if cells is None else np.asarray(cells)
    inside = found.ndim == 1 and np.issubdtype(found.dtype, np.integer) and found.size > 0
    inside = inside and found.min() >= 0 and found.max() < grid.num_cells
    expected = f"cells in [0, {grid.num_cells}), rising, one for each state"
    rising = observations is not None or bool((np.diff(found) > 0).all())
    require(bool(inside) and rising, expected, found)
    expected = f"{len(found)} rows, one for each of the states, which are cells of the grid"
    require(len(found) == states, expected, states)
    others = np.setdiff1d(np.arange(grid.num_cells), found)
    seen = {} if observations is None else check_states(np.asarray(observations), found)
    store = create_estimates(
        Path(path),
        shape=shape,
        block_rows=min(states, block_rows),
        settings={
            "quantity": "matrix of a user's own",
            "method": "given",
            **settings,
            "box": dataclasses.asdict(grid),
            **({"wall_cells": spell_cells(others)} if others.size and not seen else {}),
            **({STATES: digest_of(seen)} if seen else {}),
            **({"halves": 2} if sampled else {}),
            "centring": "none",
        },
        provenance={"saved_by": f"rlreps {__version__}"},
        sampled=sampled,
    )
    if seen:
        record = {STATES: digest_of(seen)}
        write_archive(store.matrix.path / f"{STATES}.npz", seen, record, compress=True)
    return store


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a user that a store records by itself, and an unknown centring."""
    expected = f"settings without {', '.join(_RECORDED)}, which the store records by itself"
    expected += f" ({{{CENTRED_ON_READING!r}: 'rows'}} centres rows on reading)"
    taken = [name for name in _RECORDED if name in settings]
    require(not taken, expected, taken)
    centring_of(settings)


def _single(matrix: Any) -> np.ndarray:
    """Return a matrix of finite numbers in single precision (little-endian)."""
    array = np.asarray(matrix)
    require(array.dtype.kind in "iuf", "a matrix of real numbers", array.dtype.name)
    whole = array.ndim == 2 and min(array.shape) >= 1
    require(whole, "a matrix [states, tasks]", f"shape {array.shape}")
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(array, "<f4")
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        raise InputError(
            "expected a matrix of finite entries in the range of float32, got another entry in row "
            f"{bad[0]}; leave out the rows of unknown states, and give the cells of the other rows "
            "by cells="
        )
    return found


def _require_differences(matrix: np.ndarray, single: np.ndarray) -> None:
    """Refuse a matrix [n, tasks] if rounding to ``single`` loses its differences between rows."""
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize <= single.itemsize:
        return
    # Differences from the first row are exact in the matrix's own type, and 0 in constant columns.
    whole = matrix if matrix.dtype.kind == "f" else matrix.astype(np.int64)
    columns = max(1, _BLOCK_ENTRIES // len(matrix))
    blocks = [slice(start, start + columns) for start in range(0, matrix.shape[1], columns)]

    def moved(some: slice) -> tuple[np.ndarray, np.ndarray]:
        exact = (whole[:, some] - whole[0, some]).astype(np.float64)
        return exact, single[:, some].astype(np.float64) - single[0, some]

    scale = max(float(np.abs(moved(some)[0]).max()) for some in blocks)
    if scale == 0.0:
        return
    spread = lost = 0.0
    for some in blocks:
        exact, rounded = ((part - part.mean(axis=0)) / scale for part in moved(some))
        spread += float(np.sum(np.square(exact)))
        lost += float(np.sum(np.square(rounded - exact)))
    if lost > _MOST_LOST**2 * spread:
        raise InputError(
            "expected differences between states that float32 holds, got a matrix whose rounding "
            f"changes them by {math.sqrt(lost / spread):.2g} of their size; subtract the mean of "
            "each column, as reading does, or multiply small numbers by a factor"
        )
