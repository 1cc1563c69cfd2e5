"""The command line. It only parses; jobs, studies and functions do the work.

Invalid input exits with code 2 and one line on standard error. Diverged training and the death of
a worker exit with 1, an interruption from the keyboard with 130, a request to end (SIGTERM, SIGHUP)
with 143 or 129.
"""

import contextlib
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import FrameType
from typing import Any, NoReturn

from rlreps import __version__
from rlreps.app.commands import COMMANDS, every_command
from rlreps.errors import InputError, TrainingDivergedError, WorkerDiedError, printable, reason_of
from rlreps.runs.machine import (
    end_at_signals,
    keep_compiled_programs,
    keep_lapack_to_one_thread,
    quieten_resource_tracker,
)

_NO_CACHE, _QUIET = "--no-cache", "--quiet"
"""Options of every command."""


def main(arguments: list[str] | None = None) -> None:
    """Run the ``rlreps`` command.

    Args:
        arguments: Command-line arguments; None takes the process's own.
    """
    own_process = arguments is None
    given = sys.argv[1:] if arguments is None else arguments
    if own_process:
        quieten_resource_tracker()
        end_at_signals(_leave)
        if _NO_CACHE not in given:
            keep_compiled_programs()
    try:
        command = parse_command([word for word in given if word not in (_NO_CACHE, _QUIET)])
        if command is not None:
            _run(command, _QUIET in given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. Python would raise the error again when it flushes at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        message = _explain(error)
        if message is None:
            raise
        with contextlib.suppress(BrokenPipeError):
            print(f"rlreps: error: {printable(message)}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        code = 1 if isinstance(error, TrainingDivergedError | WorkerDiedError) else 2
        if own_process:
            os._exit(code)  # Otherwise threads of TensorBoard may print after this.
        sys.exit(code)


def _explain(error: Exception) -> str | None:
    """Return what is printed of an error; None for a fault of rlreps."""
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f": {error.filename}"
        return f"expected files that can be read and written, got {reason_of(error)}{place}"
    if isinstance(error, InputError | OSError | TrainingDivergedError | WorkerDiedError):
        return reason_of(error)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    ):
        found = str(error).partition("\n")[0] or "none left"
        return f"expected enough memory, got: {found}"
    return None


def parse_command(words: list[str]) -> Any:
    """Parse the command; None after printing the list of commands or the version.

    Raises:
        InputError: For a command or arguments that do not exist.
    """
    if words == ["--version"]:
        print(f"rlreps {__version__}")
        return None
    commands = every_command()
    for length in (2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in commands:
            return _parse(name, commands[name][0], words[length:])
    group = words[0] if words and any(key.startswith(f"{words[0]} ") for key in commands) else ""
    rest = words[1:] if group else words
    if not rest or rest[0] in ("-h", "--help"):
        _print_help(group, commands)
        return None
    known = {key.split()[1 if group else 0] for key in commands if key.startswith(group)}
    if rest[0].startswith("-"):
        known |= {"--help"} if group else {"--help", "--version"}
    close = difflib.get_close_matches(rest[0], sorted(known), 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    place = f"rlreps {group}".strip()
    raise InputError(
        f"expected a command of {place} ({', '.join(sorted(known))}), got {rest[0]!r}{hint}"
    )


def _parse(name: str, place: str, arguments: Sequence[str]) -> Any:
    """Import a command's module and read its arguments."""
    from rlreps.experiments import EXPERIMENTS

    home, _, leaf = place.partition(":")
    experiment = EXPERIMENTS[leaf] if home == "app.experiments" else None
    if name.startswith("agent ") or (experiment is not None and experiment.one_lapack_thread):
        # These programs factorise small matrices in every update. JAX is not loaded yet.
        keep_lapack_to_one_thread()
    from rlreps.app.command_options import command_class
    from rlreps.app.options import parse

    module = importlib.import_module(f"rlreps.{home}")
    own = module.command_of(leaf) if experiment else command_class(getattr(module, leaf))
    parts = [getattr(module, part, {}) for part in ("CHOICES", "NAMES", "NEEDS")]
    return parse(own, arguments, f"rlreps {name}", *parts)


def _run(command: Any, quiet: bool) -> None:
    """Run a command, in several processes if it supports them and is started in several."""
    from rlreps.runs.processes import process_index, together
    from rlreps.runs.progress import hidden

    shared = together(command.processes) if hasattr(command, "processes") else nullcontext()
    with shared, hidden(quiet or process_index() > 0):
        command.run()


def _print_help(group: str, commands: Mapping[str, tuple[str, str]]) -> None:
    """Print the commands, or those of a group, without importing any."""
    place = f"rlreps {group}".strip()
    print(f"usage: {place} COMMAND [OPTIONS]\n")
    if not group:
        print("State representations for reinforcement learning.\n")
    from rlreps.experiments import EXPERIMENTS, PAPERS

    width = max(len(name) for name in commands)
    listed = [name for name in COMMANDS if name.startswith(group)]
    if listed:
        print("commands:")
    for name in listed:
        print(f"  {name:{width}}  {commands[name][1]}")
    if not group or group == "experiment":
        gap = "\n" if listed else ""
        print(f"{gap}experiments by paper:")
        for paper in PAPERS.values():
            print(f" {paper}")
            for name, entry in EXPERIMENTS.items():
                if entry.paper == paper and name not in COMMANDS:
                    print(f"  {f'experiment {name}':{width}}  {entry.description}")
                    if group:
                        took = ", ".join(map(": ".join, entry.presets.items()))
                        print(f"  {'':{width}}  {took}")
    print(
        f"\n'{place} COMMAND --help' lists a command's options. Compiled programs are kept in the\n"
        f"user's cache folder; RLREPS_CACHE_DIR moves it and {_NO_CACHE} keeps none.\n"
        f"{_QUIET} with any command shows no progress bar."
    )


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End the process at once, as a kill does; files on disk survive a kill at any time.

    A JAX callback would swallow a ``KeyboardInterrupt``, and unwinding through the threads of XLA
    sometimes crashed.
    """
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")  # A progress bar hides the cursor.
    said = b"interrupted" if number == signal.SIGINT else b"asked to end"
    os.write(2, b"rlreps: " + said + b"; run the same command again to continue\n")
    os._exit(128 + number)
