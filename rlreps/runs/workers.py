"""Worker processes on this machine, each with its own share of the cores.

Programs too small for several cores end sooner side by side than one after the other. This module
loads no NumPy: a worker takes its cores before the threads of libraries start.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from rlreps.errors import InputError
from rlreps.runs.machine import quieten_orbax

_function: Callable[[str], Any]
"""What this process does, if it is a worker."""


def map_in_workers(
    function: Callable[[str], Any], names: Sequence[str], jobs: int
) -> Iterator[tuple[str, Any]]:
    """Call a function with each name in worker processes; yield (name, result) as they come.

    Workers start afresh: a script that leads here needs ``if __name__ == "__main__"``. They end
    with this process, and as soon as a call fails.

    Args:
        function: Anything that cloudpickle can carry, as it must be able to carry the results.
        names: What to call it with.
        jobs: Number of workers.

    Raises:
        InputError: If a worker was killed.
        Exception: What a call raised.
    """
    import cloudpickle

    context = multiprocessing.get_context("spawn")
    shares, (reader, writer) = context.SimpleQueue(), context.Pipe(duplex=False)
    for share in _shares(jobs):
        shares.put(share)
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=context,
        initializer=_start,
        initargs=(shares, reader, cloudpickle.dumps(function)),
    )
    try:
        futures = {pool.submit(_call, name): name for name in names}
        for future in as_completed(futures):
            yield futures[future], cloudpickle.loads(future.result())
        pool.shutdown()
    except BrokenProcessPool as error:
        raise InputError(
            "expected every worker to live, got one that was killed: if memory ran out, take fewer "
            "jobs; the same command goes on from here"
        ) from error
    finally:
        writer.close()
        pool.shutdown(cancel_futures=True)
        reader.close()


def _shares(jobs: int) -> list[list[int]]:
    """Share this process's cores out evenly; a share without any means all of them."""
    if not hasattr(os, "sched_getaffinity"):  # macOS, Windows
        return [[]] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [cores[len(cores) * i // jobs : len(cores) * (i + 1) // jobs] for i in range(jobs)]


def _start(shares: Any, reader: Any, function: bytes) -> None:
    """Begin as a worker, which ends when nobody can write to ``reader`` any more."""
    global _function
    share = shares.get()
    if share:
        os.sched_setaffinity(0, share)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent's to answer.
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    quieten_orbax()
    import cloudpickle

    _function = cloudpickle.loads(function)


def _watch(reader: Any) -> None:
    """End this worker, whatever it is at, once its parent lets go of it or is gone."""
    with contextlib.suppress(OSError):
        reader.poll(None)
    os._exit(1)


def _call(name: str) -> bytes:
    import cloudpickle

    found: bytes = cloudpickle.dumps(_function(name))
    return found
