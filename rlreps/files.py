"""Places to write to, files written whole or not at all, and files of unknown origin read."""

import contextlib
import io
import json
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, reason_of, require

_SUFFIX_BYTES = 8
_LOCK_SUFFIX = ".__lock"

DAMAGED = (
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Every exception that reading a damaged archive may raise."""


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a file under a temporary name beside `path`; rename it to `path` if the body succeeds.

    Errors of the system name the path; the error of a full disk would otherwise not name it.

    Raises:
        InputError: For a folder, or a path that ``require_name`` refuses.
    """
    require_name(path)
    target = Path(path)
    require(not target.is_dir(), "the path of a file", f"the folder {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(_SUFFIX_BYTES)}")
    try:
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write an ``atomic_file``, and return its path."""
    with atomic_file(path) as stream:
        stream.write(data)
    return Path(path)


def require_name(path: str | os.PathLike[str]) -> None:
    r"""Raise an ``InputError`` for a path that libraries below rlreps take for another path.

    tensorstore takes a backslash for a separator, keeps the suffix ``.__lock`` for itself and
    accepts only UTF-8. The folders above count too.
    """
    text = os.fspath(path)
    require(text != "", "a path", text)
    whole = text + os.path.realpath(text)
    refused = "" if os.sep == "\\" else "\\"
    if (
        whole.encode(errors="ignore").decode() != whole
        or _LOCK_SUFFIX in whole
        or {*refused} & {*whole}
    ):
        raise InputError(
            f"expected a path in UTF-8 without {' '.join(refused)} or {_LOCK_SUFFIX}, got {text}"
        )


def require_output(path: str | os.PathLike[str], *, file: bool = False) -> None:
    """Raise an ``InputError`` unless a folder, or a file, can be written; nothing is made.

    Args:
        path: The path.
        file: Whether a file is to be written.
    """
    require_name(path)
    place = Path(path).absolute()
    if file:
        if place.is_dir():
            raise InputError(f"expected a file to write, got the folder {path}")
        place = place.parent
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        found = f"the file {place}" if place.exists() else f"the link {place} to nothing"
        raise InputError(f"expected a folder to write in, got {found}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"expected a folder that can be written, got Permission denied: {place}")


def require_free(
    folder: str | os.PathLike[str],
    purpose: str,
    *,
    own: Collection[str] = (),
) -> None:
    """Raise an ``InputError`` unless a folder is new, empty, or holds its own files alone.

    Entries that begin with a dot do not count: a process killed at its start leaves its lock.

    Args:
        folder: The folder, which can be written.
        purpose: What is to be written, for the message.
        own: Names of the files of an earlier call, which may be replaced.
    """
    require_output(folder)
    entries = os.listdir(folder) if os.path.isdir(folder) else []
    if others := sorted(name for name in entries if name[0] != "." and name not in own):
        listed = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise InputError(
            f"expected a new or empty folder for {purpose}, got {folder} with other files "
            f"({listed})"
        )


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; see ``parse_json``."""
    return parse_json(Path(path).read_bytes(), os.fspath(path))


def parse_json(content: bytes, place: str) -> Any:
    """Parse a JSON document in UTF-8 that may come from anybody.

    Args:
        content: The document.
        place: Where it was found, for messages.

    Raises:
        InputError: If it is no JSON, or nests too deep for Python.
    """
    try:
        return json.loads(content.decode())
    except (RecursionError, ValueError) as error:
        raise InputError(f"expected JSON in {place}, got {error}") from error


def read_array(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read the array of an .npy file; of an archive, nothing is read but its kind.

    Raises:
        InputError: For a file that cannot be read, an archive, or Python objects.
    """
    try:
        with open(path, "rb") as stream:
            found = _load(stream)
            if not isinstance(found, np.ndarray):
                raise ValueError("an archive of arrays")
    except DAMAGED as error:
        raise InputError(f"expected an .npy file, got {path}: {reason_of(error)}") from error
    return found


def read_arrays(source: str | os.PathLike[str] | IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an .npz file by name, or of an .npy file under an empty name.

    Nothing is unpickled.

    Raises:
        One of ``DAMAGED``: For a file that cannot be read or holds Python objects.
    """
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as stream:  # NumPy would leave a damaged archive open.
            return read_arrays(stream)
    found = _load(source)
    if isinstance(found, np.ndarray):
        return {"": found}
    with found:
        names = [name for name in found.zip.namelist() if name.endswith(".npy")]
        # Entries are read whole: NumPy would ignore the checksum of one whose shape is damaged.
        entries = ((name, io.BytesIO(found.zip.read(name))) for name in names)
        return {name.removesuffix(".npy"): _load_array(entry) for name, entry in entries}


def _load_array(stream: IO[bytes]) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _load(stream: IO[bytes]) -> Any:
    """Load as NumPy does, which takes every other file for a pickle and recommends to trust it."""
    begins = stream.read(6)
    stream.seek(-len(begins), os.SEEK_CUR)
    if not begins.startswith((b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")):
        raise ValueError("a file of another kind")
    return np.load(stream, allow_pickle=False)


_RECORD, _NAMES = "rlreps.json", "arrays"


def write_archive(
    path: Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    record: Mapping[str, Any],
    *,
    compress: bool = False,
) -> None:
    """Write an archive of numeric arrays and a record of JSON values, whole or not at all.

    It is a zip of ``.npy`` entries, which ``numpy.load`` reads, and a JSON record. Every entry has
    a checksum. Equal content gives equal bytes, since archives hold no timestamps. Nothing is
    pickled; ``numpy.savez`` cannot refuse to before NumPy 2.1.
    """
    compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    text = json.dumps({**record, _NAMES: sorted(arrays)}, indent=1, sort_keys=True, allow_nan=False)
    with atomic_file(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_RECORD), text)
        for name, array in arrays.items():
            entry_info = zipfile.ZipInfo(f"{name}.npy")
            entry_info.compress_type = compression
            with archive.open(entry_info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def read_archive(path: Path, name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read the arrays of an archive and its record; raise an ``InputError`` if it is corrupt.

    The message says ``name``, with advice if the file cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            with zipfile.ZipFile(stream) as archive, archive.open(_RECORD) as entry:
                record = parse_json(entry.read(), _RECORD)
            stream.seek(0)
            arrays = read_arrays(stream)
        if not isinstance(record, dict) or sorted(record.pop(_NAMES)) != sorted(arrays):
            raise ValueError("other arrays than its record names")
    except FileNotFoundError as error:
        raise InputError(f"expected readable arrays, got no file {name}") from error
    except DAMAGED as error:
        raise InputError(f"expected readable arrays, got the corrupt {name} ({error})") from error
    return arrays, record
