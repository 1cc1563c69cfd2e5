"""Entries of a stored matrix, a few at a time, straight from its block files."""

import concurrent.futures
import os
import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require
from rlreps.subspace.row_blocks import subtract_means
from rlreps.successor.store.format import MatrixStore

Entries = npt.NDArray[np.float32]
Indices = npt.NDArray[np.integer]

_ENTRY_BYTES = 4
_OPEN_FILES = 128
"""Block files kept open; a process may have as few as 256 (macOS). The others are opened anew for
each batch, which costs a few microseconds beside tens for a row."""

_MERGED_GAP = 16 * 1024 // _ENTRY_BYTES
"""Number of unwanted entries between two wanted ones that are read along: they cost about as much
as another call. With 16 of 40,000 columns a row takes 3 to 5 calls, with 256 it takes one."""

_READERS = 8
"""Threads that read one batch: a disk answers 8 requests at once in half the time. For data in the
page cache, one thread would do as well."""


class StoreReader:
    """Reads entries of a store's matrix, centred, straight from the block files.

    It does not use a memory map, whose pages would count as this process's memory. A part of a
    block cannot be checked against the block's checksum, which takes a full read, such as the one
    that computed the means. Reading entries detects only blocks that are missing or too short, and
    NaN or infinity. Every difference is computed in float64 and rounded once, as in
    ``subspace.centre_in_place``: equal means give equal bits.

    Use it as a context manager, or ``close`` it: compiled programs keep it alive.
    """

    def __init__(
        self, store: MatrixStore, means: np.ndarray, row_means: np.ndarray | None = None
    ) -> None:
        """Prepare to read.

        Args:
            store: A complete store.
            means: Means subtracted from the columns, [tasks] (float64), as from
                ``subspace.centring_means``; zeros leave the matrix unchanged.
            row_means: Means subtracted from the rows, [n] (float64), likewise.

        Raises:
            InputError: If blocks are missing, or the system has no positioned reads (Windows).
        """
        require(hasattr(os, "preadv"), "a system with positioned reads (POSIX)", os.name)
        given = {"column": (means, store.shape[1]), "row": (row_means, store.shape[0])}
        for kind, (values, size) in given.items():
            if values is None:
                continue
            require(
                values.shape == (size,) and values.dtype == np.float64,
                f"float64 {kind} means of shape ({size},)",
                (values.dtype.name, values.shape),
            )
            require(bool(np.isfinite(values).all()), f"finite {kind} means", "NaN or infinity")
        store.require_complete()
        self._store, self._means, self._row_means = store, means, row_means
        self._descriptors: dict[int, int] = {}
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(_READERS)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, tasks)."""
        return self._store.shape

    def __enter__(self) -> "StoreReader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; later reads raise an ``InputError``."""
        self._pool.shutdown()
        with self._lock:
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])

    def entries(self, rows: Indices, columns: Indices) -> Entries:
        """Return entries [b, t] (float32) of rows [b] and columns [t], centred.

        Both hold at least one index, and indices may repeat.

        Raises:
            IndexError: If the matrix has no such row or column.
            InputError: If a block is missing, too short or not finite; or this is closed.
        """
        for indices, size in zip((rows, columns), self.shape, strict=True):
            if indices.size and not 0 <= indices.min() <= indices.max() < size:
                raise IndexError(f"expected indices in [0, {size}), got {indices}")
        # Sorted and unique: neighbours come in one read, and a disk is read in one direction.
        sorted_rows, row_places = np.unique(rows, return_inverse=True)
        sorted_columns, column_places = np.unique(columns, return_inverse=True)
        found = np.empty((len(sorted_rows), len(sorted_columns)), np.float32)
        spans = _spans(sorted_columns)
        shares = np.array_split(np.arange(len(sorted_rows)), _READERS)
        jobs = [
            self._submit(sorted_rows[share], spans, found[share[0] : share[-1] + 1])
            for share in shares
            if share.size
        ]
        for job in jobs:
            job.result()
        if not np.isfinite(found).all():
            raise InputError(
                f"{self._store.path}: expected finite entries, got NaN or infinity; "
                "verify the store"
            )
        of_rows = None if self._row_means is None else self._row_means[sorted_rows]
        subtract_means(found, self._means[sorted_columns], of_rows, out=found)
        return found[row_places][:, column_places]

    def _submit(
        self, rows: Indices, spans: "list[_Span]", out: Entries
    ) -> "concurrent.futures.Future[None]":
        try:
            return self._pool.submit(self._read, rows, spans, out)
        except RuntimeError as error:
            raise InputError(f"{self._store.path}: expected an open reader, got {error}") from error

    def _read(self, rows: Indices, spans: "list[_Span]", out: Entries) -> None:
        """Fill ``out`` [rows, wanted columns] with the rows' wanted entries, as stored."""
        store = self._store
        buffer = np.empty(max(span.size for span in spans), "<f4")
        for row, wanted in zip(rows.tolist(), out, strict=True):
            block, row_in_block = divmod(row, store.block_rows)
            try:
                descriptor, keep = self._open(block)
                try:
                    for span in spans:
                        target = buffer[: span.size].data
                        offset = _ENTRY_BYTES * (row_in_block * store.shape[1] + span.first)
                        count = os.preadv(descriptor, [target], offset)
                        if count != target.nbytes:
                            raise OSError(f"{count} of {target.nbytes} bytes")
                        wanted[span.places] = buffer[span.offsets]
                finally:
                    if not keep:
                        os.close(descriptor)
            except OSError as error:
                raise InputError(
                    f"{store.path}: expected row {row} in {store.describe_block(block)}, "
                    f"got {error.strerror or error}; verify the store"
                ) from error

    def _open(self, block: int) -> tuple[int, bool]:
        """Return a block's descriptor and whether it stays open.

        The first blocks stay open for good. Rows are drawn uniformly, so none deserves it more, and
        a file that another thread is reading is never closed.
        """
        with self._lock:
            if block in self._descriptors:
                return self._descriptors[block], True
            descriptor = os.open(self._store.block_file(block), os.O_RDONLY | os.O_CLOEXEC)
            keep = len(self._descriptors) < _OPEN_FILES
            if keep:
                self._descriptors[block] = descriptor
            return descriptor, keep


class _Span(NamedTuple):
    """Columns that are read together.

    Attributes:
        first: The first column.
        size: Number of columns, including unwanted ones among them.
        places: Indices of the wanted columns among all wanted columns.
        offsets: Their offsets in the span.
    """

    first: int
    size: int
    places: slice
    offsets: Indices


def _spans(columns: Indices) -> list[_Span]:
    """Return the reads that cover sorted, different columns [t]."""
    ends = [*(np.flatnonzero(np.diff(columns) > _MERGED_GAP) + 1).tolist(), len(columns)]
    spans, start = [], 0
    for end in ends:
        first, last = int(columns[start]), int(columns[end - 1])
        offsets = columns[start:end] - first
        spans.append(_Span(first, last - first + 1, slice(start, end), offsets))
        start = end
    return spans
