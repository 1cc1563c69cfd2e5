"""Subspaces of stored matrices and their sampling errors: computed once, kept beside the matrix.

Matrices are stored uncentred; a setting of the store says which means to subtract
(``centring_of``). A matrix of up to ``IN_MEMORY_BYTES`` is held in memory. A larger matrix is read
block by block with the same arithmetic; several processes can share the work.
"""

import contextlib
import errno
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast, get_args

import numpy as np

from rlreps.errors import InputError, require, require_choice
from rlreps.files import read_archive, write_archive
from rlreps.subspace import (
    ArrayBlocks,
    CentredBlocks,
    Centring,
    PrincipalSubspace,
    RowBlocks,
    centre_in_place,
    centring_means,
)
from rlreps.subspace.products import Products
from rlreps.subspace.row_blocks import column_means, row_means
from rlreps.subspace.svd import Decomposition, RandomizedSVD
from rlreps.successor.measure.methods import CENTRED_ON_READING
from rlreps.successor.truth.store import MatrixStore
from rlreps.successor.truth.store.blocks import StoreBlocks, WatchedBlocks
from rlreps.successor.truth.store.format import plain_json

IN_MEMORY_BYTES = 2**30
"""Largest matrix that is held in memory: 128 x 128 cells."""

DEFAULT_DECOMPOSITION = RandomizedSVD()


class Progress(Protocol):
    """Shows the progress of long work; for example ``runs.progress.progress_bar``."""

    def __call__(
        self, description: str, *, total: int, unit: str
    ) -> contextlib.AbstractContextManager[Callable[[int], object]]:
        """Return a context manager that yields a function to call as units are done."""
        ...


class Share(Protocol):
    """This process's place among those that work on one matrix; for example ``runs.processes``."""

    def process_index(self) -> int:
        """Return the index of this process."""
        return 0

    def process_count(self) -> int:
        """Return the number of processes."""
        return 1

    def first_does(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` on the first process and give its result, JSON values, to all processes."""
        return work()

    def total(self, part: np.ndarray) -> np.ndarray:
        """Return the sum of every process's array."""
        return part


class _Alone(Share):
    """The place of a process that works by itself."""


ALONE = _Alone()


@contextlib.contextmanager
def no_progress(description: str, *, total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield lambda count: None


def centring_of(settings: Mapping[str, Any]) -> Centring:
    """Return which means a store's setting subtracts; columns, if it has no such setting."""
    stored = settings.get("centring", "none")
    require(stored == "none", "a matrix that is stored uncentred (centring none)", stored)
    found = settings.get(CENTRED_ON_READING, "columns")
    require_choice(CENTRED_ON_READING, found, get_args(Centring))
    return cast(Centring, found)


def centred(source: RowBlocks, centring: Centring = "columns") -> RowBlocks:
    """Return a matrix less its means: in memory if it fits, else block by block."""
    if source.dtype.itemsize * source.shape[0] * source.shape[1] > IN_MEMORY_BYTES:
        return CentredBlocks(source, *centring_means(source, centring))
    matrix = np.empty(source.shape, source.dtype)
    for start, rows in source.blocks():
        matrix[start : start + len(rows)] = rows
    centre_in_place(matrix, centring)
    # Products read groups of rows. A group within one block is a view; a group across blocks is a
    # copy.
    return ArrayBlocks(matrix, block_rows=len(matrix))


def principal_subspace(
    store: MatrixStore,
    decomposition: Decomposition = DEFAULT_DECOMPOSITION,
    *,
    matrix: RowBlocks | None = None,
    progress: Progress = no_progress,
    share: Share = ALONE,
) -> PrincipalSubspace:
    """Return the principal subspace of a stored matrix; compute it once and cache it in the store.

    Args:
        store: A complete store.
        decomposition: How to compute it.
        matrix: Its ``centre_matrix``, if it has been read.
        progress: Shows the progress of the decomposition.
        share: The processes that compute it together if the matrix is larger than memory: each
            reads its own rows, and their results are summed.

    Raises:
        InputError: If blocks are missing or corrupt, or the rank exceeds the matrix's.
    """
    settings = cache_settings(store, decomposition)
    # The first process decides, so that all compute the subspace or none does. Otherwise it might
    # write the file before another process looks for it.
    if share.first_does(lambda: load_subspace(store, settings) is not None):
        arrays = load_subspace(store, settings)
        if arrays is None:
            raise InputError(f"expected the subspace beside {store.path} that process 0 has found")
        given = dict(decomposition.settings())
        return PrincipalSubspace(
            basis=arrays["basis"],
            singular_values=arrays["singular_values"],
            total_energy=float(arrays["total_energy"]),
            distance_bound=arrays.get("distance_bound"),
            method=given.pop("method"),
            settings={**given, "rank": arrays["basis"].shape[1]},
        )
    matrix, place = centre_matrix(store, share) if matrix is None else matrix, None
    if share.process_count() > 1 and isinstance(matrix, CentredBlocks):
        own, of_rows = _own_part(store, share), matrix.row_means
        matrix = CentredBlocks(own, matrix.means, None if of_rows is None else of_rows[own.rows])
        place = {"first": own.rows.start, "num_rows": store.shape[0], "total": share.total}
    principal = decompose_with_progress(
        matrix, decomposition, "principal subspace", progress, place
    )
    arrays = {
        "basis": principal.basis,
        "singular_values": principal.singular_values,
        "total_energy": np.asarray(principal.total_energy),
    }
    if principal.distance_bound is not None:
        arrays["distance_bound"] = principal.distance_bound
    if share.process_index() == 0:
        save_subspace(store, arrays, settings)
    return principal


def _own_part(store: MatrixStore, share: Share) -> StoreBlocks:
    """Return this process's blocks of a store."""
    bounds = [
        store.num_blocks * index // share.process_count()
        for index in (share.process_index(), share.process_index() + 1)
    ]
    return StoreBlocks(store, range(*bounds))


def centre_matrix(store: MatrixStore, share: Share = ALONE) -> RowBlocks:
    """Return a store's matrix less its means; processes share the means of a large matrix."""
    whole, centring = StoreBlocks(store), centring_of(store.settings)
    small = whole.dtype.itemsize * math.prod(whole.shape) <= IN_MEMORY_BYTES
    if small or share.process_count() == 1:
        return centred(whole, centring)
    own = _own_part(store, share)
    count = own.shape[0]
    sums, of_rows = np.zeros(whole.shape[1]), np.zeros(whole.shape[0])
    if count and centring != "rows":
        sums = column_means(own) * count
    if count and centring != "columns":
        of_rows[own.rows] = row_means(own)
    means = share.total(sums) / whole.shape[0]
    if centring == "columns":
        return CentredBlocks(whole, means)
    return CentredBlocks(whole, means, share.total(of_rows) - means.mean())


def decompose_with_progress(
    matrix: RowBlocks,
    decomposition: Decomposition,
    description: str,
    progress: Progress,
    place: Mapping[str, Any] | None = None,
) -> PrincipalSubspace:
    """Decompose row blocks, with a bar of the reads.

    ``place`` is that of the blocks among those of other processes (see ``Products``).
    """
    total, done = decomposition.num_reads * matrix.shape[0], 0
    if decomposition.num_reads == 0:
        return decomposition.decompose(matrix)

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        advance(rows)

    # The bar counts a row every time it is read.
    title = f"{description} ({decomposition.num_reads} x {matrix.shape[0]:,} rows)"
    with progress(title, total=total, unit="rows") as advance:
        watched = WatchedBlocks(matrix, count)
        result = decomposition.decompose(watched if place is None else Products(watched, **place))
        advance(max(0, total - done))  # A matrix of low rank needs fewer reads.
    return result


def cache_settings(store: MatrixStore, decomposition: Decomposition) -> dict[str, Any]:
    """Return what determines a subspace of a stored matrix, beside the matrix."""
    return {"centring": centring_of(store.settings), **decomposition.settings()}


_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


def save_subspace(
    store: MatrixStore, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> None:
    """Keep arrays computed from the whole matrix, in place of any kept under equal settings.

    The settings are everything else that determines the arrays, as plain JSON values. The record
    of the archive, ``<store>/subspace/<hash of the settings>.npz``, holds them and the content key
    of the matrix, so that results for other bytes or other settings are never returned. The folder
    is no chunk's, so that Zarr readers ignore it. Nothing is kept if the store lies on a read-only
    file system.

    Raises:
        InputError: If the matrix is incomplete, or the disk is full or broken.
    """
    record = {"content_key": store.content_key(), "settings": plain_json(settings)}
    try:
        write_archive(_file(store, settings), arrays, record)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise InputError(
                f"expected room for a subspace in {store.path}, got {error.strerror}"
            ) from error


def load_subspace(store: MatrixStore, settings: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    """Load the arrays kept under these settings, or None if there are none for this matrix.

    Raises:
        InputError: If the cache file is corrupt (the message names it), or the matrix is
            incomplete.
    """
    file = _file(store, settings)
    if not file.is_file():
        return None
    name = f"subspace cache {file}; delete it to compute it again"
    arrays, record = read_archive(file, name)
    made_from = record.get("content_key"), record.get("settings")
    return arrays if made_from == (store.content_key(), plain_json(settings)) else None


def _file(store: MatrixStore, settings: Mapping[str, Any]) -> Path:
    canonical = json.dumps(plain_json(settings), sort_keys=True)
    return store.path / "subspace" / f"{hashlib.sha256(canonical.encode()).hexdigest()[:16]}.npz"
