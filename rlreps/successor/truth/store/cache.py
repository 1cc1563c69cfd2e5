"""Principal subspaces kept beside the matrix they were computed from.

They lie in ``<store>/subspace/<hash of their settings>.npz``, outside the chunk folder, so that
Zarr readers ignore them. The record of each archive holds the settings and the content key of the
matrix, so that results for other bytes or other settings are never returned.

An archive is a zip of ``.npy`` entries and a JSON record. ``numpy.load`` reads the arrays. Nothing
is pickled, and every entry has a checksum. Equal content gives equal bytes, since archives hold no
timestamps.
"""

import errno
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError
from rlreps.files import (
    DAMAGED,
    MOST_BYTES,
    open_regular,
    parse_json,
    read_arrays,
    write_atomically,
)
from rlreps.successor.truth.store.format import MatrixStore, plain_json

Arrays = dict[str, npt.NDArray[Any]]

_RECORD = "rlreps.json"
_NAMES = "arrays"


def write_archive(
    path: Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    record: Mapping[str, Any],
    *,
    compress: bool = False,
) -> None:
    """Write an archive of numeric arrays and a record of JSON values, whole or not at all.

    It does not use ``numpy.savez``, which cannot refuse to pickle before NumPy 2.1.
    """
    stream = io.BytesIO()
    compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    text = json.dumps({**record, _NAMES: sorted(arrays)}, indent=1, sort_keys=True, allow_nan=False)
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_RECORD), text)
        for name, array in arrays.items():
            entry_info = zipfile.ZipInfo(f"{name}.npy")
            entry_info.compress_type = compression
            with archive.open(entry_info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    write_atomically(path, stream.getvalue())


def read_archive(path: Path, name: str) -> tuple[Arrays, dict[str, Any]]:
    """Read the arrays of an archive and its record; raise an ``InputError`` if it is corrupt.

    The message says ``name``, with advice if the file cannot be read.
    """
    try:
        with open_regular(path) as stream:
            with zipfile.ZipFile(stream) as archive, archive.open(_RECORD) as entry:
                record = parse_json(entry.read(MOST_BYTES + 1), _RECORD)
            stream.seek(0)
            arrays = read_arrays(stream)
        if not isinstance(record, dict) or sorted(record.pop(_NAMES)) != sorted(arrays):
            raise ValueError("other arrays than its record names")
    except DAMAGED as error:
        raise InputError(f"expected readable arrays, got the corrupt {name} ({error})") from error
    return arrays, record


_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


def save_subspace(
    store: MatrixStore, arrays: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, Any]
) -> None:
    """Keep arrays computed from the whole matrix, in place of any kept under equal settings.

    The settings are everything else that determines the arrays, as plain JSON values. Nothing is
    kept if the store lies on a read-only file system.

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


def load_subspace(store: MatrixStore, settings: Mapping[str, Any]) -> Arrays | None:
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
