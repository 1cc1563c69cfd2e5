"""Errors that a user's input can cause, and the checks that raise them.

The command line prints an error's message on one line.
"""

import contextlib
import functools
import inspect
import math
import numbers
import os
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")

_LARGEST = 3.4028235e38
"""The largest float32."""


class InputError(ValueError):
    """Input that cannot be used; the message says what was expected and what was given."""


class TrainingDivergedError(RuntimeError):
    """A loss or a parameter became NaN or infinite; the last good checkpoint is untouched."""


class WorkerDiedError(RuntimeError):
    """A worker process ended before its work was done."""


def require(condition: bool, expected: str, got: object) -> None:
    """Raise an ``InputError`` with the expected and the given value unless ``condition`` holds."""
    if not condition:
        raise InputError(f"expected {expected}, got {got!r:.1000}")


def require_value(value: Value | None, expected: str, got: object) -> Value:
    """Return a value; raise an ``InputError`` as ``require`` does if it is None."""
    require(value is not None, expected, got)
    assert value is not None
    return value


def require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise an ``InputError`` that lists the valid names, unless ``value`` is one of them."""
    require(value in choices, f"{name} to be one of {', '.join(sorted(choices))}", value)


def require_positive(name: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raise an ``InputError`` unless ``value`` is an integer in [least, most].

    ``most`` is the largest signed 32-bit integer by default.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(whole, f"{name} to be an integer", value)
    number = int(value)  # type: ignore[call-overload]
    require(number >= least, f"{name} >= {least}", value)
    most, said = (2**31 - 1, "2**31 - 1") if most is None else (most, f"{most:,}")
    require(number <= most, f"{name} <= {said}", value)


def require_interval(name: str, value: object, interval: str) -> None:
    """Raise an ``InputError`` unless a number lies in an interval such as ``(0, 2)``.

    Ends may be powers, as in ``[0, 2**31)``. Numbers beyond float32 are refused too. None and
    arrays (tracers among them) pass, since options are checked where a user writes them.
    """
    require(not isinstance(value, str), f"{name} to be a number", value)
    if not isinstance(value, numbers.Real):
        return
    number: Any = value
    low, high = map(_end, interval[1:-1].split(","))
    above = number >= low if interval[0] == "[" else number > low
    below = number <= high if interval[-1] == "]" else number < high
    require(bool(above and below) and not math.isinf(number), f"{name} in {interval}", value)
    require(abs(number) <= _LARGEST, f"{name} within float32", value)


def _end(text: str) -> float:
    base, *power = text.split("**")
    return math.pow(float(base), float(power[0]) if power else 1.0)


def require_memory(what: str, size: int) -> None:
    """Raise an ``InputError`` if a size in bytes exceeds ``usable_memory``.

    The check ignores other processes: it catches sizes that can never fit.
    """
    memory = usable_memory()
    if memory is not None and size > memory:
        raise InputError(
            f"expected {what} in {in_gigabytes(memory)} of memory, got {in_gigabytes(size)}"
        )


@functools.cache
def usable_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that this process may use; None if the system cannot say.

    The result is the machine's memory or the smallest limit of the process's control group (Linux
    cgroups) and the groups around it, which containers and batch systems set.

    Args:
        root: Folder of the kernel's files.
    """
    limits = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with contextlib.suppress(OSError):
        group = (root / "proc/self/cgroup").read_text().strip().rpartition("0::/")[2]
        place = root / "sys/fs/cgroup" / group
        for folder in (place, *place.parents):
            with contextlib.suppress(OSError, ValueError):  # No such file, or "max".
                limits.append(int((folder / "memory.max").read_text()))
    return min(limits, default=None)


def reason_of(error: BaseException) -> str:
    """Return an error's message on one line; a system error's without its number and path."""
    known = isinstance(error, OSError) and error.strerror
    return str(known or " ".join(str(error).splitlines()))


@contextlib.contextmanager
def own_code(expected: str) -> Iterator[None]:
    """Turn what a user's own code raises into an ``InputError`` of one line.

    Such code may raise anything, and may end the process by ``sys.exit``.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {reason_of(error)}".removesuffix(": ")
        raise InputError(f"expected {expected}, got {said}") from error


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey, by escapes.

    Names may come from other people's files. Formatting characters, such as those that reverse the
    direction of a line, and bytes of file names that are not text are escaped too.
    """
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each)[0] == "C" else each
        for each in text
    )


def in_gigabytes(size: int) -> str:
    """Write a number of bytes for a message."""
    return f"{size / 1e9:,.3g} GB" if size < 10**15 else f"{size // 10**9:,} GB"


class FitWarning(UserWarning):
    """A fit whose results are unreliable; the message says why."""


def warn_user(*messages: str) -> None:
    """Give a ``FitWarning`` of the innermost line outside ``rlreps``: the user's.

    Each message that is not empty has a warning of its own.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "rlreps":
        level, frame = level + 1, frame.f_back
    for message in filter(None, messages):
        warnings.warn(message, FitWarning, stacklevel=level)


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[str]]:
    """Record the messages of every ``FitWarning``, in a list that is filled at the end.

    Other warnings are shown at the end.
    """
    said: list[str] = []
    told: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", FitWarning)
            yield said
    finally:
        for each in told:
            if issubclass(each.category, FitWarning):
                said.append(str(each.message))
            else:  # It has passed the filters.
                warnings.showwarning(each.message, each.category, each.filename, each.lineno)


def describe_differences(expected: Any, got: Any, name: str = "") -> list[str]:
    """List how two JSON values differ, as "expected name=a, got b" with dotted names."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        found = []
        for key in sorted({*expected, *got}):
            inner = f"{name}.{key}" if name else str(key)
            found += describe_differences(expected.get(key), got.get(key), inner)
        return found
    if expected == got:
        return []
    return [f"expected {name}={_shortened(expected)}, got {_shortened(got)}"]


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
