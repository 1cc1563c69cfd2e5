"""A lock that keeps two runs out of one folder.

The operating system frees the lock when the process that holds the lock ends, however it ends. The
file of the lock stays in the folder, and locks nothing by itself.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from rlreps.errors import InputError

LOCK = ".lock"


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder's lock while the body runs; the folder is made if needed.

    Raises:
        InputError: If another process holds the lock.
    """
    lock = FileLock(folder / LOCK, blocking=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        found = "it in use by another process"
        raise InputError(f"expected {folder} to be free, got {found}") from error
    try:
        yield
    finally:
        lock.release()
