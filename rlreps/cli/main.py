"""Entry point of the command line; ``commands`` holds what it can do.

Input that cannot be used ends with one line on standard error and exit code 2, diverged training
and the death of another process with 1, an interruption from the keyboard with 130.
"""

import contextlib
import io
import itertools
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes

from rlreps.cli.agent import TrainAgents
from rlreps.cli.commands import Command
from rlreps.cli.options import parse
from rlreps.cli.sweep import Sweep
from rlreps.cli.training import Train, TrainLive
from rlreps.errors import InputError, ProcessDiedError, TrainingDivergedError

_WITH_CHOICES: dict[tuple[str, ...], Any] = {
    ("train",): Train,
    ("train-live",): TrainLive,
    ("sweep",): Sweep,
    ("agent", "train"): TrainAgents,
}
"""Commands whose options depend on the methods that are named."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_INTERNAL_PLACE = re.compile(r"^Error parsing \S+: (?=expected )")


def main(arguments: list[str] | None = None) -> None:
    """Runs the ``rlreps`` command.

    Args:
        arguments: Command-line arguments; None takes the process's own.
    """
    if arguments is None:
        signal.signal(signal.SIGINT, _leave)
    # Orbax warns of what a killed run left behind, which is nothing to worry about, and reports on
    # a full disk from each of its threads, beside raising it.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        _parse(sys.argv[1:] if arguments is None else arguments).run()
        sys.stdout.flush()
    except (ProcessDiedError, TrainingDivergedError) as error:
        _fail(error, 1)
    except BrokenPipeError:
        # Whoever read the output has enough. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        # The environments' own error class lives apart from the library's.
        from rlreps.envs.core import ArenaError

        if not isinstance(error, InputError | ArenaError | OSError):
            raise
        _fail(error, 2)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ends the process at once, as a kill would: everything on disk is made for that.

    A ``KeyboardInterrupt`` instead would be swallowed wherever it met a callback of JAX's, and
    unwinding through XLA's and Orbax's threads crashed now and then.
    """
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # A progress bar hides the cursor.
    os.write(2, b"rlreps: interrupted; the same command goes on from here\n")
    os._exit(130)


def _fail(error: Exception, code: int) -> NoReturn:
    print(f"rlreps: error: {' '.join(str(error).splitlines())}", file=sys.stderr)
    sys.exit(code)


def _parse(arguments: list[str]) -> Any:
    """The command that the arguments describe.

    Raises:
        InputError: If they describe none.
        SystemExit: With code 0, after printing the help that was asked for.
    """
    for words, command in _WITH_CHOICES.items():
        if tuple(arguments[: len(words)]) == words:
            return parse(
                command,
                arguments[len(words) :],
                prog=f"rlreps {' '.join(words)}",
                choices=command.choices,
                names=command.names,
            )
    said = io.StringIO()
    try:
        # Help wraps its text to the terminal; an error is to be one line however long.
        wide = contextlib.nullcontext() if {"-h", "--help"} & {*arguments} else _wide_terminal()
        with contextlib.redirect_stderr(said), wide:
            return tyro.cli(
                Command,
                prog="rlreps",
                description="State representations for reinforcement learning.",
                args=arguments,
                config=(OmitArgPrefixes, OmitSubcommandPrefixes),
            )
    except SystemExit as ending:
        if ending.code != 2:
            raise
        raise InputError(_one_line(said.getvalue())) from None


@contextlib.contextmanager
def _wide_terminal() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _one_line(box: str) -> str:
    """What an error box of tyro's says, without title, frame, help texts and footer."""
    lines = [line.strip("│| ") for line in _COLOURS.sub("", box).splitlines()[1:-1]]
    is_rule = [bool(line) and not line.strip("─-") for line in lines]
    parts = [
        " ".join(line for line, _ in group if line)
        for rule, group in itertools.groupby(
            zip(lines, is_rule, strict=True), key=lambda pair: pair[1]
        )
        if not rule
    ]
    message = _INTERNAL_PLACE.sub("", parts[0]) if parts else box
    choices = [part for part in parts[1:] if part.startswith("Available subcommands")]
    return "; ".join([message, *choices])
