"""A matrix of float32 on disk as a Zarr v3 array, read and written by blocks of rows.

A store is a folder with a Zarr v3 array (``zarr.open`` reads it) whose attributes hold, under the
key ``rlreps``, the *settings* that determine the matrix and the *provenance* that only informs.

One chunk file holds one block of rows, all columns, as raw little-endian float32 followed by a
CRC-32C checksum (a shorter last block is padded). There is no compression: zstd saves 10 % on a
dense matrix of float32 averages and makes reading three times slower. A killed writer does no harm:
tensorstore writes each chunk to ``<chunk>.__lock``, syncs the file and renames it. tensorstore
0.1.86 does not truncate a lock file that a killed writer left; since all chunks have the same size,
the next write overwrites the whole file.
"""

import contextlib
import hashlib
import itertools
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorstore as ts

from rlreps.config import as_json, checked
from rlreps.errors import InputError, describe_differences, require_positive
from rlreps.files import require_free, require_name
from rlreps.typing import ArrayLike

RowBlock = npt.NDArray[np.float32]
"""Consecutive rows of a store, [rows, columns]."""

CHECKSUM_BYTES = 4
_BLOCKS_IN_FLIGHT = 3  # enough to overlap reading with use; memory stays at a few blocks


@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class MatrixStore:
    """An open store; made by ``create_or_resume`` or ``open_store``, not directly.

    Methods raise an ``InputError`` that names the block if blocks are missing, corrupt or invalid,
    or the disk fails.

    Attributes:
        path: The store's folder, absolute.
        shape: (num_states, num_tasks).
        block_rows: Rows in a block; the last block may have fewer.
        settings: Everything that determines the matrix: equal settings mean equal bytes, on the
            same kind of device with the same versions.
        provenance: Other information, as written when the store was created.
    """

    path: Path
    shape: tuple[int, int]
    block_rows: int
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    _array: ts.TensorStore = field(repr=False)

    def __reduce__(self) -> tuple[Callable[[Path], "MatrixStore"], tuple[Path]]:
        """Pickle the store's path: unpickling opens the store there."""
        return open_store, (self.path,)

    @property
    def num_blocks(self) -> int:
        """Number of row blocks, the shorter last one included."""
        return -(-self.shape[0] // self.block_rows)

    def block_range(self, index: int) -> tuple[int, int]:
        """Return rows [start, stop) of a block; raise an ``IndexError`` if there is none."""
        if not 0 <= index < self.num_blocks:
            raise IndexError(f"expected a block index in [0, {self.num_blocks}), got {index}")
        start = index * self.block_rows
        return start, min(start + self.block_rows, self.shape[0])

    def block_file(self, index: int) -> Path:
        """Return the chunk file of a block, whether it exists or not."""
        self.block_range(index)
        return self.path / "c" / str(index) / "0"

    def describe_block(self, index: int) -> str:
        """Return a block's index, first and last row and file, for messages."""
        start, stop = self.block_range(index)
        file = self.block_file(index).relative_to(self.path).as_posix()
        return f"block {index} (rows {start}-{stop - 1}, file {file})"

    def missing_blocks(self) -> list[int]:
        """Return indices of the blocks that were never written, in order."""
        return [index for index in range(self.num_blocks) if not self.block_file(index).is_file()]

    def remove_block(self, index: int) -> None:
        """Delete a block, so that it counts as missing."""
        self.block_file(index).unlink(missing_ok=True)

    def write_block(self, index: int, rows: ArrayLike) -> None:
        """Write or replace a block; it is on disk, whole, when this returns.

        ``rows`` are float32 [stop - start, num_tasks] of the block's range, all finite.
        """
        start, stop = self.block_range(index)
        values = np.asarray(rows)
        expected = (stop - start, self.shape[1])
        if values.shape != expected or values.dtype != np.float32:
            raise InputError(
                f"{self.describe_block(index)}: expected float32 rows of shape {expected}, "
                f"got {values.dtype} of shape {values.shape}"
            )
        if not np.isfinite(values).all():
            count = int(np.count_nonzero(~np.isfinite(values)))
            raise InputError(
                f"{self.describe_block(index)}: expected finite values, got {count} NaN or infinite"
            )
        with _explained(f"{self.path}: expected to write {self.describe_block(index)}"):
            if stop - start < self.block_rows:
                # tensorstore merges rows that do not fill their chunk into the chunk on disk, and
                # fails if it is corrupt. The chunk is therefore deleted first. A process killed in
                # between leaves a missing block.
                self.block_file(index).unlink(missing_ok=True)
            self._array[start:stop].write(values).result()

    def read_block(self, index: int) -> RowBlock:
        """Return rows float32 [stop - start, num_tasks] of a block; NaN if it was never written."""
        return next(self._stream([index]))[1]

    def read(self) -> RowBlock:
        """Return the whole matrix, float32 [num_states, num_tasks]."""
        matrix = np.empty(self.shape, np.float32)
        for index, rows in self.iterate_blocks():
            matrix[slice(*self.block_range(index))] = rows
        return matrix

    def iterate_blocks(self, part: range | None = None) -> Iterator[tuple[int, RowBlock]]:
        """Yield (index, rows float32 [stop - start, num_tasks]) in order, reading ahead.

        ``part`` holds indices of blocks; None is all. Every block must have been written.
        """
        self.require_complete()
        yield from self._stream(range(self.num_blocks) if part is None else part)

    def content_key(self) -> str:
        """Return a key of the stored bytes in hexadecimal, from the checksums alone.

        Two matrices that differ in one block by accident get the same key once in 2^32 (CRC-32C).
        The key also depends on ``block_rows``. It does not detect a chunk whose values no longer
        match its checksum; reading the chunk does.
        """
        self.require_complete()
        hasher = hashlib.sha256(repr((*self.shape, self.block_rows)).encode())
        for index in range(self.num_blocks):
            expected = f"{self.path}: expected a readable {self.describe_block(index)}"
            with _explained(expected), self.block_file(index).open("rb") as file:
                file.seek(-CHECKSUM_BYTES, os.SEEK_END)
                hasher.update(file.read())
        return hasher.hexdigest()

    def require_complete(self) -> None:
        """Raise InputError that names the missing blocks, if there are any."""
        if missing := self.missing_blocks():
            ranges = [
                f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])
                for run in split_into_runs(missing)
            ]
            raise InputError(
                f"{self.path}: expected all {self.num_blocks} blocks, "
                f"got {len(missing)} missing: {', '.join(ranges)}"
            )

    def _stream(self, indices: Iterable[int]) -> Iterator[tuple[int, RowBlock]]:
        """Read blocks in the order given, a few at a time."""
        pending: deque[tuple[int, ts.Future[RowBlock]]] = deque()
        for index in indices:
            start, stop = self.block_range(index)
            pending.append((index, self._array[start:stop].read(order="C")))
            if len(pending) > _BLOCKS_IN_FLIGHT:
                yield self._settle(*pending.popleft())
        while pending:
            yield self._settle(*pending.popleft())

    def _settle(self, index: int, future: "ts.Future[RowBlock]") -> tuple[int, RowBlock]:
        with _explained(f"{self.path}: expected a readable {self.describe_block(index)}"):
            return index, future.result()


def split_into_runs(indices: Iterable[int]) -> list[list[int]]:
    """Split rising numbers into runs of neighbours."""
    # Neighbours have the same difference between value and index.
    grouped = itertools.groupby(enumerate(indices), lambda pair: pair[1] - pair[0])
    return [[index for _, index in run] for _, run in grouped]


def first_part(error: BaseException) -> str:
    """Return a tensorstore message as one line, without the specification that it appends."""
    return str(error).split(" [")[0].replace("\n", " ")


@contextlib.contextmanager
def _explained(expected: str) -> Iterator[None]:
    """Turn an error of tensorstore or the disk into an ``InputError``."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError(f"{expected}, got {first_part(error)}") from error


def plain_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON gives them back: tuples as lists, NumPy's numbers as Python's.

    Raises:
        InputError: For NaN, infinity, and what JSON cannot hold.
    """
    try:
        return dict(json.loads(json.dumps(as_json(dict(values)), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected settings that JSON can hold, got {first_part(error)}"
        ) from error


STORE = "successor"
"""Folder of the store of a run that generates its own ground truth."""

_FORMAT = 3
_METADATA_FILE = "zarr.json"
HALF_DIFFERENCE = "half_difference"
"""Folder in a store for the difference of two halves of its samples, a store of its own."""

_LEFT_BY_A_CREATION = (f"{_METADATA_FILE}.__lock",)  # tensorstore's lock


def create_or_resume(
    path: str | Path,
    *,
    shape: tuple[int, int],
    block_rows: int,
    settings: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> MatrixStore:
    """Make a store, or open an existing one made under the same settings.

    Args:
        path: A folder that does not exist, is empty, or holds a store.
        shape: (num_states, num_tasks).
        block_rows: Rows in a block; the last block may have fewer.
        settings: What determines the matrix, as plain JSON values; mappings may be nested.
        provenance: Versions, date, device and the like, as plain JSON values. It is not compared,
            and an existing store keeps its own.

    Returns:
        The store; ``missing_blocks`` says what is left to compute.

    Raises:
        InputError: If the store has other settings, shape or block_rows (the message gives both
            values of each), the path is something else, the shape is not positive, or the disk
            fails.
    """
    for name, size in ("block_rows", block_rows), ("states", shape[0]), ("tasks", shape[1]):
        require_positive(name, size)
    require_name(path)
    folder = Path(os.path.realpath(path))
    plain = plain_json(settings)
    if (folder / _METADATA_FILE).exists():
        store = open_store(folder)
        stored = {"shape": store.shape, "block_rows": store.block_rows, **store.settings}
        given = {"shape": tuple(shape), "block_rows": block_rows, **plain}
        if different := describe_differences(stored, given):
            raise InputError(f"{store.path} was made under other settings: {'; '.join(different)}")
        return store
    require_place(folder)
    entry = {
        "format": _FORMAT,
        "settings": plain,
        "provenance": plain_json(provenance),
        "checksum": _checksum(shape, block_rows, plain),
    }
    with _explained(f"expected a place for a store at {folder}"):
        # Metadata that a killed process left may be longer than the metadata written over them.
        (folder / f"{_METADATA_FILE}.__lock").unlink(missing_ok=True)
        metadata = _metadata(shape, block_rows, {"rlreps": entry})
        ts.open({**_spec(folder), "metadata": metadata}, create=True).result()
    return open_store(folder)


def require_place(path: str | Path) -> None:
    """Raise InputError unless the path holds a store, is free or is an empty folder."""
    require_name(path)
    if not (Path(path) / _METADATA_FILE).exists():
        require_free(path, "a matrix store", own=_LEFT_BY_A_CREATION)


def find_store(path: str | Path) -> MatrixStore | None:
    """Return the store at a path, or None if there is none; see ``open_store``."""
    return open_store(path) if (Path(path) / _METADATA_FILE).exists() else None


def open_store(path: str | Path) -> MatrixStore:
    """Open a store that exists, complete or not.

    Raises:
        InputError: If there is no store at the path, or its metadata are truncated, corrupt or not
            a store's metadata.
    """
    require_name(path)
    folder = Path(os.path.realpath(path))
    if not (folder / _METADATA_FILE).is_file():
        if (folder / "config.json").is_file():
            inside = Path(path) / "successor"
            hint = f"; its store is {inside}" if (inside / "zarr.json").is_file() else ""
            raise InputError(f"{path} holds a run, not a matrix store{hint}")
        problem = "no such path" if not folder.exists() else f"no {_METADATA_FILE} in it"
        raise InputError(f"expected a matrix store at {folder}, got {problem}")
    try:
        array = ts.open(_spec(folder), open=True, dtype=ts.float32, rank=2).result()
        metadata = array.spec().to_json()["metadata"]
        block_rows = int(metadata["chunk_grid"]["configuration"]["chunk_shape"][0])
        shape = (int(metadata["shape"][0]), int(metadata["shape"][1]))
        entry = metadata["attributes"]["rlreps"]
        expected = _metadata(shape, block_rows, metadata["attributes"])
        if different := [name for name in expected if metadata.get(name) != expected[name]]:
            raise ValueError(f"another layout ({', '.join(different)})")
        if entry["format"] != _FORMAT:
            raise ValueError(f"format {entry['format']} instead of {_FORMAT}")
        settings, provenance = dict(entry["settings"]), dict(entry["provenance"])
        if _checksum(shape, block_rows, settings) != entry["checksum"]:
            raise ValueError(f"{_METADATA_FILE} with a shape or settings changed since")
    except KeyError as error:
        raise InputError(
            f"expected a matrix store at {folder}, got {_METADATA_FILE} without {error}"
        ) from error
    except (IndexError, OSError, TypeError, ValueError) as error:
        raise InputError(f"expected a matrix store at {folder}, got {first_part(error)}") from error
    return MatrixStore(
        path=folder,
        shape=shape,
        block_rows=block_rows,
        settings=MappingProxyType(settings),
        provenance=MappingProxyType(provenance),
        _array=array,
    )


def _checksum(shape: tuple[int, int], block_rows: int, settings: Mapping[str, Any]) -> str:
    """Hash everything that determines a matrix and its blocks."""
    canonical = json.dumps([*map(int, shape), int(block_rows), dict(settings)], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _spec(folder: Path) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}


def _metadata(
    shape: tuple[int, int], block_rows: int, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return Zarr v3 array metadata of a store, in the form that tensorstore reports."""
    return {
        "shape": [*shape],
        "data_type": "float32",
        "fill_value": "NaN",  # a block that was never written must not look like zeros
        "dimension_names": ["state", "task"],
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [block_rows, shape[1]]},
        },
        "chunk_key_encoding": {"name": "default"},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
        "attributes": dict(attributes),
    }
