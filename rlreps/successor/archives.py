"""Arrays in one file with a record of what they are: a zip of ``.npy`` entries and a JSON one.

``numpy.load`` reads the arrays. Nothing is pickled, every entry has a checksum, and equal content
gives equal bytes, as no time of day enters.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError
from rlreps.files import write_atomically

Arrays = dict[str, npt.NDArray[Any]]

_RECORD = "rlreps.json"
_NAMES = "arrays"
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


def write_archive(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], record: Mapping[str, Any]
) -> None:
    """Writes an archive, whole or not at all.

    Not ``numpy.savez``: before NumPy 2.1 it cannot be told to refuse pickling.

    Args:
        path: The file.
        arrays: What to keep, by name; numbers, of any shape.
        record: What they are, as plain JSON values.

    Raises:
        OSError: The disk refused it.
        ValueError: An array holds Python objects, or the record NaN or infinity.
        TypeError: The record holds what JSON cannot.
    """
    stream = io.BytesIO()
    text = json.dumps({**record, _NAMES: sorted(arrays)}, indent=1, sort_keys=True, allow_nan=False)
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_RECORD), text)
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    write_atomically(path, stream.getvalue())


def read_archive(source: Path | IO[bytes], name: str) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of an archive and its record.

    Args:
        source: The file, or an open one.
        name: What to call it if it cannot be read, and what to do about it.

    Raises:
        InputError: It is corrupt or no archive.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            record = json.loads(archive.read(_RECORD))
            arrays = {entry: _read(archive, entry) for entry in record.pop(_NAMES)}
    except _UNREADABLE as error:
        raise InputError(f"expected readable arrays, got the corrupt {name} ({error})") from error
    return arrays, record


def _read(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """One array; the whole entry is read first, which is when zipfile compares its checksum."""
    entry = io.BytesIO(archive.read(f"{name}.npy"))
    array: npt.NDArray[Any] = np.lib.format.read_array(entry, allow_pickle=False)
    return array
