"""Build a command's options from the dataclasses that it configures, for ``argparse``.

If the user names the class of a field (an objective by ``--method``, an encoder by ``--encoder``),
the field has only the options of this class.
"""

import argparse
import contextlib
import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from rlreps.config import described, options
from rlreps.envs.arenas import ARENAS
from rlreps.errors import InputError, require

C = TypeVar("C")

Given: TypeAlias = Mapping[str, Any]
"""Option or argument, as the user spells it → its value."""

POSITIONAL, SWITCH, REPEATED = "positional", "switch", "repeated"
Switch: TypeAlias = Annotated[bool, SWITCH]
"""A boolean option without a ``--no-`` form."""
Repeated: TypeAlias = Annotated[tuple[str, ...], REPEATED]
"""An option that takes one value each time that it is given."""


class Choice(NamedTuple):
    """A kind of object that the user chooses by name.

    Attributes:
        flag: Option that names the class, without dashes. A field with default None stays None
            without this option.
        classes: Name → class.
    """

    flag: str
    classes: Mapping[str, type]


class _ArgumentParser(argparse.ArgumentParser):
    """A parser without abbreviations whose errors are ``InputError``s."""

    def __init__(self, prog: str) -> None:
        super().__init__(
            prog=prog,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        # Its own lacks exponents and infinity before Python 3.14.
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf$)")

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


class Options:
    """The options of one command line.

    Attributes:
        flags: Option or argument → the type of its value.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        prog: str,
        choices: Mapping[Any, Choice],
        names: Mapping[str, str],
        needs: Mapping[Any, str],
    ) -> None:
        """See ``parse``."""
        self.arguments = [_spelled(argument) for argument in arguments]
        self.parser = _ArgumentParser(prog)
        self.choices, self.names, self.needs = choices, names, needs
        self.flags: dict[str, Any] = {}
        self.menus: list[Choice] = []
        self.chosen: dict[str, list[str]] = {}
        self.needed: dict[str, list[str]] = {}

    def add(self, cls: type, default: Any = None, title: str = "") -> Callable[[Given], Any]:
        """Add the options of a dataclass; return the function that makes one from their values.

        Args:
            cls: The dataclass.
            default: An instance whose values are the defaults; None takes the class's own.
            title: Title of its group in the help; without one, the class describes the command.
        """
        about = (cls.__doc__ or "").strip().partition("\n")[0].replace("``", "")
        group: Any = self.parser
        if title:
            group = self.parser.add_argument_group(f"{title} options", about)
        else:
            self.parser.description = about
        hints, helps = get_type_hints(cls, include_extras=True), _helps(cls)
        builders: dict[str, Callable[[Given], Any]] = {}
        for field in options(cls):
            name, hint = field.name, hints[field.name]
            value = field.default if default is None else getattr(default, name)
            if default is None and field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            if hint in self.choices:
                builders[name] = self._choose(self.choices[hint], value)
            elif (inner := _dataclass_of(hint)) is not None:
                builders[name] = self._add_inner(inner, hint, value, name)
            else:
                flag = self._flag(cls, name)
                builders[name] = self._option(group, flag, hint, helps.get(name, ""), value)
        return lambda given: cls(**{name: build(given) for name, build in builders.items()})

    def _add_inner(self, cls: type, hint: Any, default: Any, name: str) -> Callable[[Given], Any]:
        """Add the options of a field's dataclass; an optional one is None unless one is given."""
        before = len(self.flags)
        build = self.add(cls, None if default is dataclasses.MISSING else default, name)
        own = [*self.flags][before:]
        if cls in self.needs:
            self.needed[self.needs[cls]] = own
        if hint is cls:
            return build
        return lambda given: build(given) if given.keys() & own else None

    def _choose(self, choice: Choice, default: Any) -> Callable[[Given], Any]:
        """Add the options of the class that the arguments name, else of the default's class."""
        self.menus.append(choice)
        flag, names = f"--{choice.flag}", Literal[tuple(sorted(choice.classes))]
        parser = _ArgumentParser(self.parser.prog)
        parser.add_argument(flag, dest=flag, type=_reader(names))
        own = [name for name, cls in choice.classes.items() if cls is type(default)]
        # A parser of its own knows no other option; that of help would end it.
        words = [word for word in self.arguments if word not in ("-h", "--help")]
        name = vars(parser.parse_known_args(words)[0]).get(flag, next(iter(own), None))
        if name is None:
            self._option(self.parser, flag, names, "Has options of its own.", None)
            return lambda given: None
        cls, before = choice.classes[name], len(self.flags)
        build = self.add(cls, default if type(default) is cls else None, choice.flag)
        self.chosen[name] = [*self.flags][before:]
        self._option(self.parser, flag, names, "Its options are below.", name)
        return build

    def _option(
        self, group: Any, flag: str, hint: Any, about: str, default: Any
    ) -> Callable[[Given], Any]:
        """Add an option or an argument; return the function that takes its value."""
        hint, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        more: dict[str, Any] = {}
        if flag == "--arena":
            about += f" Names: {', '.join(ARENAS)}."
        if POSITIONAL in marks:
            name = flag[2:].upper()
            default = () if _number_of(hint) == "*" else default
        else:
            name, about = flag, f"{about} {_told(default, about)}"
            more = {"dest": name, "required": default is dataclasses.MISSING}
            more |= {} if hint is bool else {"metavar": _metavar(hint)}
        if hint is bool:
            more["action"] = "store_true" if SWITCH in marks else argparse.BooleanOptionalAction
        else:
            more["type"] = _reader(hint)
            more |= {"action": "append"} if REPEATED in marks else {"nargs": _number_of(hint)}
        group.add_argument(name, help=about.strip().replace("%", "%%"), **more)
        self.flags[name] = hint

        def value(given: Given) -> Any:
            found = given.get(name, default)
            return tuple(found) if isinstance(found, list) else found

        return value

    def parse(self) -> Given:
        """Parse the arguments.

        Raises:
            InputError: For arguments that do not fit; for an option that the command does not have,
                with the options of the chosen classes and the closest spelling.
            SystemExit: With code 0, after printing requested help.
        """
        parser = self.parser
        positional = [flag for flag in self.flags if not flag.startswith("-")]
        parser.usage = " ".join(["%(prog)s [OPTIONS]", *positional])
        parser.epilog = self._options_by_class()
        found, others = parser.parse_known_intermixed_args(self.arguments)
        for flag in (each.partition("=")[0] for each in others if each.startswith("-")):
            close = difflib.get_close_matches(flag, self.flags, 1, 0.75)
            hint = f"; did you mean {close[0]}?" if close else ""
            owned = "".join(
                f"; options of {name}: {', '.join(sorted(own)) or 'none'}"
                for name, own in self.chosen.items()
            )
            raise InputError(f"expected an option of {parser.prog}, got {flag}{hint}{owned}")
        require(not others, f"no further arguments of {parser.prog}", " ".join(others))
        given = vars(found)
        for key, own in self.needed.items():
            used = sorted(given.keys() & own)
            if used and key not in given:
                raise InputError(f"expected {key} with {', '.join(used)}, got none")
        return given

    def _options_by_class(self) -> str:
        """List the options of every class that the user may choose, not only of the chosen one."""
        lines = []
        for flag, classes in self.menus:
            lines += ["", f"options of each --{flag}; '--{flag} NAME --help' describes them:"]
            for name, cls in sorted(classes.items()):
                listed = ", ".join(self._flag(cls, field.name) for field in options(cls))
                lines.append(f"  {name}: {listed or 'none'}")
        return "\n".join(lines[1:])

    def _flag(self, cls: type, field: str) -> str:
        """Spell the option of a dataclass's field."""
        return f"--{self.names.get(f'{cls.__name__}.{field}', field).replace('_', '-')}"


def parse(
    command: type[C],
    arguments: Sequence[str],
    prog: str,
    choices: Mapping[Any, Choice] = MappingProxyType({}),
    names: Mapping[str, str] = MappingProxyType({}),
    needs: Mapping[Any, str] = MappingProxyType({}),
) -> C:
    """Build a command from its arguments.

    Args:
        command: A dataclass whose fields are arguments or dataclasses of arguments.
        arguments: The arguments after the command's name.
        prog: Name of the command in help and messages.
        choices: Type of a field → how the user chooses its class.
        names: ``Class.field`` → option, if the option is not named after the field.
        needs: Dataclass of a field → the option that all its other options require.

    Returns:
        The command.

    Raises:
        InputError: For arguments that do not fit, in one line.
        SystemExit: With code 0, after printing requested help.
    """
    asked = Options(arguments, prog, choices, names, needs)
    build = asked.add(command)
    built: C = build(asked.parse())
    return built


def _dataclass_of(hint: Any) -> type | None:
    """Return a dataclass, or that of a type such as ``Optimizer | None``; else None."""
    found = [each for each in (hint, *get_args(hint)) if dataclasses.is_dataclass(each)]
    return found[0] if len(found) == 1 else None  # type: ignore[return-value]


def _number_of(hint: Any) -> int | str | None:
    """Return how many values an option takes, as ``argparse`` names it."""
    numbers = [
        "*" if get_args(each)[-1] is ... else len(get_args(each))
        for each in (hint, *get_args(hint))
        if get_origin(each) is tuple
    ]
    return numbers[0] if numbers else None


def _reader(hint: Any) -> Callable[[str], Any]:
    """Return the function that reads a value of a type, or one of the values of a tuple."""

    def read(text: str) -> Any:
        with contextlib.suppress(LookupError, TypeError, ValueError):
            return _read(text, hint)
        expected = described(hint).removeprefix("a tuple of ")
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return read


def _read(text: str, hint: Any) -> Any:
    inner = get_args(hint)
    require(text != "", "a value", text)  # An empty path would be the working folder.
    if hint is type(None) or get_origin(hint) is Literal:
        return {str(each): each for each in inner or (None,)}[text.replace("-", "_")]
    if get_origin(hint) is tuple:
        return _read(text, inner[0])
    for each in sorted(inner, key=lambda each: each is not type(None)):  # A path may have any name.
        with contextlib.suppress(LookupError, ValueError):
            return _read(text, each)
    return hint(text)  # A union cannot be called.


def _metavar(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"{{{','.join(sorted(map(str, get_args(hint))))}}}"
    inner = [each for each in get_args(hint) if each not in (type(None), ...)]
    if get_origin(hint) is tuple:
        return _metavar(inner[0])
    return "|".join(map(_metavar, inner)) if inner else hint.__name__.upper()


def _told(default: Any, about: str) -> str:
    """Say the default of an option in its help."""
    if default is dataclasses.MISSING:
        return "(required)"
    if default is None:
        return "" if "by default" in about else "(default: automatic)"
    return f"(default: {' '.join(map(str, default)) if isinstance(default, tuple) else default})"


@functools.cache
def _helps(cls: type) -> dict[str, str]:
    """Read the description of every field from the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(base.__doc__ or "").replace("``", "")
        for _, name, about in re.findall(r"^( +)(\w+): (.*(?:\n+\1 +.*)*)", text, re.MULTILINE):
            found[name] = " ".join(about.split())
    return found


def _spelled(argument: str) -> str:
    """Spell an option with hyphens."""
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else argument
