"""Several processes that run one command together by JAX's multi-controller runtime.

Arrays are distributed over the devices of all processes (see ``training.devices``). Only process 0
writes files, prints, and makes the decisions that all processes must share (``first_does``).
"""

import contextlib
import dataclasses
import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.experimental import multihost_utils

from rlreps.config import checked, positive
from rlreps.errors import InputError, reason_of, require
from rlreps.runs.machine import end_at_signals

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
    """

    coordinator: str | None = None
    num_processes: int | None = positive(None)
    process_id: int | None = positive(None, least=0)
    timeout: int = positive(300)

    def __post_init__(self) -> None:
        host, _, port = (self.coordinator or "none:1").rpartition(":")
        numbered = bool(host) and port.isdecimal() and 0 < int(port) < 2**16
        require(numbered, "coordinator HOST:PORT with a port in [1, 65535]", self.coordinator)


class _SharedInputError(InputError):
    """An error that every process raises."""


def process_index() -> int:
    """Return the index of this process in its run; 0 if it is alone."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def process_count() -> int:
    """Return the number of processes in this run."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def first_does(work: Callable[[], T]) -> T:
    """Let process 0 do something, and give its result, JSON values, to all processes.

    Raises:
        InputError: In every process, if process 0 raises an ``InputError`` or an ``OSError``.
    """
    if process_count() == 1:
        return work()
    said: list[Any] = ["", None]
    if process_index() == 0:
        try:
            said[1] = work()
        except (InputError, OSError) as error:
            said[0] = str(error)
    content = np.frombuffer(json.dumps(said).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.asarray(content.size)))
    shared = multihost_utils.broadcast_one_to_all(np.resize(content, size))
    refusal, found = json.loads(shared.tobytes())
    if refusal:
        raise _SharedInputError(refusal)
    return cast(T, found)


def require_same(what: str, own: object) -> None:
    """Raise an ``InputError`` in every process unless all have equal JSON values."""
    if process_count() > 1:
        text = json.dumps(own, sort_keys=True)
        same = multihost_utils.process_allgather(np.asarray(first_does(lambda: text) == text))
        first_does(lambda: require(same.all(), f"the same {what} in all processes", same.tolist()))


def total(part: np.ndarray) -> np.ndarray:
    """Return the sum of every process's array, all of one shape, in their own dtype."""
    with jax.enable_x64(True):
        parts = multihost_utils.process_allgather(part)
    return np.asarray(np.sum(parts, axis=0, dtype=part.dtype))


@contextlib.contextmanager
def together(config: ProcessesConfig) -> Iterator[None]:
    """Run the body in all processes of a run; only the first prints on standard output."""
    place = config.coordinator, config.num_processes, config.process_id
    # JAX would catch SIGTERM, with which cluster managers end a process.
    jax.config.update("jax_enable_preemption_service", False)
    if config.coordinator is not None:  # Python's handlers would wait until JAX returns.
        end_at_signals(signal.SIG_DFL)
    try:
        if config.num_processes != 1:
            jax.distributed.initialize(*place, initialization_timeout=config.timeout)
    except (RuntimeError, ValueError) as error:
        # JAX found no cluster manager, or the calling program has already started JAX.
        require(place == (None, None, None), "processes that JAX can connect", reason_of(error))
    if process_count() > 1:
        end_at_signals(signal.SIG_DFL)
        multihost_utils.sync_global_devices("start")  # Gloo waits 30 s for the first exchange.
    try:
        with contextlib.redirect_stdout(io.StringIO() if process_index() > 0 else sys.stdout):
            yield
        multihost_utils.sync_global_devices("end")  # JAX waits 5 minutes for those that leave.
    except _SharedInputError:
        jax.distributed.shutdown()  # Else JAX would end those that end later.
        raise
    jax.distributed.shutdown()
