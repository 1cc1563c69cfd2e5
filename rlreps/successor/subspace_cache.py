"""Principal subspaces kept beside the matrix they were computed from.

They lie in ``<store>/subspace/<hash of their settings>.npz``, outside the chunk folder, where Zarr
readers do not look. Each file is a zip of ``.npy`` arrays (``numpy.load`` reads it) with one more
entry, ``rlreps.json``, that holds the settings and the content key of the matrix: what was computed
from other bytes or under other settings is never returned. Nothing is pickled.
"""

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError
from rlreps.successor.matrix_store import MatrixStore, plain_json

_RECORD = "rlreps.json"
_UNREADABLE = (
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def save_subspace(
    store: MatrixStore, arrays: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, Any]
) -> None:
    """Keeps arrays computed from the whole matrix, in place of any kept under equal settings.

    Args:
        store: The complete store that the arrays were computed from.
        arrays: What to keep, by name; numbers, of any shape.
        settings: What determines the arrays beside the matrix, as plain JSON values.

    Raises:
        InputError: The matrix is incomplete.
        ValueError: An array holds Python objects, or the settings hold NaN or infinity.
        TypeError: The settings hold what JSON cannot.
    """
    record = {
        "content_key": store.content_key(),
        "settings": plain_json(settings),
        "arrays": sorted(arrays),
    }
    file = _file(store, settings)
    file.parent.mkdir(exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            _write(stream, arrays, record)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def load_subspace(
    store: MatrixStore, settings: Mapping[str, Any]
) -> dict[str, npt.NDArray[Any]] | None:
    """The arrays kept under these settings, or None if there are none for this very matrix.

    Raises:
        InputError: The cache file is corrupt (it is named), or the matrix is incomplete.
    """
    file = _file(store, settings)
    if not file.is_file():
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            record = json.loads(archive.read(_RECORD))
            arrays = {name: _read(archive, name) for name in record["arrays"]}
            origin = record["content_key"], record["settings"]
    except _UNREADABLE as error:
        raise InputError(
            f"expected a readable subspace cache, got the corrupt file {file}, "
            f"to be deleted and computed again ({error})"
        ) from error
    return arrays if origin == (store.content_key(), plain_json(settings)) else None


def _write(
    stream: io.BufferedWriter, arrays: Mapping[str, npt.NDArray[Any]], record: Mapping[str, Any]
) -> None:
    """Writes the archive; equal content gives equal bytes, as no time of day enters.

    Not ``numpy.savez``: before NumPy 2.1 it cannot be told to refuse pickling.
    """
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_RECORD), json.dumps(record, indent=1, sort_keys=True))
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def _read(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """One array; the whole entry is read first, which is when zipfile compares its checksum."""
    entry = io.BytesIO(archive.read(f"{name}.npy"))
    array: npt.NDArray[Any] = np.lib.format.read_array(entry, allow_pickle=False)
    return array


def _file(store: MatrixStore, settings: Mapping[str, Any]) -> Path:
    canonical = json.dumps(plain_json(settings), sort_keys=True)
    return store.path / "subspace" / f"{hashlib.sha256(canonical.encode()).hexdigest()[:16]}.npz"
