"""Worker processes on this machine, on Linux each with its own share of the cores.

Programs too small for several cores end sooner side by side than one after the other. This module
does not load NumPy: a worker takes its cores before the threads of libraries start.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from rlreps.errors import WorkerDiedError
from rlreps.runs.machine import quieten_orbax

_function: Callable[[str], Any] | None = None
"""The function of this process, once it is a worker that has read it."""


def map_in_workers(
    function: Callable[[str], Any], names: Sequence[str], jobs: int
) -> Generator[tuple[str, Any]]:
    """Call a function with each name in worker processes; yield (name, result) as they come.

    Workers start afresh, on the CPU: a script that calls this needs ``if __name__ == "__main__"``.
    They end with this process, when the generator is closed, and as soon as a call fails.

    Args:
        function: Any function that cloudpickle can send; it must be able to send the results, too.
        names: Arguments of the calls.
        jobs: Largest number of workers.

    Raises:
        WorkerDiedError: If a worker ended before its work was done.
        Exception: As raised by a call.
    """
    import cloudpickle

    jobs = min(jobs, len(names))
    context = multiprocessing.get_context("spawn")
    shares, (reader, writer) = context.SimpleQueue(), context.Pipe(duplex=False)
    for share in _shares(jobs):
        shares.put(share)
    # Through files: large results must not stay in a pipe that is no longer read.
    with tempfile.TemporaryDirectory(prefix="rlreps-jobs-") as folder:
        payload = Path(folder, "function")
        payload.write_bytes(cloudpickle.dumps(function))
        pool = ProcessPoolExecutor(
            jobs, mp_context=context, initializer=_start, initargs=(shares, reader, folder)
        )
        try:
            futures = {
                pool.submit(_call, str(payload), name, str(Path(folder, str(index)))): name
                for index, name in enumerate(names)
            }
            for future in as_completed(futures):
                result = Path(future.result())
                found = cloudpickle.loads(result.read_bytes())
                result.unlink()
                yield futures[future], found
        except BrokenProcessPool as error:
            raise WorkerDiedError(
                "expected every worker process to live, got one that ended before its work was "
                "done (fewer jobs need less memory); run the same command again to continue"
            ) from error
        finally:
            writer.close()
            pool.shutdown(cancel_futures=True)
            reader.close()


def _shares(jobs: int) -> list[list[int]]:
    """Divide this process's cores evenly; a share without any core means all of them."""
    if not hasattr(os, "sched_getaffinity"):  # macOS, Windows
        return [[]] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [cores[len(cores) * i // jobs : len(cores) * (i + 1) // jobs] for i in range(jobs)]


def _start(shares: Any, reader: Any, folder: str) -> None:
    """Begin as a worker, which ends when nobody can write to ``reader`` any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles it.
    threading.Thread(target=_watch, args=(reader, folder), daemon=True).start()
    share = shares.get()
    if share:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, share)
    os.environ["JAX_PLATFORMS"] = "cpu"
    quieten_orbax()


def _watch(reader: Any, folder: str) -> None:
    """End this worker, whatever it is doing, once its parent closes the pipe or is gone."""
    with contextlib.suppress(OSError):
        reader.poll(None)
    shutil.rmtree(folder, ignore_errors=True)  # A parent that was killed has left it.
    os._exit(1)


def _call(payload: str, name: str, result: str) -> str:
    """Write what the function returns to a file; return the file."""
    global _function
    import cloudpickle

    if _function is None:
        _function = cloudpickle.loads(Path(payload).read_bytes())
    Path(result).write_bytes(cloudpickle.dumps(_function(name)))
    return result
