"""Several processes, on one machine or many, that work on one folder.

JAX's multi-controller runtime says who takes part: by itself under the cluster managers that it
knows, and by coordinator, number and index elsewhere. Once everybody has started, its connections
are closed. What follows needs no communication but the folder that all share, so there is none to
break: a process that dies is noticed by its lock file (see ``locks``), not by an abort of the rest.
"""

import contextlib
import ctypes
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from rlreps.errors import InputError, require, require_positive
from rlreps.runs.locks import exclusive, is_held

T = TypeVar("T")

_LONGER_THAN_ANY_EXIT_SECONDS = 600


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessesConfig:
    """Several processes that work on one store together, on one machine or many.

    With nothing given they find each other where a cluster manager that JAX knows started them.

    Attributes:
        coordinator: Address HOST:PORT of process 0, the same for all.
        num_processes: How many there are; 1 never looks for others.
        process_id: Which one this is, from 0.
        timeout: Seconds to wait for the others to start.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    timeout: int = 300

    def __post_init__(self) -> None:
        given = (self.coordinator, self.num_processes, self.process_id)
        alone = self.num_processes == 1 and given == (None, 1, None)
        require(
            alone or all(value is None for value in given) or None not in given,
            "coordinator, num_processes and process_id together, or none of them",
            given,
        )
        if self.num_processes is not None and self.process_id is not None:
            require_positive("num_processes", self.num_processes)
            require(
                0 <= self.process_id < self.num_processes,
                f"process_id in [0, {self.num_processes})",
                self.process_id,
            )
        require_positive("timeout", self.timeout)


@dataclasses.dataclass(frozen=True)
class Processes:
    """Which of how many processes this is.

    Attributes:
        index: This one, in [0, count).
        count: All that take part.
    """

    index: int = 0
    count: int = 1

    def share(self, items: list[int]) -> list[int]:
        """List those of the items (whole numbers) that are this process's to work on."""
        return [item for item in items if self.owner(item) == self.index]

    def owner(self, item: int) -> int:
        """Return the process that an item belongs to."""
        return item % self.count

    @contextlib.contextmanager
    def together(
        self, folder: Path, check: Callable[[], object], prepare: Callable[[], T]
    ) -> Iterator[T]:
        """Hold a folder for all processes of the run while the body works in it.

        Process 0 takes the folder's lock and prepares it, then the others do what it did: by then
        they find it done.

        Args:
            folder: A folder that all processes share.
            check: Raises what speaks against working there, before anything is written.
            prepare: What to do once the folder is held; its result is handed to the body.

        Raises:
            InputError: Another run holds the folder, or preparing failed, here or in process 0.
        """
        if self.count == 1:
            check()
            with exclusive(folder):
                yield prepare()
            return
        with contextlib.ExitStack() as stack:

            def take_folder() -> T:
                check()
                stack.enter_context(exclusive(folder))
                return prepare()

            def take_place() -> T:
                stack.enter_context(exclusive(folder, _lock_name(self.index)))
                return prepare() if own is None else own

            # Whoever fails says so before it leaves: the others would wait for it.
            own = self._turn(folder, take_folder if self.index == 0 else None)
            prepared = self._turn(folder, take_place)
            assert prepared is not None
            jax.distributed.shutdown()
            yield prepared

    def _turn(self, folder: Path, work: Callable[[], T] | None) -> T | None:
        """Do this process's work, if it has any, and wait for that of the others.

        Raises:
            InputError: Another process failed; whatever ``work`` raises, if this one did.
        """
        result, failure = None, None
        try:
            result = work() if work is not None else None
        except BaseException as error:
            failure = error
        failed = _everyone(failure is not None)
        if failure is not None:
            raise failure
        if failed.any():
            raise InputError(
                f"expected all processes to work on {folder}, "
                f"got an error in process {int(np.argmax(failed))}; see there"
            )
        return result

    def dead(self, folder: Path) -> list[int]:
        """List other processes that no longer hold their place in the folder: ended or dead."""
        others = (index for index in range(self.count) if index != self.index)
        return [index for index in others if not is_held(folder, _lock_name(index))]


ALONE = Processes()


def join(config: ProcessesConfig) -> Processes:
    """Find the other processes of this run; return this one's place among them.

    With nothing given, they are whatever JAX's cluster detection finds, and this process is alone
    where it finds nothing.

    Raises:
        InputError: The others did not come, or the coordinator cannot be reached.
    """
    if config.num_processes == 1:
        return ALONE
    try:
        _initialize(config)
    except ValueError as error:
        if config.coordinator is None:
            return ALONE  # No cluster manager here.
        raise InputError(f"expected a place in a run of several processes, got {error}") from error
    except RuntimeError as error:
        if config.coordinator is None and "must be called before" in str(error):
            return ALONE  # JAX is at work already, in a program that calls this one.
        first_line = str(error).splitlines()[0]
        raise InputError(
            f"expected {config.num_processes or 'all'} processes to meet at "
            f"{config.coordinator or 'their coordinator'}, got {first_line}"
        ) from error
    return Processes(jax.process_index(), jax.process_count())


def _initialize(config: ProcessesConfig) -> None:
    """``jax.distributed.initialize``, with an error where JAX would abort the whole process.

    JAX does that when its own timeout ends, so it gets one that does not, and a thread to wait in.

    Raises:
        RuntimeError: Also if the others did not come in time.
    """
    failures: list[BaseException] = []

    def meet() -> None:
        try:
            jax.distributed.initialize(
                config.coordinator,
                config.num_processes,
                config.process_id,
                initialization_timeout=config.timeout + _LONGER_THAN_ANY_EXIT_SECONDS,
            )
        except BaseException as error:
            failures.append(error)

    meeting = threading.Thread(target=meet, daemon=True)
    meeting.start()
    meeting.join(config.timeout)
    if meeting.is_alive():
        raise RuntimeError(f"nobody more within {config.timeout} seconds")
    if failures:
        raise failures[0]


@contextlib.contextmanager
def _nothing_on_stdout() -> Iterator[None]:
    """Send what C++ libraries print to standard error: standard output is for results."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def _everyone(here: bool) -> np.ndarray:
    """Return what each process says, [count] (bool), once all have."""
    with _nothing_on_stdout():  # Gloo says there whom it has connected to.
        said = multihost_utils.process_allgather(np.int32(here))
    flags: np.ndarray = np.asarray(said).reshape(-1) != 0
    return flags


def _lock_name(index: int) -> str:
    return f".process-{index}.lock"
