"""Batches from a matrix that stays on disk: for stores larger than memory.

Rows and tasks are drawn on the device exactly as a ``MatrixSource`` draws them; only their indices
go to the host, which reads the entries where they meet and sends those back. The same key gives the
same bits as the matrix in memory would.
"""

import concurrent.futures
import dataclasses
import math
import os
import threading
from types import TracebackType
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.configs import require
from rlreps.errors import InputError
from rlreps.losses.base import Batch
from rlreps.sources import Source, draw_rows_and_tasks, encoder_inputs
from rlreps.subspace.row_blocks import subtract_means
from rlreps.successor.matrix_store import MatrixStore

Entries = npt.NDArray[np.float32]
Indices = npt.NDArray[np.integer]

_ENTRY_BYTES = 4
_OPEN_FILES = 128
"""Block files kept open; a process may have as few as 256 (macOS). The others are opened anew for
each batch, which costs a few microseconds beside tens for a row."""

_MERGED_GAP = 16 * 1024 // _ENTRY_BYTES
"""Unwanted entries between two wanted ones that are read along with them: as many as cost about
what another call does. 16 of 40,000 columns take 3 to 5 calls a row, 256 take one."""

_READERS = 8
"""Threads that read one batch: a disk that has to be asked answers 8 at once in half the time.
Where the page cache answers, one would do as well."""


class EntryReader(Protocol):
    """Reads entries of a matrix [n, tasks], from any thread."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, tasks)."""
        ...

    def entries(self, rows: Indices, columns: Indices) -> Entries:
        """Entries [b, t] (float32) where rows [b] and columns [t] meet; repeats are allowed.

        Called from inside compiled programs: it must not call JAX, which could wait for itself.

        Raises:
            InputError: If they cannot be read.
        """
        ...


class StoreReader:
    """Reads entries of a store's matrix, less its column means, straight from the block files.

    Not through a memory map, whose pages would count as this process's memory. A part of a block
    cannot be checked against the block's checksum: that takes a full read, such as the one that
    gave the means. What is noticed here is a block that is missing or too short, and NaN or
    infinity. Every difference is taken in float64 and rounded once, as
    ``subspace.centre_columns_in_place`` does it, to the same bits for the same means.

    Use it as a context manager, or ``close`` it: compiled programs keep it alive.
    """

    def __init__(self, store: MatrixStore, means: np.ndarray) -> None:
        """Prepares to read.

        Args:
            store: A complete store.
            means: Mean of every column over the states, [tasks] (float64), as
                ``subspace.column_means`` finds it; zeros leave the matrix as it is.

        Raises:
            InputError: If blocks are missing, the means do not fit, or the system has no
                positioned reads (Windows).
        """
        require(hasattr(os, "preadv"), "a system with positioned reads (POSIX)", os.name)
        tasks = store.shape[1]
        require(
            means.shape == (tasks,) and means.dtype == np.float64,
            f"float64 column means of shape ({tasks},)",
            (means.dtype.name, means.shape),
        )
        require(bool(np.isfinite(means).all()), "finite column means", "NaN or infinity")
        store.require_complete()
        self._store, self._means = store, means
        self._descriptors: dict[int, int] = {}
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(_READERS)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, tasks)."""
        return self._store.shape

    def __enter__(self) -> "StoreReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; reading after this is an ``InputError``."""
        self._pool.shutdown()
        with self._lock:
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])

    def entries(self, rows: Indices, columns: Indices) -> Entries:
        """Entries [b, t] (float32) where rows [b] and columns [t] meet, less the column means.

        Raises:
            IndexError: A row or column that the matrix does not have.
            InputError: A block is missing, too short or holds NaN or infinity; or this is closed.
        """
        for indices, size in zip((rows, columns), self.shape, strict=True):
            if indices.size and not 0 <= indices.min() <= indices.max() < size:
                raise IndexError(f"expected indices in [0, {size}), got {indices}")
        # In order and each once: neighbouring entries in one read, and a disk's heads move one way.
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
        subtract_means(found, self._means[sorted_columns], out=found)
        repeated: Entries = found[row_places][:, column_places]
        return repeated

    def _submit(
        self, rows: Indices, spans: "list[_Span]", out: Entries
    ) -> "concurrent.futures.Future[None]":
        try:
            return self._pool.submit(self._read, rows, spans, out)
        except RuntimeError as error:
            raise InputError(f"{self._store.path}: expected an open reader, got {error}") from error

    def _read(self, rows: Indices, spans: "list[_Span]", out: Entries) -> None:
        """Fills ``out`` [rows, wanted columns] with the rows' wanted entries, as stored."""
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
        """A block's descriptor, and whether it stays open.

        The first blocks met stay open for good: rows are drawn uniformly, so that none deserves it
        more, and a file that another thread reads is never closed under it.
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
        first: The first of them.
        size: How many, unwanted ones among them included.
        places: Where the wanted ones go among all wanted columns.
        offsets: Where in the span they are.
    """

    first: int
    size: int
    places: slice
    offsets: Indices


def _spans(columns: Indices) -> list[_Span]:
    """The reads that bring sorted, different columns [t]."""
    ends = [*(np.flatnonzero(np.diff(columns) > _MERGED_GAP) + 1).tolist(), len(columns)]
    spans, start = [], 0
    for end in ends:
        first, last = int(columns[start]), int(columns[end - 1])
        offsets = columns[start:end] - first
        spans.append(_Span(first, last - first + 1, slice(start, end), offsets))
        start = end
    return spans


class _HostReads:
    """The callback of one source: reads, and remembers the first failure."""

    def __init__(self, reader: EntryReader) -> None:
        self.reader = reader
        self.failure: InputError | None = None

    def __call__(self, rows: Array, columns: Array) -> Entries:
        """Entries [..., b, t] for rows [..., b] and columns [..., t]; NaN after a failure.

        JAX leaves undefined what follows an exception in a callback.
        """
        row_sets, column_sets = np.asarray(rows), np.asarray(columns)
        shape = (*row_sets.shape, column_sets.shape[-1])
        found = np.full((math.prod(shape[:-2]), *shape[-2:]), np.nan, np.float32)
        pairs = zip(
            row_sets.reshape(-1, shape[-2]), column_sets.reshape(-1, shape[-1]), strict=True
        )
        for entries, (row_set, column_set) in zip(found, pairs, strict=True):
            if self.failure is not None:
                break
            try:
                entries[:] = self.reader.entries(row_set, column_set)
            except InputError as error:
                self.failure = error
        return found.reshape(shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StreamedSource:
    """Entries of a matrix that the host reads; made by ``streamed_source``.

    Where a ``MatrixSource`` over the same matrix would do, this gives the same batches, bit for
    bit. It brings no population: one would be a read of the whole matrix for every update.

    Attributes:
        inputs: Encoder input of each state, [n, ...].
        reads: The host's side; compiled programs are made for one such object.
    """

    inputs: Array
    reads: _HostReads = dataclasses.field(metadata={"static": True})

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return self.reads.reader.shape[0]

    @property
    def num_tasks(self) -> int:
        """Columns of the matrix."""
        return self.reads.reader.shape[1]

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draws independent rows and columns and the entries where they meet.

        If they cannot be read, the targets are NaN, for this and all later batches, until
        ``raise_failure`` has said why.

        Args:
            key: Random key.
            num_rows: b.
            num_tasks: t.

        Returns:
            A batch: inputs [b, ...], targets [b, t] (float32), tasks [t].
        """
        rows, tasks = draw_rows_and_tasks(key, self.reads.reader.shape, num_rows, num_tasks)
        shape = jax.ShapeDtypeStruct((num_rows, num_tasks), jnp.float32)
        # Mapped over seeds, one call brings the entries of all of them.
        targets = jax.pure_callback(self.reads, shape, rows, tasks, vmap_method="broadcast_all")
        return Batch(self.inputs[rows], targets, tasks)

    def raise_failure(self) -> None:
        """Raises the ``InputError`` that made targets NaN, if there was one, and forgets it."""
        failure, self.reads.failure = self.reads.failure, None
        if failure is not None:
            raise failure


def streamed_source(
    reader: EntryReader, inputs: Array | np.ndarray | None = None
) -> StreamedSource:
    """A source over a matrix that stays where it is.

    Args:
        reader: Reads its entries, centred if the principal subspace is the centred matrix's.
        inputs: Encoder input of each state, [n, ...]; None gives state indices [n] (int32), for a
            tabular encoder.

    Returns:
        The source. Programs compiled for one are not those of another, even of the same reader.

    Raises:
        InputError: If the shapes do not fit or there are non-finite inputs.
    """
    require(min(reader.shape) >= 1, "a matrix of shape [states, tasks]", reader.shape)
    return StreamedSource(encoder_inputs(inputs, reader.shape[0]), _HostReads(reader))


def raise_read_failure(source: Source) -> None:
    """Raises what went wrong on the host while batches were drawn; nothing for other sources.

    Raises:
        InputError: If a ``StreamedSource`` could not read its entries.
    """
    if isinstance(source, StreamedSource):
        source.raise_failure()
