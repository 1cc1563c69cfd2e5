"""Several processes that run one command together by JAX's multi-controller runtime.

Arrays are distributed over the devices of all processes (see ``training.devices``). Only process 0
writes files, prints, and makes the decisions that all processes must share (``first_does``).
"""

import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from rlreps.config import checked, positive
from rlreps.errors import InputError, require
from rlreps.runs.meeting import meet

T = TypeVar("T")


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessesConfig:
    """Several processes that run this command together, on one machine or many.

    Without options, the processes find each other if a cluster manager that JAX knows started them.

    Attributes:
        coordinator: Address HOST:PORT of process 0, the same for all.
        num_processes: Number of processes; 1 never looks for others.
        process_id: Index of this process, from 0.
        timeout: Seconds to wait for the others to start.
        heartbeat: Seconds without a sign of life after which a process counts as dead.
    """

    coordinator: str | None = None
    num_processes: int | None = positive(None)
    process_id: int | None = positive(None, least=0)
    timeout: int = positive(300)
    heartbeat: int = positive(100)

    def __post_init__(self) -> None:
        given = self.coordinator, self.num_processes, self.process_id
        known = None not in given or given in ((None, None, None), (None, 1, None))
        require(known, "coordinator, num_processes and process_id together, or none", given)
        if self.num_processes is not None and self.process_id is not None:
            place = f"process_id in [0, {self.num_processes})"
            require(self.process_id < self.num_processes, place, self.process_id)
        host, _, port = (self.coordinator or "none:1").rpartition(":")
        numbered = bool(host) and port.isdecimal() and 0 < int(port) < 2**16
        require(numbered, "coordinator HOST:PORT with a port in [1, 65535]", self.coordinator)


class _SharedInputError(InputError):
    """An error that every process raises."""


_index, _count = 0, 1


def process_index() -> int:
    """Return the index of this process in its run; 0 if it is alone."""
    return _index


def process_count() -> int:
    """Return the number of processes in this run."""
    return _count


def first_does(work: Callable[[], T]) -> T:
    """Let process 0 do something, and give its result, JSON values, to all processes.

    Raises:
        InputError: In every process, if process 0 raises an ``InputError`` or an ``OSError``.
    """
    if _count == 1:
        return work()
    said: list[Any] = ["", None]
    if _index == 0:
        try:
            said[1] = work()
        except (InputError, OSError) as error:
            said[0] = str(error)
    content = json.dumps(said).encode()
    size = int(_gather(np.asarray(len(content)))[0])
    shared = _gather(np.frombuffer(content.ljust(size)[:size], np.uint8))
    refusal, found = json.loads(shared[0].tobytes())
    if refusal:
        raise _SharedInputError(refusal)
    result: T = found
    return result


def require_same(what: str, own: object) -> None:
    """Raise an ``InputError`` in every process unless all have equal JSON values."""
    if _count > 1:
        text = json.dumps(own, sort_keys=True)
        others = total(np.asarray(int(first_does(lambda: text) != text)))
        if others:
            found = f"another in {others} of them than in process 0"
            raise _SharedInputError(f"expected the same {what} in all processes, got {found}")


def total(part: np.ndarray) -> np.ndarray:
    """Return the sum of every process's array, all of one shape, in their own dtype."""
    summed: np.ndarray = _gather(part).sum(axis=0, dtype=part.dtype)
    return summed


def wait_for_all() -> None:
    """Return once every process has called this."""
    _gather(np.zeros(()))


def _gather(own: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, all of one shape, [processes, ...]."""
    with jax.enable_x64(True):
        return own[None] if _count == 1 else np.asarray(multihost_utils.process_allgather(own))


@contextlib.contextmanager
def together(config: ProcessesConfig) -> Iterator[None]:
    """Run the body in all processes of a run; only the first prints on standard output."""
    global _index, _count
    _index, _count = (0, 1) if config.num_processes == 1 else _join(config)
    refusal = None
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere if _index > 0 else sys.stdout),
    ):
        wait_for_all()  # Gloo connects at the first exchange, and gives up after 30 seconds.
        try:
            yield
            wait_for_all()
        except _SharedInputError as error:
            refusal = error
    if _count > 1:
        jax.distributed.shutdown()
        _index, _count = 0, 1
    if refusal is not None:
        raise refusal


def _join(config: ProcessesConfig) -> tuple[int, int]:
    """Find the other processes of this run; return this process's index, and their number."""
    place = config.coordinator, config.num_processes, config.process_id
    if config.coordinator is not None:
        assert config.num_processes is not None
        assert config.process_id is not None
        _end_at_signals()
        meet(config.coordinator, config.num_processes, config.process_id, config.timeout)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX would catch SIGTERM, with which cluster managers end a process.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            *place,
            initialization_timeout=config.timeout,
            heartbeat_timeout_seconds=config.heartbeat,
        )
    except (RuntimeError, ValueError) as error:
        # JAX found no cluster manager, or the calling program has already started JAX.
        if config.coordinator is None:
            return 0, 1
        first_line = str(error).splitlines()[0]
        raise InputError(f"expected processes that JAX can connect, got {first_line}") from error
    if jax.process_count() > 1:
        _end_at_signals()
    return jax.process_index(), jax.process_count()


def _end_at_signals() -> None:
    """Let signals end this process at once: Python's handlers would wait until JAX returns.

    A signal that is ignored, as under nohup, stays ignored.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
