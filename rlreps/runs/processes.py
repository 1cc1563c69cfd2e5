"""Several processes, on one machine or many, that run one command together.

JAX's multi-controller runtime says who takes part: by itself under the cluster managers that it
knows, and by coordinator, number and index elsewhere. It stays up for as long as the command runs.
Every process runs the same program; arrays are shared out over the devices of all (see
``training.devices``), process 0 alone writes files and prints, and what must be decided once it
decides for all (``first_does``).

A process that fails says why to the others, and one that dies is missed by JAX's heartbeat; either
way all end, each with one line that says which it was, and the same command goes on.
"""

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from rlreps import files
from rlreps.errors import InputError, TrainingDivergedError, require, require_positive

T = TypeVar("T")

MOST_PROCESSES = 100_000
MOST_SECONDS = 10**6
"""Longest timeout and heartbeat."""
_FOREVER = 10**9
"""Milliseconds: the heartbeat ends every wait for a process that is gone."""
_SLICE = 1000
"""Milliseconds that the main thread waits at a time; between two waits it hears signals."""
_LONGER_THAN_ANY_EXIT_SECONDS = 600
_WATCH_SECONDS = 0.5
_PROBE_SECONDS = 1.0
_PROBES = 3
"""Failed attempts to reach process 0, once it was reached, after which it counts as gone."""
_FAREWELL_SECONDS = 10.0
_FAILURES = "rlreps/failures"
_DONE = "rlreps/done"
_GOES_ON = "the same command, started everywhere, goes on from what was saved"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessesConfig:
    """Several processes that run this command together, on one machine or many.

    With nothing given they find each other where a cluster manager that JAX knows started them.

    Attributes:
        coordinator: Address HOST:PORT of process 0, the same for all.
        num_processes: How many there are; 1 never looks for others.
        process_id: Which one this is, from 0.
        timeout: Seconds to wait for the others to start.
        heartbeat: Seconds without a sign of life after which a process counts as dead.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    timeout: int = 300
    heartbeat: int = 100

    def __post_init__(self) -> None:
        given = (self.coordinator, self.num_processes, self.process_id)
        require(
            None not in given or (self.coordinator, self.process_id) == (None, None),
            "coordinator, num_processes and process_id together, or none of them",
            given,
        )
        if self.num_processes is not None:
            require_positive("num_processes", self.num_processes)
            require(
                self.num_processes <= MOST_PROCESSES,
                f"num_processes <= {MOST_PROCESSES:,}",
                self.num_processes,
            )
        if self.num_processes is not None and self.process_id is not None:
            require(
                0 <= self.process_id < self.num_processes,
                f"process_id in [0, {self.num_processes})",
                self.process_id,
            )
        if self.coordinator is not None:
            place = re.fullmatch(".+:([0-9]{1,5})", self.coordinator)
            require(
                place is not None and 0 < int(place[1]) < 2**16,
                "coordinator HOST:PORT with a port in [1, 65535]",
                self.coordinator,
            )
        for name, seconds in (("timeout", self.timeout), ("heartbeat", self.heartbeat)):
            require_positive(name, seconds)
            require(seconds <= MOST_SECONDS, f"{name} <= {MOST_SECONDS:,} seconds", seconds)

    @property
    def planned(self) -> int:
        """Return how many processes are named: those of a plan."""
        return self.num_processes or 1


@dataclasses.dataclass
class _Run:
    """The run that this process takes part in.

    Attributes:
        index: This process, in [0, count).
        count: All that take part.
        turns: Number of the next decision; the same in all processes.
        heartbeat: Seconds without a sign of life after which a process counts as dead.
        ending: Held by whoever, main thread or watch, ends this process.
        alone: Set once all others have left.
        left: Set once this process has left.
        rounds: How often all others that live have been seen to do so.
        watch: The thread that runs ``_watch``.
    """

    index: int = 0
    count: int = 1
    heartbeat: int = 0
    turns: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    ending: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    alone: threading.Event = dataclasses.field(default_factory=threading.Event)
    left: threading.Event = dataclasses.field(default_factory=threading.Event)
    rounds: int = 0
    watch: threading.Thread | None = None


_run = _Run()


def process_index() -> int:
    """Return which process of its run this is; 0 where it is alone."""
    return _run.index


def process_count() -> int:
    """Return how many processes take part in this run."""
    return _run.count


def share_of(items: Sequence[T], index: int, count: int) -> Sequence[T]:
    """Return those of the items that one of ``count`` processes works on."""
    return items[index::count]


def first_does(work: Callable[[], T]) -> T:
    """Have process 0 do something, and hand its result, JSON values, to all processes."""
    if _run.count == 1:
        return work()
    key = f"rlreps/turn/{next(_run.turns)}"
    if _run.index == 0:
        found = work()
        # The others must not get more than JSON can carry, nor process 0.
        said = json.dumps(found)
        _client().key_value_set(key, said)
    else:
        said = _value_of(key)
    result: T = json.loads(said)
    return result


def total(part: np.ndarray) -> np.ndarray:
    """Return the sum of every process's array, all of one shape, in their own dtype."""
    if _run.count == 1:
        return part
    import jax

    own, add = _sum_over_processes()
    with jax.enable_x64(True):
        parts = jax.make_array_from_process_local_data(own, part[None], (_run.count, *part.shape))
        return np.asarray(add(parts).addressable_data(0))


@functools.cache  # A new function would be compiled again.
def _sum_over_processes() -> tuple[Any, Callable[[Any], Any]]:
    """Return how arrays [processes, ...] lie on one device each, and their jitted sum."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.asarray([firsts[index] for index in range(_run.count)]), ("processes",))
    own, same = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("processes",), ()))
    wait_for_all()  # Gloo connects at the first sum, and gives up after 30 seconds.
    return own, jax.jit(lambda parts: parts.sum(axis=0), out_shardings=same)


def wait_for_all() -> None:
    """Return once every process has come as far as this."""
    if _run.count == 1:
        return
    key = f"rlreps/turn/{next(_run.turns)}"
    # Not a barrier of the client's: in one that waits without end no signal is heard, and one that
    # times out has failed for all.
    if _run.index > 0:
        _client().key_value_set(f"{key}/{_run.index}", "here")
        _value_of(f"{key}/all")
        return
    for other in range(1, _run.count):
        _value_of(f"{key}/{other}")
    _client().key_value_set(f"{key}/all", "here")


def _value_of(key: str) -> str:
    """Wait for a key that another process sets, and return its value."""
    while True:
        try:
            return str(_client().blocking_key_value_get(key, _SLICE))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


@contextlib.contextmanager
def together(config: ProcessesConfig) -> Iterator[None]:
    """Run the body in all processes of a run, which end together.

    With nothing given, the processes are whatever JAX's cluster detection finds, and this one is
    alone where it finds nothing. Only the first may print on standard output.

    Raises:
        InputError: The others did not come, the coordinator cannot be reached, or the body raised
            it, whose message the others then end with too.
    """
    _join(config)
    if _run.count == 1:
        yield
        return
    try:
        yield
        wait_for_all()
        # Nobody leaves before all can tell that from a death.
        if _run.index == 0:
            _client().key_value_set(f"{_DONE}/0", "done")
        else:
            _value_of(f"{_DONE}/0")
    except BaseException as error:
        _fail(error)
        raise
    _run.ending.acquire()  # For good.
    _leave()


def _join(config: ProcessesConfig) -> None:
    """Find the other processes of this run.

    Raises:
        InputError: The others did not come, or the coordinator cannot be reached.
    """
    if config.num_processes == 1:
        return
    require(
        config.process_id is not None or (config.num_processes, config.coordinator) == (None, None),
        "coordinator, num_processes and process_id together, or none of them",
        (config.coordinator, config.num_processes, config.process_id),
    )
    import jax  # Deferred: commands that need none of it start in a fraction of the time.

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # A process that is gone ends the others by ``_watch``, whose line says which, not by an abort.
    jax.config.update("jax_enable_recoverability", True)
    # It would swallow the SIGTERM by which cluster managers end a process.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        _initialize(config)
    except ValueError as error:
        if config.coordinator is None:
            return  # No cluster manager here.
        raise InputError(f"expected a place in a run of several processes, got {error}") from error
    except RuntimeError as error:
        if config.coordinator is None and "must be called before" in str(error):
            return  # JAX is at work already, in a program that calls this one.
        first_line = str(error).splitlines()[0]
        raise InputError(
            f"expected {config.num_processes or 'all'} processes to meet at "
            f"{config.coordinator or 'their coordinator'}, got {first_line}"
        ) from error
    _run.index, _run.count = _runtime().process_id, _runtime().num_processes
    if _run.count == 1:
        return
    _run.heartbeat = config.heartbeat
    # Standard output is for results, and Gloo says there whom it has connected to.
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stdout = os.fdopen(os.dup(1) if _run.index == 0 else nowhere, "w", encoding="utf-8")
    os.dup2(nowhere, 1)
    if _run.index > 0:
        files.leave_writing_to_another()
        _say_before_aborting()
    _run.watch = threading.Thread(target=_watch, daemon=True)
    _run.watch.start()


def _initialize(config: ProcessesConfig) -> None:
    """``jax.distributed.initialize``, with an error where JAX would abort the whole process.

    JAX does that when its own timeout ends, so it gets one that does not, and a thread to wait in.

    Raises:
        RuntimeError: Also if the others did not come in time.
    """
    import jax

    failures: list[BaseException] = []

    def meet() -> None:
        try:
            jax.distributed.initialize(
                config.coordinator,
                config.num_processes,
                config.process_id,
                initialization_timeout=config.timeout + _LONGER_THAN_ANY_EXIT_SECONDS,
                heartbeat_timeout_seconds=config.heartbeat,
            )
            # Whoever is here first waits for the others, here and not in its first decision.
            if _runtime().num_processes > 1:
                _client().wait_at_barrier("rlreps/start", _FOREVER)
        except BaseException as error:
            failures.append(error)

    meeting = threading.Thread(target=meet, daemon=True)
    lost, deadline = 0, time.monotonic() + config.timeout
    reached = False
    with _nothing_on_stderr():  # JAX warns there that recoverability is experimental.
        meeting.start()
        while meeting.is_alive() and lost < _PROBES and time.monotonic() < deadline:
            meeting.join(min(_PROBE_SECONDS, max(deadline - time.monotonic(), 0.0)))
            # Nobody else would notice the death of process 0 before all have met.
            if config.process_id and meeting.is_alive():
                answers = _answers(str(config.coordinator))
                reached = reached or answers
                lost = lost + 1 if reached and not answers else 0
    if lost == _PROBES:
        raise RuntimeError("no answer from process 0 any more")
    if meeting.is_alive():
        raise RuntimeError(f"nobody more within {config.timeout} seconds")
    if failures:
        raise failures[0]


def _answers(coordinator: str) -> bool:
    """Return whether process 0, at HOST:PORT, can be reached."""
    host, _, port = coordinator.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()
    except OSError:
        return False
    return True


_stderr = 2


def stderr() -> int:
    """Return the descriptor of standard error, which lies elsewhere while processes meet."""
    return _stderr


@contextlib.contextmanager
def _nothing_on_stderr() -> Iterator[None]:
    global _stderr
    _stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(_stderr, 2)
        os.close(_stderr)
        os.close(nowhere)
        _stderr = 2


def _watch() -> None:
    """End this process when another has failed or died; runs in a thread of its own."""
    everyone = list(range(_run.count))
    while not _run.left.is_set():
        try:
            # Returns when each has asked again, or is known to have left or died.
            live = {*_client().get_live_nodes(everyone)}
            failures = [json.loads(said) for _, said in _client().key_value_dir_get(_FAILURES)]
            gone = [] if _client().key_value_dir_get(_DONE) else sorted({*everyone} - live)
        except Exception:
            # This process leaves, or process 0 is gone and JAX aborts, or a message was lost: as
            # long as this process lives, the others' watches wait for it to ask again.
            _run.left.wait(_WATCH_SECONDS)
            continue
        if len(live) == 1:
            _run.alone.set()
        # Not while the main thread ends the process.
        if (failures or gone) and _run.ending.acquire(blocking=False):
            named = ", ".join(map(str, gone))
            line, code = (
                min(failures)
                if failures
                else (
                    f"expected {_run.count} processes, got no sign of life for {_run.heartbeat} "
                    f"seconds from process {named}; {_GOES_ON}",
                    1,
                )
            )
            os.write(2, f"rlreps: error: {line}\n".encode())
            threading.Thread(target=_leave_at_once, args=(code,)).start()
        _run.rounds += 1
        _run.left.wait(_WATCH_SECONDS)


def _fail(error: BaseException) -> None:
    """Tell the others why this process ends, unless it does because one of them is gone."""
    import jax

    lost = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error)
    if lost or "Gloo" in str(error):
        outlive_the_lost()
    _run.ending.acquire()  # For good.
    said = " ".join(str(error).splitlines()) or type(error).__name__
    code = 1 if isinstance(error, TrainingDivergedError) else 2
    with contextlib.suppress(Exception):
        _tell(f"process {_run.index} failed: {said}", code)
        _leave()


def outlive_the_lost() -> None:
    """Return if no other process is gone: else the watch ends this one, and says which it was.

    For errors that may come of the loss of another, before they are taken for anything else.
    """
    # The first round may have begun before the loss; without process 0 there are none.
    deadline, enough = time.monotonic() + _run.heartbeat + _FAREWELL_SECONDS, _run.rounds + 2
    while process_count() > 1 and _run.rounds < enough and time.monotonic() < deadline:
        time.sleep(_WATCH_SECONDS)


def _tell(line: str, code: int) -> None:
    """Have the others end with a line and an exit code."""
    _client().key_value_set(f"{_FAILURES}/{_run.index}", json.dumps([line, code]))


def tell_of_signal(number: int) -> None:
    """Have the other processes end, too, as this one was asked to end by a signal."""
    if _run.count == 1 or not _run.ending.acquire(blocking=False):
        return

    def tell() -> None:
        name = signal.Signals(number).name
        _tell(f"process {_run.index} got {name}; {_GOES_ON}", 128 + number)
        _leave()

    # The way to the others may be gone, and this process ends in any case.
    telling = threading.Thread(target=_quietly, args=(tell,), daemon=True)
    telling.start()
    telling.join(_FAREWELL_SECONDS)


def _quietly(work: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        work()


def _leave() -> None:
    """Leave the run; process 0, through which all talk, as the last."""
    import jax

    if _run.index == 0:
        _run.alone.wait(_FAREWELL_SECONDS)
    else:
        time.sleep(_WATCH_SECONDS)  # Others may not know yet that all is done.
    try:
        jax.distributed.shutdown()
    finally:
        _run.left.set()
        # Python ends a thread that returns from JAX while it shuts down: that aborts the process.
        if _run.watch is not None:
            _run.watch.join(_FAREWELL_SECONDS)
        # The handler is Python: at an abort after Python's end it would abort again, and so on.
        if _at_abort is not None:
            ctypes.CDLL(None).signal(int(signal.SIGABRT), None)


def _leave_at_once(code: int) -> NoReturn:
    with contextlib.suppress(Exception):
        _leave()
    os._exit(code)


def _runtime() -> Any:
    from jax._src import distributed  # Where Orbax, too, finds the runtime's keys and barriers.

    return distributed.global_state


def _client() -> Any:
    return _runtime().client


def _say_before_aborting() -> None:
    """Have this process end with a line and code 1 where JAX aborts it, after a page of its own.

    It does so when process 0 is gone.
    """
    coordinator = str(_runtime().coordinator_address)

    def end(number: int) -> None:
        line = f"process 0, or the way to it, is gone; {_GOES_ON}"
        if _answers(coordinator):
            line = "aborted: see above"
        os.write(2, f"rlreps: error: {line}\n".encode())
        os._exit(1)

    global _at_abort
    _at_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(end)
    ctypes.CDLL(None).signal(int(signal.SIGABRT), _at_abort)


_at_abort: Any = None
"""Kept for as long as the process lives: C calls it."""
