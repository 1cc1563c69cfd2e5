"""Independent calls on any ``concurrent.futures.Executor``, or in processes on this machine.

On Linux each process of this machine has its own share of the cores: programs too small for several
cores finish sooner if they run at the same time. This module does not load NumPy: a worker takes
its cores before the threads of libraries start.
"""

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

import cloudpickle

from rlreps.errors import InputError, WorkerDiedError, reason_of

Name = TypeVar("Name")


def map_names(
    function: Callable[[Name], Any], names: Iterable[Name], executor: Executor
) -> Generator[tuple[Name, Any]]:
    """Call a function with each name on an executor; yield (name, result) as they come.

    Calls that have not begun are cancelled when a call raises and when the generator is closed. The
    executor is not shut down.

    Args:
        function: Any function that cloudpickle can send; it must be able to send the results, too.
        names: Arguments of the calls.
        executor: Where to call it.

    Raises:
        InputError: If the function cannot be sent.
        WorkerDiedError: If the executor did not carry a call to its end, after the results of all
            others.
        Exception: As raised by a call.
    """
    try:
        pickled = cloudpickle.dumps(function)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        expected = "work that cloudpickle can send to another process"
        raise InputError(f"expected {expected}, got {reason_of(error)}") from error
    futures: dict[Future[bytes], Name] = {}
    lost: Exception | None = None
    try:
        try:
            with _without_interruption():  # Workers inherit this, and never see a Ctrl-C.
                for name in names:
                    futures[executor.submit(_call, pickled, name)] = name
        except Exception as error:
            lost = error
        for future in as_completed([*futures]):
            name = futures.pop(future)
            try:
                content = future.result()
            except Exception as error:
                lost = error
                continue
            del future  # It holds the result.
            ending, found = cloudpickle.loads(content)
            if ending == "raised":
                raise found
            yield name, found
        if lost is not None:
            raise WorkerDiedError(
                "expected workers that live until their work is done, got "
                f"{type(lost).__name__}: {reason_of(lost)} (fewer at a time need less memory); run "
                "the same command again to continue"
            ) from lost
    finally:
        for future in futures:
            future.cancel()


@contextlib.contextmanager
def local_pool(jobs: int) -> Iterator[Executor]:
    """Yield an executor of processes on this machine's CPU, each with its share of the cores.

    Workers start afresh: a script that calls this needs ``if __name__ == "__main__"``. They end
    with this process and when the body ends.
    """
    context = multiprocessing.get_context("spawn")
    shares = context.SimpleQueue()
    for share in _shares(jobs):
        shares.put(share)
    others = {*multiprocessing.active_children()}
    pool = ProcessPoolExecutor(jobs, context, initializer=_start, initargs=(shares,))
    try:
        yield pool
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


def _start(shares: Any) -> None:
    """Begin as a worker, which ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles it.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if share := shares.get():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, share)
    os.environ["JAX_PLATFORMS"] = "cpu"


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _call(function: bytes, name: Any) -> bytes:
    """Return what a pickled function returns or raises, pickled.

    Whatever fails otherwise has failed in the executor, whose errors need not be known.
    """
    try:
        returned: bytes = cloudpickle.dumps(("ok", _loaded(function)(name)))
    except Exception as error:
        error.add_note(traceback.format_exc())
        returned = cloudpickle.dumps(("raised", error))
    return returned


@functools.lru_cache(maxsize=1)
def _loaded(function: bytes) -> Callable[[Any], Any]:
    """Load a function once: it keeps its compiled programs from one call to the next."""
    loaded: Callable[[Any], Any] = cloudpickle.loads(function)
    return loaded
