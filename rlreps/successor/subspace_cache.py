"""Principal subspaces kept beside the matrix they were computed from.

They lie in ``<store>/subspace/<hash of their settings>.npz``, outside the chunk folder, where Zarr
readers do not look. The record of each archive holds the settings and the content key of the
matrix: what was computed from other bytes or under other settings is never returned.
"""

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rlreps.errors import InputError
from rlreps.successor.archives import read_archive, write_archive
from rlreps.successor.matrix_store import MatrixStore, plain_json

_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


def save_subspace(
    store: MatrixStore, arrays: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, Any]
) -> None:
    """Keeps arrays computed from the whole matrix, in place of any kept under equal settings.

    Nothing is kept of a store that lies where nothing may be written, such as a read-only share.

    Args:
        store: The complete store that the arrays were computed from.
        arrays: What to keep, by name; numbers, of any shape.
        settings: What determines the arrays beside the matrix, as plain JSON values.

    Raises:
        InputError: The matrix is incomplete, or the disk is full or broken.
        ValueError: An array holds Python objects, or the settings hold NaN or infinity.
        TypeError: The settings hold what JSON cannot.
    """
    record = {"content_key": store.content_key(), "settings": plain_json(settings)}
    try:
        write_archive(_file(store, settings), arrays, record)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise InputError(
                f"expected room for a subspace in {store.path}, got {error.strerror}"
            ) from error


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
    name = f"subspace cache {file}, to be deleted and computed again"
    arrays, record = read_archive(file, name)
    made_from = record.get("content_key"), record.get("settings")
    return arrays if made_from == (store.content_key(), plain_json(settings)) else None


def _file(store: MatrixStore, settings: Mapping[str, Any]) -> Path:
    canonical = json.dumps(plain_json(settings), sort_keys=True)
    return store.path / "subspace" / f"{hashlib.sha256(canonical.encode()).hexdigest()[:16]}.npz"
