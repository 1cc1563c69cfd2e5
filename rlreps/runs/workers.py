"""Worker processes on this machine, on Linux each with its own share of the cores.

Programs too small for several cores finish sooner if they run at the same time. This module does
not load NumPy: a worker takes its cores before the threads of libraries start.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from rlreps.errors import WorkerDiedError
from rlreps.runs.machine import quieten_libraries

_function: Any = b""
"""The function that this process calls if it is a worker; it stays pickled until the first call."""


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
    shares = context.SimpleQueue()
    for share in _shares(jobs):
        shares.put(share)
    others = {*multiprocessing.active_children()}
    pool = ProcessPoolExecutor(
        jobs, context, initializer=_start, initargs=(shares, cloudpickle.dumps(function))
    )
    try:
        with _without_interruption():  # Workers inherit this, and never see a Ctrl-C.
            futures = {pool.submit(_call, name): name for name in names}
        for future in as_completed(futures):
            yield futures[future], cloudpickle.loads(future.result())
    except BrokenProcessPool as error:
        raise WorkerDiedError(
            "expected every worker process to live, got one that ended before its work was "
            "done (fewer jobs need less memory); run the same command again to continue"
        ) from error
    finally:
        for worker in {*multiprocessing.active_children()} - others:
            worker.terminate()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _without_interruption() -> Iterator[None]:
    """Hold back Ctrl-C from this thread, and for ever from what it starts meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _shares(jobs: int) -> list[list[int]]:
    """Divide this process's cores evenly; an empty share means all cores."""
    if not hasattr(os, "sched_getaffinity"):  # macOS, Windows
        return [[]] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [cores[len(cores) * i // jobs : len(cores) * (i + 1) // jobs] for i in range(jobs)]


def _start(shares: Any, function: bytes) -> None:
    """Begin as a worker, which ends with its parent."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles it.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if share := shares.get():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, share)
    os.environ["JAX_PLATFORMS"] = "cpu"
    quieten_libraries()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _call(name: str) -> bytes:
    """Return what the function returns, pickled."""
    global _function
    import cloudpickle

    if isinstance(_function, bytes):
        _function = cloudpickle.loads(_function)
    result: bytes = cloudpickle.dumps(_function(name))
    return result
