"""Ground truths: a stored matrix, centred, with its principal subspace and its sampling error.

Matrices are stored as they are; which means come off is a setting of the store (``centring_of``),
and everything here follows it.

A matrix of up to ``IN_MEMORY_BYTES`` is held in memory; a larger one is read block by block, by the
same arithmetic, for everything that is done with it. Subspaces and errors are computed once and
kept beside the matrix.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.errors import InputError, require, require_choice
from rlreps.subspace import (
    ArrayBlocks,
    CentredBlocks,
    Centring,
    PrincipalSubspace,
    RowBlocks,
    centre_in_place,
    centring_means,
    noise_floor,
    subspace_distance,
)
from rlreps.subspace.svd import Decomposition, RandomizedSVD
from rlreps.successor.grids import BoxGrid, Grid, spelled_cells
from rlreps.successor.measure import CENTRED_ON_READING
from rlreps.successor.store import MatrixStore, load_subspace, open_store, save_subspace
from rlreps.successor.store.blocks import HalfBlocks, StoreBlocks, WatchedBlocks
from rlreps.successor.store.estimates import EstimateStore

CENTRING: Mapping[Centring, str] = {
    "columns": "column means over states removed",
    "rows": "row means over tasks removed",
    "both": "column means over states and row means over tasks removed",
}
"""Means that are removed, as the settings of kept subspaces say it."""

IN_MEMORY_BYTES = 2**30
"""Largest matrix that is held in memory: 128 x 128 cells."""


DEFAULT_DECOMPOSITION = RandomizedSVD()


class Progress(Protocol):
    """Shows how far long work has come; ``runs.progress.progress_bar`` is one."""

    def __call__(
        self, description: str, *, total: int, unit: str
    ) -> contextlib.AbstractContextManager[Callable[[int], object]]:
        """Return a context manager that yields a function to call as units get done."""
        ...


@contextlib.contextmanager
def no_progress(description: str, *, total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield lambda count: None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GroundTruth:
    """A ground truth that representations are measured against.

    Attributes:
        coordinates: Position of every state in [0, 1]ᵏ, [n, k].
        matrix: Ψ, centred, [n, tasks]; row blocks where it is larger than memory, None where only
            its subspace is known.
        principal: Its leading left singular vectors and values, and its total energy.
        settings: The settings of the store it came from.
        error: Estimated subspace distance of its leading d components from the truth for
            d = 1 … k, [k], where it is known; see ``sampling_error`` for stores.
        cell_widths: Extent of a cell along each coordinate, [k], where states are cells.
    """

    coordinates: Array
    matrix: Array | RowBlocks | None
    principal: PrincipalSubspace
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: np.ndarray | None = None
    cell_widths: np.ndarray | None = None

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return len(self.principal.basis)

    def require_dimension(self, d: int) -> None:
        """Raise an ``InputError`` unless the subspace holds d components."""
        available = self.principal.basis.shape[1]
        require(1 <= d <= available, f"1 <= d <= {available} components of the ground truth", d)

    def distance(self, features: Array | np.ndarray) -> float:
        """Return the subspace distance of features [n, d] from the leading d components."""
        require(features.ndim == 2, "features of shape [states, d]", features.shape)
        d = features.shape[1]
        self.require_dimension(d)
        basis = jnp.asarray(self.principal.truncated(d).basis)
        return float(subspace_distance(jnp.asarray(features), basis))


def centring_of(settings: Mapping[str, Any]) -> Centring:
    """Return which means come off a store's matrix; stores that do not say have it by columns.

    Raises:
        InputError: If it is none that this version knows, or the bytes are not those of the matrix
            as it is.
    """
    stored = settings.get("centring", "none")
    require(stored == "none", "a matrix that is stored as it is (centring none)", stored)
    found = settings.get(CENTRED_ON_READING, "columns")
    require_choice(CENTRED_ON_READING, found, get_args(Centring))
    return cast(Centring, found)


def centred(source: RowBlocks, centring: Centring = "columns") -> RowBlocks:
    """Return a matrix less its means: in memory if it fits there, else block by block."""
    if source.dtype.itemsize * source.shape[0] * source.shape[1] > IN_MEMORY_BYTES:
        return CentredBlocks(source, *centring_means(source, centring))
    matrix = np.empty(source.shape, source.dtype)
    for start, rows in source.blocks():
        matrix[start : start + len(rows)] = rows
    centre_in_place(matrix, centring)
    # Products take groups of rows that are views of one block, and copies of several.
    return ArrayBlocks(matrix, block_rows=len(matrix))


def principal_subspace(
    store: MatrixStore,
    decomposition: Decomposition = DEFAULT_DECOMPOSITION,
    *,
    progress: Progress = no_progress,
) -> PrincipalSubspace:
    """Return the principal subspace of a stored matrix, from beside it if computed before.

    Args:
        store: A complete store.
        decomposition: How to compute it.
        progress: Shows how far the decomposition has come.

    Raises:
        InputError: If blocks are missing or corrupt, or the rank exceeds the matrix's.
    """
    kept = _load(store, decomposition)
    return kept or _compute(store, _centred(store), decomposition, progress)


def load_ground_truth(
    path: Path,
    decomposition: Decomposition = DEFAULT_DECOMPOSITION,
    *,
    progress: Progress = no_progress,
) -> GroundTruth:
    """Read a store of a successor measure as a ground truth, with its ``principal_subspace``.

    A matrix that fits in memory is put on the default device.

    Raises:
        InputError: If there is no such store, blocks are missing or corrupt, or the rank exceeds
            the matrix's.
    """
    store = open_store(path)
    coordinates, widths = state_cells(store)
    matrix = _centred(store)
    principal = _load(store, decomposition) or _compute(store, matrix, decomposition, progress)
    return GroundTruth(
        coordinates=jnp.asarray(coordinates),
        matrix=jnp.asarray(matrix.matrix) if isinstance(matrix, ArrayBlocks) else matrix,
        principal=principal,
        settings=store.settings,
        cell_widths=widths,
    )


def _centred(store: MatrixStore) -> RowBlocks:
    return centred(StoreBlocks(store), centring_of(store.settings))


def _watched(
    matrix: RowBlocks, decomposition: Decomposition, description: str, progress: Progress
) -> PrincipalSubspace:
    """Decompose row blocks while a bar shows how far their reads have come."""
    total, done = decomposition.num_reads * matrix.shape[0], 0
    if total == 0:
        return decomposition.decompose(matrix)

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        advance(rows)

    with progress(description, total=total, unit="rows") as advance:
        result = decomposition.decompose(WatchedBlocks(matrix, count))
        advance(total - done)  # A matrix of low rank needs fewer reads.
    return result


def state_cells(store: MatrixStore) -> tuple[np.ndarray, np.ndarray]:
    """Return centres [n, k] and widths [k] of the states' cells in [0, 1]ᵏ, from the settings.

    Raises:
        InputError: If the settings describe no grid of as many states.
    """
    bins, box = store.settings.get("bins"), store.settings.get("box")
    if isinstance(box, Mapping):
        grid = BoxGrid(**{name: tuple(values) for name, values in box.items()})
        return grid.unit_centres(), np.float32(1.0) / np.asarray(grid.bins, np.float32)
    # Stores without the record are of arenas without walls, or older than it: all cells are there.
    record = store.settings.get("wall_cells")
    if record is None and _has_walls(store.settings.get("environment")):
        warnings.warn(
            f"the cells inside the walls of {store.path} count as states, since an earlier version "
            "made it; generate it again to leave them out",
            UserWarning,
            stacklevel=2,
        )
    inside = spelled_cells(record or "")
    if not isinstance(bins, int) or bins**2 - len(inside) != store.shape[0]:
        raise InputError(f"expected a store over a grid of bins x bins states, got bins={bins!r}")
    return np.delete(Grid(bins).centres(), inside, axis=0), np.full(2, 1.0 / bins, np.float32)


def _has_walls(environment: object) -> bool:
    """Return whether settings of an environment are those of an arena with walls."""
    puddles = environment.get("puddles", ()) if isinstance(environment, Mapping) else ()
    return any(puddle["multiplier"] <= 0.0 for puddle in puddles)


def _cache_settings(store: MatrixStore, decomposition: Decomposition) -> dict[str, Any]:
    return {"centring": CENTRING[centring_of(store.settings)], **decomposition.settings()}


def _load(store: MatrixStore, decomposition: Decomposition) -> PrincipalSubspace | None:
    arrays = load_subspace(store, _cache_settings(store, decomposition))
    if arrays is None:
        return None
    settings = {**decomposition.settings(), "rank": arrays["basis"].shape[1]}
    return PrincipalSubspace(
        basis=arrays["basis"],
        singular_values=arrays["singular_values"],
        total_energy=float(arrays["total_energy"]),
        distance_bound=arrays.get("distance_bound"),
        method=settings.pop("method"),
        settings=settings,
    )


def _compute(
    store: MatrixStore, matrix: RowBlocks, decomposition: Decomposition, progress: Progress
) -> PrincipalSubspace:
    principal = _watched(matrix, decomposition, "principal subspace", progress)
    arrays = {
        "basis": principal.basis,
        "singular_values": principal.singular_values,
        "total_energy": np.asarray(principal.total_energy),
    }
    if principal.distance_bound is not None:
        arrays["distance_bound"] = principal.distance_bound
    save_subspace(store, arrays, _cache_settings(store, decomposition))
    return principal


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SamplingError:
    """The error of a Monte-Carlo matrix, from the difference of its halves.

    Attributes:
        noise_floor: Expected subspace distance of the matrix from the truth for d = 1 … k, [k]:
            no result below it means anything.
        standard_error: Root mean square, over all entries, of an entry's standard error.
    """

    noise_floor: np.ndarray
    standard_error: float

    def floor(self, d: int) -> float | None:
        """Return the noise floor at d, or None where it was not computed that far."""
        return float(self.noise_floor[d - 1]) if d <= len(self.noise_floor) else None


def sampling_error(
    store: EstimateStore,
    decomposition: Decomposition = DEFAULT_DECOMPOSITION,
    *,
    progress: Progress = no_progress,
) -> SamplingError | None:
    """Return the sampling error of a stored matrix, from beside it if computed before.

    Both halves are centred and decomposed as the matrix itself is.

    Returns:
        The error; None for a matrix that was not sampled.

    Raises:
        InputError: If blocks are missing or corrupt.
    """
    if store.half_difference is None:
        return None
    settings = {
        "kind": "sampling error from two halves",
        "half_difference": store.half_difference.content_key(),
        **_cache_settings(store.matrix, decomposition),
    }
    arrays = load_subspace(store.matrix, settings)
    if arrays is None:
        arrays = _compute_error(store, decomposition, progress)
        save_subspace(store.matrix, arrays, settings)
    return SamplingError(
        noise_floor=arrays["noise_floor"], standard_error=float(arrays["standard_error"])
    )


def _compute_error(
    store: EstimateStore, decomposition: Decomposition, progress: Progress
) -> dict[str, np.ndarray]:
    assert store.half_difference is not None
    matrix, difference = StoreBlocks(store.matrix), StoreBlocks(store.half_difference)
    bases = [
        _watched(
            centred(HalfBlocks(matrix, difference, sign), centring_of(store.matrix.settings)),
            decomposition,
            f"subspace of the {name} half",
            progress,
        ).basis
        for name, sign in (("first", 1), ("second", -1))
    ]
    shared = min(basis.shape[1] for basis in bases)
    squares = sum(
        float(np.einsum("ij,ij->", rows, rows, dtype=np.float64)) for _, rows in difference.blocks()
    )
    states, tasks = store.matrix.shape
    return {
        "noise_floor": noise_floor(*(basis[:, :shared] for basis in bases)),
        "standard_error": np.asarray(np.sqrt(squares / (states * tasks))),
    }
