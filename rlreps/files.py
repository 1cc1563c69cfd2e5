"""Files that appear whole or not at all."""

import os
import re
import secrets
from pathlib import Path

README = "README.txt"
"""Says in every run's folder and store what its files are."""

_SUFFIX_BYTES = 8


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


def unfinished_writes(folder: Path, name: str) -> list[Path]:
    """List temporary files that a kill inside `write_atomically` of `folder / name` left behind."""
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{{2 * _SUFFIX_BYTES}}}")
    return [entry for entry in folder.iterdir() if pattern.fullmatch(entry.name)]
