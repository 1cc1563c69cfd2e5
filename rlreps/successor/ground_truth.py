"""Ground truths: a stored matrix, centred, with its principal subspace computed once and kept.

A matrix of up to ``IN_MEMORY_BYTES`` is held in memory; a larger one is read block by block, by the
same arithmetic, for everything that is done with it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.configs import SubspaceConfig, as_json
from rlreps.errors import InputError, require
from rlreps.runs.progress import progress_bar
from rlreps.subspace import (
    ArrayBlocks,
    CentredBlocks,
    PrincipalSubspace,
    RowBlocks,
    centre_columns_in_place,
    column_means,
    exact_svd,
    randomized_svd,
    subspace_distance,
)
from rlreps.subspace.randomized import num_reads
from rlreps.successor.box_grid import BoxGrid
from rlreps.successor.grid import Grid
from rlreps.successor.store import MatrixStore, load_subspace, open_store, save_subspace
from rlreps.successor.store_blocks import StoreBlocks, WatchedBlocks

CENTRING = "column means over states removed"

DEFAULT_RANK = 100
"""Components computed where none are asked for, if the matrix has as many."""

IN_MEMORY_BYTES = 2**30
"""Largest matrix that is held in memory: 128 x 128 cells."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GroundTruth:
    """What a representation is measured against.

    Attributes:
        coordinates: Position of every state in [0, 1]ᵏ, [n, k].
        matrix: Ψ with its column means over states removed, [n, tasks]; row blocks where it is
            larger than memory, None where only its subspace is known.
        principal: Its leading left singular vectors and values, and its total energy.
        settings: The settings of the store it came from.
        error: Estimated subspace distance of its leading d components from the truth for
            d = 1 … k, [k], where it is known; see ``sampling_error`` for stores.
    """

    coordinates: Array
    matrix: Array | RowBlocks | None
    principal: PrincipalSubspace
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: np.ndarray | None = None

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return len(self.principal.basis)

    def require_dimension(self, d: int) -> None:
        """Raises an ``InputError`` unless the subspace holds d components."""
        available = self.principal.basis.shape[1]
        require(1 <= d <= available, f"1 <= d <= {available} components of the ground truth", d)

    def distance(self, features: Array | np.ndarray) -> float:
        """Subspace distance of features [n, d] of all states from the leading d components.

        Raises:
            InputError: If d exceeds the components held, or the number of states differs.
        """
        require(features.ndim == 2, "features of shape [states, d]", features.shape)
        d = features.shape[1]
        self.require_dimension(d)
        basis = jnp.asarray(self.principal.truncated(d).basis)
        return float(subspace_distance(jnp.asarray(features), basis))


def decompose(matrix: np.ndarray | Array | RowBlocks, config: SubspaceConfig) -> PrincipalSubspace:
    """The principal subspace of a centred matrix [n, tasks], by the configured method.

    Raises:
        InputError: If the rank exceeds the matrix's, or an exact decomposition is asked of a matrix
            that is not in memory.
    """
    at_most = config.rank is None
    rank = min(DEFAULT_RANK, *matrix.shape) if config.rank is None else config.rank
    if config.method == "exact":
        return exact_svd(_in_memory(matrix), rank, at_most=at_most)
    return randomized_svd(
        matrix,
        rank,
        oversampling=config.oversampling,
        power_iterations=config.power_iterations,
        seed=config.seed,
        at_most=at_most,
    )


def _in_memory(matrix: np.ndarray | Array | RowBlocks) -> np.ndarray | Array:
    if isinstance(matrix, ArrayBlocks):
        return matrix.matrix
    if isinstance(matrix, RowBlocks):
        raise InputError(
            f"expected a matrix of at most {IN_MEMORY_BYTES} bytes for an exact decomposition, "
            f"got {matrix.shape[0]} x {matrix.shape[1]} entries"
        )
    return matrix


def centred(source: RowBlocks) -> RowBlocks:
    """A matrix with its column means removed: in memory if it fits there, else block by block."""
    if source.dtype.itemsize * source.shape[0] * source.shape[1] > IN_MEMORY_BYTES:
        return CentredBlocks(source, column_means(source))
    matrix = np.empty(source.shape, source.dtype)
    for start, rows in source.blocks():
        matrix[start : start + len(rows)] = rows
    centre_columns_in_place(matrix)
    return ArrayBlocks(matrix)


def principal_subspace(
    store: MatrixStore, config: SubspaceConfig, *, progress: bool = False
) -> PrincipalSubspace:
    """The principal subspace of a stored matrix, from beside it if it was computed before.

    Args:
        store: A complete store.
        config: How to compute it.
        progress: Whether to show a progress bar.

    Returns:
        The subspace of the centred matrix.

    Raises:
        InputError: If blocks are missing or corrupt, or the rank exceeds the matrix's.
    """
    kept = _load(store, config)
    return kept or _compute(store, centred(StoreBlocks(store)), config, progress)


def load_ground_truth(path: Path, config: SubspaceConfig, *, progress: bool = False) -> GroundTruth:
    """Reads a store of a successor measure as a ground truth.

    Args:
        path: The store's folder.
        config: How to compute the principal subspace, unless it is beside the matrix already.
        progress: Whether to show a progress bar while it is computed.

    Returns:
        The ground truth; a matrix that fits in memory is on the default device.

    Raises:
        InputError: If there is no such store, blocks are missing or corrupt, or the rank exceeds
            the matrix's.
    """
    store = open_store(path)
    coordinates = _coordinates(store)
    matrix = centred(StoreBlocks(store))
    principal = _load(store, config) or _compute(store, matrix, config, progress)
    return GroundTruth(
        coordinates=jnp.asarray(coordinates),
        matrix=jnp.asarray(matrix.matrix) if isinstance(matrix, ArrayBlocks) else matrix,
        principal=principal,
        settings=store.settings,
    )


def with_progress(
    matrix: RowBlocks,
    config: SubspaceConfig,
    description: str,
    work: Callable[[RowBlocks], PrincipalSubspace],
    *,
    progress: bool,
) -> PrincipalSubspace:
    """Decomposes row blocks while a bar shows how far their reads have come."""
    if config.method == "exact":
        return work(matrix)
    reads = num_reads(config.power_iterations)
    total, done = reads * matrix.shape[0], 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        advance(rows)

    with progress_bar(description, total=total, unit="rows", show=progress) as advance:
        result = work(WatchedBlocks(matrix, count))
        advance(total - done)  # A matrix of low rank needs fewer reads.
    return result


def _coordinates(store: MatrixStore) -> np.ndarray:
    """Centres [n, k] of a store's cells in [0, 1]ᵏ, from its settings."""
    bins, box = store.settings.get("bins"), store.settings.get("box")
    if isinstance(box, Mapping):
        return BoxGrid(**{name: tuple(values) for name, values in box.items()}).unit_centres()
    if not isinstance(bins, int) or bins**2 != store.shape[0]:
        raise InputError(f"expected a store over a grid of bins x bins states, got bins={bins!r}")
    return Grid(bins).centres()


def _cache_settings(config: SubspaceConfig) -> dict[str, Any]:
    return {"centring": CENTRING, **as_json(config)}


def _load(store: MatrixStore, config: SubspaceConfig) -> PrincipalSubspace | None:
    arrays = load_subspace(store, _cache_settings(config))
    if arrays is None:
        return None
    return PrincipalSubspace(
        basis=arrays["basis"],
        singular_values=arrays["singular_values"],
        total_energy=float(arrays["total_energy"]),
        distance_bound=arrays.get("distance_bound"),
        method=config.method,
        settings=_method_settings(config, arrays["basis"].shape[1]),
    )


def _compute(
    store: MatrixStore, matrix: RowBlocks, config: SubspaceConfig, progress: bool
) -> PrincipalSubspace:
    principal = with_progress(
        matrix,
        config,
        "principal subspace",
        lambda rows: decompose(rows, config),
        progress=progress,
    )
    arrays = {
        "basis": principal.basis,
        "singular_values": principal.singular_values,
        "total_energy": np.asarray(principal.total_energy),
    }
    if principal.distance_bound is not None:
        arrays["distance_bound"] = principal.distance_bound
    save_subspace(store, arrays, _cache_settings(config))
    return principal


def _method_settings(config: SubspaceConfig, rank: int) -> dict[str, int]:
    if config.method == "exact":
        return {"rank": rank}
    names = ("oversampling", "power_iterations", "seed")
    return {"rank": rank, **{name: getattr(config, name) for name in names}}
