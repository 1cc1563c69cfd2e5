"""Threads, signals and cached programs of this process."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

CACHE_BYTES = 2**31
"""Size to which the cache of compiled programs is reduced."""


def keep_lapack_to_one_thread() -> None:
    """Keep OpenBLAS, which JAX calls for small factorisations on a CPU, to one thread.

    OpenBLAS's and XLA's threads wait for each other: in a compiled loop, the eigendecomposition of
    a 100 x 100 matrix took a hundred times longer with two threads. Call this before NumPy, SciPy
    and JAX are loaded. A user's own setting is kept.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def quieten_resource_tracker() -> None:
    """Silence Python's resource tracker, for processes of rlreps alone.

    It is a process of its own, and warns of semaphores that an interrupted command leaves to it.
    """
    filters = [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker:UserWarning"]
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, filters))


def end_at_signals(handler: Callable[[int, FrameType | None], Any] | int) -> None:
    """Handle requests of the user or the system to end; under nohup, ignore a terminal's end."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and (
            name != "SIGHUP" or signal.getsignal(number) is not signal.SIG_IGN
        ):
            signal.signal(number, handler)


def keep_compiled_programs() -> None:
    """Turn on JAX's persistent compilation cache, for this process and those it starts.

    Programs are kept in the user's cache folder, or in ``RLREPS_CACHE_DIR``, up to 2 GiB; those
    unused for longest are deleted first. Call this before JAX is imported. A user's own JAX
    settings are kept. If the folder cannot be written, nothing is kept and no error is raised.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        folder = cache_folder() / "compiled"
        folder.mkdir(parents=True, exist_ok=True)
        _delete_least_recent(folder, CACHE_BYTES)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return
    if not os.access(folder, os.W_OK):
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # Short runs consist of many small programs.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def cache_folder() -> Path:
    """Return the folder for files that can be recomputed: the user's choice or the system's."""
    if chosen := os.environ.get("RLREPS_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "rlreps"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "rlreps"


def _delete_least_recent(folder: Path, limit: int) -> None:
    """Delete the least recently read files of a folder until the rest fit a limit."""
    files = [(file, file.stat()) for file in folder.iterdir() if file.is_file()]
    excess = sum(status.st_size for _, status in files) - limit
    for file, status in sorted(files, key=lambda pair: pair[1].st_atime):
        if excess <= 0:
            return
        file.unlink(missing_ok=True)
        excess -= status.st_size
