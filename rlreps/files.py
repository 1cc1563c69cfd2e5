"""Files that appear whole or not at all, and files of others, read with suspicion.

What is read may be damaged or made to do harm: a FIFO or device would never end, a small archive
may claim to hold more than memory, and JSON may be nested without end. All of it ends in an error
before work starts. Nothing is ever unpickled.
"""

import contextlib
import errno
import json
import math
import os
import re
import secrets
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError

README = "README.txt"
"""Says in every run's folder and store what its files are."""

_SUFFIX_BYTES = 8

EXPANDED_BYTES = 2**30
"""What a compressed file may always expand to; beyond, no more than ``EXPANSION`` times itself."""

EXPANSION = 100

LARGEST_READ = 2**28
"""Bytes of the largest file that is read at once, such as a log; arrays are read otherwise."""

LARGEST_JSON = 2**24
"""Bytes of the longest JSON text: its values take twenty times as much memory."""

_DEEPEST = 100
"""Levels of nested JSON."""

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
"""Everything that reading a damaged archive may raise."""


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write `data` under a temporary name beside `path`, rename it to that, and return the path.

    Errors of the system name the path, also those of a full disk, which come without one.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(_SUFFIX_BYTES)}")
    try:
        with open(temporary, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    return target


def unfinished_writes(folder: Path, name: str | None = None) -> list[Path]:
    """List temporary files that kills inside `write_atomically` left in a folder.

    Args:
        folder: Where to look; one that does not exist has none.
        name: Of the file that was to be written; of any by default.
    """
    if not folder.is_dir():
        return []
    written = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{written}\.[0-9a-f]{{{2 * _SUFFIX_BYTES}}}")
    return [entry for entry in folder.iterdir() if pattern.fullmatch(entry.name)]


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to read; ``OSError`` for a FIFO or a device, which might never end."""
    # Without waiting for somebody to write into a FIFO.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", os.fspath(path))
    return open(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], *, largest: int = LARGEST_READ) -> bytes:
    """Read a whole file as ``open_regular`` opens it; ``OSError`` beyond ``largest`` bytes."""
    with open_regular(path) as stream:
        if os.fstat(stream.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"more than {largest:,} bytes", os.fspath(path))
        return stream.read()


def size_and_checksum(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file of any size, as ``open_regular`` opens it."""
    size = checksum = 0
    with open_regular(path) as stream:
        while content := stream.read(2**24):
            size, checksum = size + len(content), zlib.crc32(content, checksum)
    return size, checksum


def parse_json(content: bytes | str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: For anything else, for whole numbers beyond 64 bits, and for texts longer or
            values nested deeper than anything here is.
    """
    if len(content) > LARGEST_JSON:
        raise ValueError(f"{len(content):,} bytes, more than the {LARGEST_JSON:,} of any here")
    text = content if isinstance(content, str) else content.decode()
    if text.count("[") + text.count("{") > _DEEPEST:
        depth = 0
        # Brackets within strings count too; no text of ours has so many.
        for bracket in re.finditer(r"[\[\]{}]", text):
            depth += 1 if bracket[0] in "[{" else -1
            if depth > _DEEPEST:
                raise ValueError(f"values nested deeper than {_DEEPEST} levels")
    return json.loads(text, parse_int=_whole_number)


def _whole_number(text: str) -> int:
    number = int(text) if len(text) < 21 else None
    if number is None or not -(2**63) <= number < 2**64:
        raise ValueError(f"a number beyond 64 bits ({text[:20]}...)")
    return number


def refuse_links_out(folder: Path) -> None:
    """Raise an ``InputError`` if an entry of a folder is a link that leads out of the folder.

    What is written or deleted through such a link would be somebody else's.
    """
    with os.scandir(folder) as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
    root = folder.resolve() if links else folder
    for link in links:
        if not Path(link).resolve().is_relative_to(root):
            raise InputError(
                f"expected files of its own in {folder}, got the link {Path(link).name} to "
                f"{os.readlink(link)}; move what it leads to in its place"
            )


def refuse_backslashes(path: str | os.PathLike[str]) -> None:
    """Raise an ``InputError`` if a name on a path holds a backslash.

    tensorstore, which writes arrays and checkpoints, takes a backslash for a separator of folders
    and would write into a folder beside this one.
    """
    absolute = Path(path).absolute()
    if any("\\" in name for name in absolute.relative_to(absolute.anchor).parts):
        raise InputError(f"expected a path without a backslash, got {absolute}")


def refuse_odd_files(folder: Path) -> None:
    """Raise an ``InputError`` if anything below a folder is neither a file nor a folder."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # Another process may delete it.
                if not stat.S_ISREG(os.lstat(os.path.join(place, name)).st_mode):
                    raise InputError(
                        f"expected files in {folder}, got no regular file: {place}/{name}"
                    )


def read_arrays(source: str | os.PathLike[str] | IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an .npz file by name, or of an .npy file, whose name is empty.

    Unlike ``numpy.load`` this believes no size that a file claims, compares every checksum, and
    holds no more than one array beside those it returns.

    Raises:
        One of ``DAMAGED``: For a file that cannot be read, holds Python objects, or claims sizes
            that it has not or that do not fit.
    """
    if isinstance(source, str | os.PathLike):
        with open_regular(source) as stream:
            return read_arrays(stream)
    stream = source
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if stream.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
        stream.seek(0)
        return {"": _read_array(stream, size)}
    with zipfile.ZipFile(stream) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        require_expansion(sum(entry.file_size for entry in entries), size)
        found = {}
        for entry in entries:
            with archive.open(entry) as opened:
                found[entry.filename.removesuffix(".npy")] = _read_array(opened, entry.file_size)
        return found


def require_expansion(expanded: int, size: int) -> None:
    """Raise a ``ValueError`` if a file of a size claims to expand to what no honest one does."""
    if expanded > max(EXPANDED_BYTES, EXPANSION * size):
        raise ValueError(f"{size:,} bytes that claim to expand to {expanded:,}")


def _read_array(stream: IO[bytes], size: int) -> npt.NDArray[Any]:
    """Read an array in NumPy's format that has to fill ``size`` bytes with its header."""
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"an array of format {version}")
    shape, by_columns, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("Python objects")
    count = math.prod(shape)
    needed, there = count * dtype.itemsize, size - stream.tell()
    if min(shape, default=0) < 0 or needed != there:
        raise ValueError(f"an array of shape {shape} of {dtype} in {there:,} bytes")
    array = np.empty(count, dtype)
    view = memoryview(array.view(np.uint8).data if needed else b"")
    while view:
        got = stream.readinto(view)  # type: ignore[attr-defined]
        if not got:
            raise EOFError("fewer bytes than claimed")
        view = view[got:]
    shaped: npt.NDArray[Any] = array.reshape(shape, order="F" if by_columns else "C")
    return shaped
