"""Locks that keep two runs out of one folder.

The operating system frees an advisory lock (``flock``) when the process that holds the lock ends,
however it ends. A kill leaves a stale file, which locks nothing. On a system or a file system
without such locks, nothing is locked.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rlreps.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_HELD = {errno.EACCES, errno.EAGAIN}


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder's lock while the body runs.

    The folder is made if needed; the lock file in it is removed afterwards.

    Raises:
        InputError: If another process holds the lock (the message names it), or the folder cannot
            be written.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = _open_locked(path)
    except OSError as error:
        raise InputError(
            f"expected a folder that can be written, got {error.strerror}: {folder}"
        ) from error
    with stream:
        try:
            # A full disk does not prevent holding a folder, only writing the holder's name.
            with contextlib.suppress(OSError):
                stream.truncate(0)
                holder = f"process {os.getpid()} on {socket.gethostname()}\n"
                os.write(stream.fileno(), holder.encode())
            yield
        finally:
            if _is_at(stream, path):  # Keep another process's file.
                path.unlink(missing_ok=True)


def _open_locked(path: Path) -> IO[str]:
    """Open the lock file and lock it until it is closed, on systems that have locks."""
    # Do not follow a link: its target would be emptied.
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    while True:
        stream = os.fdopen(os.open(path, flags, 0o666), "a+", encoding="utf-8")
        if fcntl is None:
            return stream
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                return stream
            with stream:
                stream.seek(0)
                holder = stream.read().strip() or "another process"
            raise InputError(
                f"expected {path.parent} to be free, got it in use by {holder}"
            ) from error
        # The file is gone if its holder ended between the two calls.
        if _is_at(stream, path):
            return stream
        stream.close()


def _is_at(stream: IO[str], path: Path) -> bool:
    """Return whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
