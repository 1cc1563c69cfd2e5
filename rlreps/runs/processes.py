"""Several processes, on one machine or many, that run one command together.

JAX's multi-controller runtime connects the processes: automatically under the cluster managers that
it knows, elsewhere by the coordinator's address, the number of processes and the index of each.
Every process runs the same program. Arrays are distributed over the devices of all processes (see
``training.devices``). Only process 0 writes files, prints, and makes the decisions that all
processes must share (``first_does``).

When a process dies, JAX ends the others. Start the same command everywhere again to continue from
the saved state.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from rlreps.config import checked, positive
from rlreps.errors import InputError, require

T = TypeVar("T")

_ALL_HERE, _TAKEN = b"all", b"taken"
_LONGEST_MESSAGE = 16
_SECONDS_TO_SPEAK, _SECONDS_BETWEEN_TRIES = 1.0, 0.1


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
    process_id: int | None = None
    timeout: int = positive(300)
    heartbeat: int = positive(100)

    def __post_init__(self) -> None:
        given = (self.coordinator, self.num_processes, self.process_id)
        require(
            None not in given or given in ((None, None, None), (None, 1, None)),
            "coordinator, num_processes and process_id together, or none of them",
            given,
        )
        if self.num_processes is not None and self.process_id is not None:
            place = f"process_id in [0, {self.num_processes})"
            require(0 <= self.process_id < self.num_processes, place, self.process_id)
        if self.coordinator is not None:
            host, _, port = self.coordinator.rpartition(":")
            numbered = bool(host) and port.isdecimal() and 0 < int(port) < 2**16
            expected = "coordinator HOST:PORT with a port in [1, 65535]"
            require(numbered, expected, self.coordinator)


class _SharedInputError(InputError):
    """An error of process 0 that every process raises."""


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
    refusal, found = json.loads(_from_first(json.dumps(said).encode()))
    if refusal:
        raise _SharedInputError(refusal)
    result: T = found
    return result


def _from_first(content: bytes) -> bytes:
    """Return the bytes of process 0."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    size = int(broadcast_one_to_all(np.asarray(len(content))))
    own = np.frombuffer(content, np.uint8) if _index == 0 else np.zeros(size, np.uint8)
    return np.asarray(broadcast_one_to_all(own)).astype(np.uint8).tobytes()


def require_same(what: str, own: object) -> None:
    """Raise an ``InputError`` in every process unless all have equal JSON values."""
    if _count == 1:
        return
    from jax.experimental.multihost_utils import process_allgather

    digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).digest()
    found = np.asarray(process_allgather(np.frombuffer(digest, np.uint8)))
    others = [str(index) for index, row in enumerate(found) if (row != found[0]).any()]
    if others:
        raise _SharedInputError(
            f"expected the same {what} in all processes, got another in process "
            f"{', '.join(others)} than in process 0"
        )


def total(part: np.ndarray) -> np.ndarray:
    """Return the sum of every process's array, all of one shape, in their own dtype."""
    if _count == 1:
        return part
    import jax
    from jax.experimental.multihost_utils import process_allgather

    with jax.enable_x64(True):
        parts = np.asarray(process_allgather(part))
    summed: np.ndarray = parts.sum(axis=0, dtype=part.dtype)
    return summed


def wait_for_all() -> None:
    """Return once every process has called this."""
    if _count > 1:
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices("rlreps")


@contextlib.contextmanager
def together(config: ProcessesConfig) -> Iterator[None]:
    """Run the body in all processes of a run; only the first prints on standard output.

    Without options, the processes are those that JAX's cluster detection finds; if it finds none,
    this process is alone.

    Raises:
        InputError: If the others did not come, the coordinator cannot be reached, or the body
            raised one.
    """
    global _index, _count
    _join(config)
    if _count == 1:
        yield
        return

    with contextlib.ExitStack() as stack:
        if _index > 0:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        # Gloo connects at the first exchange, and gives up after 30 seconds.
        wait_for_all()
        try:
            yield
            wait_for_all()
        except _SharedInputError:
            _leave()
            raise
        _leave()


def _leave() -> None:
    """Leave the other processes; this one is alone from then on."""
    global _index, _count
    import jax

    jax.distributed.shutdown()
    _index, _count = 0, 1


def _join(config: ProcessesConfig) -> None:
    """Find the other processes of this run.

    Raises:
        InputError: If the others did not come, or the coordinator cannot be reached.
    """
    global _index, _count
    if config.num_processes == 1:
        return
    if config.coordinator is not None:
        _end_at_signals()
        assert config.num_processes is not None
        assert config.process_id is not None
        _meet(config.coordinator, config.num_processes, config.process_id, config.timeout)
    import jax  # Deferred: commands that do not need it start in a fraction of the time.

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX would catch SIGTERM, with which cluster managers end a process.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            config.coordinator,
            config.num_processes,
            config.process_id,
            initialization_timeout=config.timeout,
            heartbeat_timeout_seconds=config.heartbeat,
        )
    except (RuntimeError, ValueError) as error:
        # JAX found no cluster manager, or the calling program has already started JAX.
        alone = isinstance(error, ValueError) or "must be called before" in str(error)
        if config.coordinator is None and alone:
            return
        first_line = str(error).splitlines()[0]
        raise InputError(
            f"expected {config.num_processes or 'all'} processes to meet at "
            f"{config.coordinator or 'their coordinator'}, got {first_line}"
        ) from error
    _index, _count = jax.process_index(), jax.process_count()
    if _count > 1:
        _end_at_signals()


def _meet(address: str, count: int, index: int, timeout: int) -> None:
    """Wait until all processes have come to the coordinator's address.

    JAX aborts a process that waits for the others in vain. Every other process therefore sends its
    index to process 0, which answers once it knows all indices. A second process with an index is
    refused at once.

    Raises:
        InputError: If they do not come in time, or another process has the index.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + timeout
    if index == 0:
        found = _gather(int(port), count, end)
    else:
        found = _report((host.strip("[]"), int(port)), index, end)
    if found is not None:
        raise InputError(
            f"expected {count} processes to meet at {address} within {timeout} s, got {found}"
        )


def _gather(port: int, count: int, end: float) -> str | None:
    """Wait for the other processes and answer them; return what came instead of all of them."""
    come: dict[bytes, socket.socket] = {}
    expected = {str(index).encode() for index in range(1, count)}
    try:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(_listener(port))
            while expected - come.keys():
                listener.settimeout(max(end - time.monotonic(), 0.01))
                other = stack.enter_context(listener.accept()[0])
                other.settimeout(_SECONDS_TO_SPEAK)
                with contextlib.suppress(OSError):
                    index = other.recv(_LONGEST_MESSAGE)
                    come = {each: kept for each, kept in come.items() if not _has_left(kept)}
                    if index in come:
                        other.sendall(_TAKEN)
                    elif index in expected:
                        come[index] = other
                        continue
                other.close()
            for index in expected:
                come[index].sendall(_ALL_HERE)
    except TimeoutError:
        return f"{1 + len(expected & come.keys())}"
    except OSError as error:
        return error.strerror or str(error)
    return None


def _has_left(other: socket.socket) -> bool:
    """Return whether a process that waits for an answer has closed its connection."""
    other.setblocking(False)
    try:
        return not other.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _report(first: tuple[str, int], index: int, end: float) -> str | None:
    """Tell process 0 of this process until it answers; return what prevented this."""
    found = "no answer"
    while (left := end - time.monotonic()) > 0.0:
        try:
            with socket.create_connection(first, left) as stream:
                stream.sendall(str(index).encode())
                said = stream.recv(_LONGEST_MESSAGE)
                if said in (_ALL_HERE, _TAKEN):
                    return None if said == _ALL_HERE else f"another with process_id {index}"
        except OSError as error:
            found = error.strerror or str(error)
        time.sleep(_SECONDS_BETWEEN_TRIES)
    return found


def _listener(port: int) -> socket.socket:
    """Listen at a port of all addresses of this machine, as JAX does."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _end_at_signals() -> None:
    """Let signals end this process at once: Python's handlers would wait until JAX returns.

    A signal that is ignored, as under nohup, stays ignored.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
