"""The place where processes of one run wait for each other: JAX aborts if it waits in vain."""

import contextlib
import socket
import time

from rlreps.errors import InputError

_ALL_HERE, _TAKEN = b"all", b"taken"
_LONGEST_MESSAGE = 16
_SECONDS_TO_SPEAK, _SECONDS_BETWEEN_TRIES = 1.0, 0.1


def meet(address: str, count: int, index: int, timeout: int) -> None:
    """Wait until all processes have come to the coordinator's address.

    Every process but the first sends its index to process 0, which answers once it knows all
    indices. A second process with an index is refused at once.

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
