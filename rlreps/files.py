"""Write files whole or not at all, and refuse folders with links that lead outside them."""

import os
import secrets
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError

README = "README.txt"
"""Text in every run's folder and store that explains its files."""

_SUFFIX_BYTES = 8

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


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write `data` under a temporary name beside `path`, rename it to `path`, and return the path.

    Errors of the system name the path; the error of a full disk would otherwise not name it.
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


def size_and_checksum(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file of any size."""
    size = checksum = 0
    with open(path, "rb") as stream:
        while content := stream.read(2**24):
            size, checksum = size + len(content), zlib.crc32(content, checksum)
    return size, checksum


def refuse_links_out(folder: Path) -> None:
    """Raise an ``InputError`` if an entry of a folder is a link that leads out of the folder.

    Writing or deleting through such a link would change files outside the folder.
    """
    with os.scandir(folder) as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
    root = folder.resolve() if links else folder
    for link in links:
        if not Path(link).resolve().is_relative_to(root):
            raise InputError(
                f"expected files of its own in {folder}, got the link {Path(link).name} to "
                f"{os.readlink(link)}; replace the link by the files that it leads to"
            )


def read_arrays(source: str | os.PathLike[str] | IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an .npz file by name, or of an .npy file under an empty name.

    Nothing is unpickled.

    Raises:
        One of ``DAMAGED``: For a file that cannot be read or holds Python objects.
    """
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as stream:  # NumPy would leave a damaged archive open.
            return read_arrays(stream)
    found = np.load(source, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return {"": found}
    with found:
        names = [name for name in found.zip.namelist() if name.endswith(".npy")]
        return {name.removesuffix(".npy"): found[name] for name in names}
