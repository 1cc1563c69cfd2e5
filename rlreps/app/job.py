"""One way to run a thing: ``run_job(job, out)`` in a folder of its own.

A run resumes where its folder holds the same run (``runs.folder``) without a summary (``run_job``),
from its newest checkpoint (``training.loop``) that is whole (``runs.checkpoints``). A study goes on
with the cells that are missing (``study.experiment``).
"""

import abc
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import jax

from rlreps.report.page import Page, write_report
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder
from rlreps.runs.locks import exclusive
from rlreps.runs.processes import first_does, require_same
from rlreps.runs.provenance import provenance

Printed: TypeAlias = str | Table | Path | Mapping[str, Any]
"""What commands print: a line, a table, the path of a file that they wrote, or JSON values."""

Outcome = TypeVar("Outcome")
Command = TypeVar("Command", bound=Callable[..., Any])


class Context(NamedTuple):
    """Devices and processes of a job; they change results by rounding alone.

    Attributes:
        devices: Devices over which training is distributed; None is JAX's default device.
        jobs: Number of parts to compute at a time, each in a process with its share of the cores.
        executor: Where to compute parts; None is this process, or the processes of ``jobs``.
    """

    devices: Sequence[jax.Device] | None = None
    jobs: int = 1
    executor: Executor | None = None


class Job(abc.ABC, Generic[Outcome]):
    """Something that runs in a folder of its own.

    A job is a frozen dataclass. Its fields are its inputs and options, from which the command line
    makes a command. What several methods need, such as loaded data, is a ``cached_property``.

    Attributes:
        kind: The kind of run, which its folder names.
        takes: Further options of its command: ``processes``, if several processes run it together,
            ``devices``, ``executor`` and ``jobs`` (with it ``executor``).
        shares_devices: Whether it distributes many small runs over all cores or accelerators.
    """

    kind: ClassVar[str]
    takes: ClassVar[Sequence[str]] = ()
    shares_devices: ClassVar[bool] = False

    @abc.abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return everything that decides the result, as JSON values: the identity of the run."""

    def locate(self, out: Path) -> Mapping[str, Any]:
        """Return where the data come from, as JSON values; not compared on resumption."""
        return {}

    def check(self, context: Context) -> None:
        """Refuse inputs that do not fit each other, the memory or the devices, before any file."""

    @abc.abstractmethod
    def compute(self, folder: RunFolder, context: Context) -> Outcome:
        """Do what is left of the work; called again after an interruption."""

    def report(self, folder: RunFolder, found: Outcome) -> Page | None:
        """Write the figures of a finished run, and return its page; None if it has no page."""
        return None

    def summarise(self, found: Outcome) -> Mapping[str, Any]:
        """Return the summary, as JSON values."""
        assert isinstance(found, Mapping)
        return found

    def show(self, summary: Mapping[str, Any]) -> Iterator[Printed]:
        """Yield what the command prints of a finished run."""
        yield summary


def run_job(
    job: Job[Any],
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Run a job in a folder, go on with it, or return what a finished one found.

    Args:
        job: The job.
        out: Its folder, which is locked against other processes meanwhile: ``config.json``,
            ``summary.json`` and what the job writes there.
        devices: As for ``Context``; a run may resume on other devices.
        jobs: As for ``Context``.
        executor: As for ``Context``; it is not shut down.

    Returns:
        The summary, as ``summary.json`` holds it; with a page, its path is the ``report``.

    Raises:
        InputError: If the inputs do not fit, the folder holds another run, or another process is
            working there; nothing is written.
    """

    def find_summary(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
        there = RunFolder.find(out, kind=job.kind, config=config)
        return None if there is None or config is None else there.read_summary()

    first_does(lambda: find_summary(None))  # Before data are read.
    described = job.describe()
    require_same("run", {"kind": job.kind, "config": described})
    if (finished := first_does(lambda: find_summary(described))) is not None:
        return finished
    context = Context(devices, jobs, executor)
    with contextlib.ExitStack() as stack:
        job.check(context)
        first_does(lambda: stack.enter_context(exclusive(out)))
        folder = RunFolder.create_or_resume(
            out,
            kind=job.kind,
            config=described,
            provenance={**job.locate(out), **provenance()},
        )
        found = job.compute(folder, context)

        def conclude() -> dict[str, Any]:
            # The summary is written last: if it exists, so does the page.
            shown = job.report(folder, found)
            place = {} if shown is None else {"report": str(write_report(folder, shown))}
            return folder.write_summary({**job.summarise(found), **place})

        return first_does(conclude)


def takes(*names: str, shares_devices: bool = False) -> Callable[[Command], Command]:
    """Give the command of a function options that it shares with jobs; names as in ``Job``."""

    def mark(function: Command) -> Command:
        function.takes, function.shares_devices = names, shares_devices  # type: ignore[attr-defined]
        return function

    return mark


def print_found(found: Printed | Iterable[Printed]) -> None:
    """Print what a command found on standard output."""
    for part in [found] if isinstance(found, Mapping | Path | str | Table) else found:
        if isinstance(part, Table):
            part.print()
        elif isinstance(part, Mapping):
            print(json.dumps(part, indent=2, allow_nan=False))
        else:
            print(f"wrote {part}" if isinstance(part, Path) else part)
