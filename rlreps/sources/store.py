"""Batches from a matrix that stays on disk, for stores larger than memory.

Rows and tasks are drawn on the device exactly as by ``MatrixSource``. Only their indices go to the
host, which reads the entries where they meet and returns them. The same key gives the same bits as
with the matrix in memory.
"""

import dataclasses
import math
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.batch import Batch
from rlreps.errors import InputError, require
from rlreps.sources.matrix import (
    Source,
    checked_widths,
    draw_inputs,
    draw_rows_and_tasks,
    encoder_inputs,
)
from rlreps.successor.truth.store.blocks import Entries
from rlreps.successor.truth.store.blocks import StoreReader as StoreReader
from rlreps.typing import IndexArray


class EntryReader(Protocol):
    """Reads entries of a matrix [n, tasks], from any thread."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, tasks)."""
        ...

    def entries(self, rows: IndexArray, columns: IndexArray) -> Entries:
        """Return entries [b, t] (float32) where rows [b] and columns [t] meet; b, t >= 1.

        Rows and columns may repeat. The method is called from inside compiled programs: it must not
        call JAX, which could wait for itself.

        Raises:
            InputError: If the entries cannot be read. Any other exception ends the program with
                JAX's own error.
        """
        ...


class _HostReads:
    """The callback of one source, which reads, and keeps the first failure."""

    def __init__(self, reader: EntryReader) -> None:
        self.reader = reader
        self.failure: InputError | None = None

    def __call__(self, rows: Array, columns: Array) -> Entries:
        """Return entries [..., b, t] for rows [..., b] and columns [..., t]; NaN after a failure.

        JAX does not define what follows an exception in a callback.
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
                read = np.asarray(self.reader.entries(row_set, column_set))
                expected = f"entries {entries.shape} of {entries.shape[0]} rows and as many columns"
                require(read.shape == entries.shape, expected, read.shape)
                entries[:] = read
            except InputError as error:
                self.failure = error
        return found.reshape(shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StreamedSource:
    """Entries of a matrix that the host reads; made by ``streamed_source``.

    It gives the same batches as a ``MatrixSource`` over the same matrix, bit for bit. It brings no
    population, which would be a read of the whole matrix for every update.

    Attributes:
        inputs: Encoder input of each state, [n, ...].
        reads: Callback that reads on the host; a compiled program belongs to one callback.
        cell_widths: As in ``MatrixSource``.
    """

    inputs: Array
    reads: _HostReads = dataclasses.field(metadata={"static": True})
    cell_widths: Array | None = None

    @property
    def num_tasks(self) -> int:
        return self.reads.reader.shape[1]

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw independent rows and columns and the entries where they meet (float32).

        If they cannot be read, the targets of this and all later batches are NaN until
        ``raise_read_failure`` reports the cause.
        """
        rows, tasks = draw_rows_and_tasks(key, self.reads.reader.shape, num_rows, num_tasks)
        shape = jax.ShapeDtypeStruct((num_rows, num_tasks), jnp.float32)
        # Mapped over seeds, one call reads the entries of all seeds.
        targets = jax.pure_callback(self.reads, shape, rows, tasks, vmap_method="broadcast_all")
        return Batch(draw_inputs(key, self.inputs, rows, self.cell_widths), targets, tasks)


def streamed_source(
    reader: EntryReader,
    inputs: Array | np.ndarray | None = None,
    *,
    cell_widths: Array | np.ndarray | None = None,
) -> StreamedSource:
    """Return a source over a matrix that is not in memory.

    Args:
        reader: Reads its entries; they are centred if the centred matrix's subspace is the target.
        inputs: Encoder input of each state, [n, ...]; None gives state indices [n] (int32), for a
            tabular encoder.
        cell_widths: As for ``matrix_source``.

    Returns:
        The source. Each source is compiled separately, even for the same reader.

    Raises:
        InputError: If the shapes do not fit or there are non-finite inputs.
    """
    require(min(reader.shape) >= 1, "a matrix of shape [states, tasks]", reader.shape)
    states = encoder_inputs(inputs, reader.shape[0])
    return StreamedSource(states, _HostReads(reader), checked_widths(cell_widths, states))


def raise_read_failure(source: Source) -> None:
    """Raise the ``InputError`` that made a ``StreamedSource``'s targets NaN, and clear it.

    Other sources raise nothing.
    """
    if isinstance(source, StreamedSource) and source.reads.failure is not None:
        failure, source.reads.failure = source.reads.failure, None
        raise failure
