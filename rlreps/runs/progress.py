"""One progress bar for all long work: rate, time left and latest measure, on standard error.

Bars are shown unless ``hidden``, so that no function needs an argument to show or hide them.
"""

import contextlib
import contextvars
import sys
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

_HIDDEN = contextvars.ContextVar("hidden", default=False)


@contextlib.contextmanager
def hidden(when: bool = True) -> Iterator[None]:
    """Hide this thread's bars and progress messages while the body runs."""
    before = _HIDDEN.set(when or _HIDDEN.get())
    try:
        yield
    finally:
        _HIDDEN.reset(before)


def is_visible() -> bool:
    """Tell whether this thread shows its progress."""
    return not _HIDDEN.get()


class Advance(Protocol):
    """Move a progress bar."""

    def __call__(self, count: int, note: str = "") -> None:
        """Add ``count`` units done since the last call and show a note beside the bar."""
        ...


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        unit = task.fields["unit"]
        return Text(
            f"{speed:,.0f} {unit}/s" if speed else f"- {unit}/s", style="progress.data.speed"
        )


_MINUTE = 60.0
"""Seconds between two lines. A file or pipe as standard error gets lines instead of a bar."""


@contextlib.contextmanager
def progress_bar(
    description: str,
    *,
    total: int,
    done: int = 0,
    unit: str,
    show: bool = True,
    after: float = 0.0,
) -> Iterator[Advance]:
    """Show a progress bar while the body runs; yield a function to call as units are done.

    If standard error is a file or a pipe, a line each minute says how far the work is.

    Args:
        description: Name of the work.
        total: Total number of units.
        done: Number of units that an interrupted run had done.
        unit: Name of a unit, plural.
        show: Whether to show a bar that is not ``hidden``.
        after: Seconds of work before the bar appears; shorter work shows none.
    """
    console, show = Console(stderr=True), show and is_visible()
    # On a narrow terminal, long text shortens the bar instead of taking a second line.
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        _RateColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True)),
    )
    # On a terminal, lines printed meanwhile go above the bar; otherwise they go to the file or
    # pipe.
    progress = Progress(
        *columns,
        console=console,
        disable=not show,
        expand=True,
        redirect_stdout=sys.stdout.isatty(),
    )
    task = progress.add_task(description, total=total, completed=done, unit=unit, note="")
    started, begun, ended = time.monotonic(), done, threading.Event()

    def lines() -> None:
        while not ended.wait(_MINUTE):
            now, seconds = int(progress.tasks[0].completed), time.monotonic() - started
            left = max(0, total - now) * seconds / (now - begun) / 60.0 if now > begun else None
            rest = "" if left is None else f", about {left:,.0f} minutes left"
            print(f"{description}: {now:,} of {total:,} {unit}{rest}", file=sys.stderr, flush=True)

    def advance(count: int, note: str = "") -> None:
        progress.update(task, advance=count, note=note)
        if time.monotonic() - started >= after and not ended.is_set():
            progress.start()

    if show and not (console.is_terminal or console.is_jupyter):
        threading.Thread(target=lines, daemon=True).start()
    try:
        if not after:
            progress.start()
        yield advance
    finally:
        ended.set()
        if progress.live.is_started:
            progress.stop()
