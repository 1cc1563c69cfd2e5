"""Build a command's options from the dataclasses that it configures.

If the user names the class of a field (an objective by ``--method``, an encoder by ``--encoder``),
the field has only the options of this class.
"""

import contextlib
import dataclasses
import difflib
import functools
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import docstring_parser
import tyro

from rlreps.config import described, fits, options
from rlreps.envs.arenas import ARENAS
from rlreps.errors import InputError, require, require_choice

C = TypeVar("C")

Switch: TypeAlias = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""A boolean option without a ``--no-`` form."""

_AUTOMATIC = "(default: automatic)"
_METAVARS: dict[Any, str] = {
    int | None: "INT",
    float | None: "FLOAT",
    str | None: "STR",
    Path | None: "PATH",
}


class Choice(NamedTuple):
    """A kind of object that the user chooses by name.

    Attributes:
        flag: Option that names the class, without dashes. A field with default None stays None
            without this option.
        classes: Name → class.
    """

    flag: str
    classes: Mapping[str, type]


class _Form(NamedTuple):
    """A class that tyro parses in place of another, and the map back to the other class."""

    cls: type
    build: Callable[[Any], Any]


class _Parser:
    """The options of one command line."""

    def __init__(
        self,
        arguments: list[str],
        choices: Mapping[Any, Choice],
        names: Mapping[str, str],
        needs: Mapping[Any, str],
    ) -> None:
        self.arguments, self.choices, self.names, self.needs = arguments, choices, names, needs
        self.known: dict[str, Any] = {"--help": bool, "-h": bool}
        self.positional: dict[str, Any] = {}
        self.required: set[str] = set()
        self.given: set[str] = set()
        self.menus: list[Choice] = []
        self.chosen: dict[str, set[str]] = {}
        self.needed: dict[str, set[str]] = {}

    def form(self, cls: type, default: Any = None, *, first: Sequence[Any] = ()) -> _Form:
        """Make the class that tyro parses in place of a dataclass.

        Args:
            cls: The dataclass.
            default: An instance whose values are the defaults; None takes the class's own.
            first: Additional fields, which the dataclass does not have.
        """
        made: list[Any] = list(first)
        builders: dict[str, Callable[[Any], Any]] = {}
        hints, helps = get_type_hints(cls, include_extras=True), _helps(cls)
        for field in options(cls):
            value = field.default if default is None else getattr(default, field.name)
            if default is None and field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            hint = hints[field.name]
            bare = _bare(hint)
            if bare in self.choices:
                inner = self._chosen(self.choices[bare], value)
            elif (optional := _optional_dataclass(bare)) is not None:
                inner = self._unless_unused(optional)
            elif dataclasses.is_dataclass(bare):
                before = set(self.known)
                inner = self.form(bare, None if value is dataclasses.MISSING else value)  # type: ignore[arg-type]
                if bare in self.needs:
                    self.needed[self.needs[bare]] = {*self.known} - before
            else:
                made.append(self._option(f"{cls.__name__}.{field.name}", hint, helps, value))
                builders[field.name] = lambda parsed: parsed
                continue
            builders[field.name] = inner.build
            made.append((field.name, inner.cls, dataclasses.field()))
        form = dataclasses.make_dataclass(cls.__name__, made, kw_only=True, frozen=True)
        form.__doc__ = (cls.__doc__ or "").strip().partition("\n")[0].replace("``", "")
        return _Form(
            form,
            lambda values: cls(
                **{name: build(getattr(values, name)) for name, build in builders.items()}
            ),
        )

    def _unless_unused(self, cls: type) -> _Form:
        """Make the form of a dataclass that is None unless one of its options is given."""
        before = {*self.known}
        form = self.form(cls)
        own = {*self.known} - before
        return _Form(form.cls, lambda values: form.build(values) if own & self.given else None)

    def _chosen(self, choice: Choice, default: Any) -> _Form:
        """Make the form of the class that the arguments name, else of the default's class."""
        self.menus.append(choice)
        names = [name for name, cls in choice.classes.items() if cls is type(default)]
        name = self._named(choice.flag, tuple(choice.classes), *names)
        kinds: Any = Literal[tuple(sorted(choice.classes))]
        told = "Its options are those below." if name else "Its options appear once it is given."
        mark = tyro.conf.arg(help=told, name=choice.flag)
        field = f"{choice.flag.replace('-', '_')}_name"
        first = (field, Annotated[kinds, mark], dataclasses.field(default=name))
        self.known[f"--{choice.flag}"] = kinds
        if not name:
            optional = (field, Annotated[kinds | None, mark], dataclasses.field(default=None))
            made = dataclasses.make_dataclass("Default", [optional], kw_only=True, frozen=True)
            return _Form(made, lambda values: None)
        cls = choice.classes[name]
        before = set(self.known)
        form = self.form(cls, default if type(default) is cls else None, first=[first])
        self.chosen[name] = {*self.known} - before
        return form

    def _named(self, flag: str, names: Sequence[str], default: str = "") -> str:
        """Read which of the names the arguments give to an option; return it with underscores.

        Raises:
            InputError: For another name.
        """
        name = default
        for index, argument in enumerate(self.arguments):
            given, equals, value = argument.partition("=")
            if _spelled(given) == f"--{flag}":
                value = value if equals else "".join(self.arguments[index + 1 : index + 2])
                name = value.replace("-", "_")
                require_choice(f"--{flag}", name, names)
                self.arguments[index : index + (1 if equals else 2)] = [given, name]
        return name

    def _option(
        self, place: str, hint: Any, helps: Mapping[str, str], default: Any
    ) -> tuple[str, Any, Any]:
        name = place.partition(".")[2]
        shown = self.names.get(place, name)
        dashed = shown.replace("_", "-")
        given, marks = f"--{dashed}", dict[str, Any]()
        if tyro.conf.Positional in get_args(hint):
            marks["metavar"] = given = shown.upper()
            self.positional[given] = hint
        else:
            # The option can be repeated: each time it takes one of the values.
            repeated = tyro.conf.UseAppendAction in get_args(hint)
            self.known[given] = get_args(_bare(hint))[0] if repeated else hint
            self.known |= {f"--no-{dashed}": bool} if _bare(hint) is bool else {}
        self.required |= {given} if default is dataclasses.MISSING else set()
        if get_origin(hint) is Literal:
            self._named(dashed, get_args(hint))
        about = helps.get(name, "")
        if shown == "arena":
            about += f" Names: {', '.join(ARENAS)}."
        if default is None:
            marks["help_behavior_hint"] = "" if "by default" in about else _AUTOMATIC
            marks["metavar"] = _METAVARS.get(hint)
        if about or shown != name or marks:
            known = None if shown == name else dashed
            hint = Annotated[hint, tyro.conf.arg(help=about or None, name=known, **marks)]
        return name, hint, dataclasses.field(default=default)

    def options_by_class(self, prog: str) -> str:
        """List the options of every class that the user may choose, not only of the chosen one."""
        width = max(60, shutil.get_terminal_size().columns)
        text = ""
        for flag, classes in self.menus:
            text += f"\nOptions of each --{flag}; '{prog} --{flag} NAME --help' describes them:\n"
            longest = max(map(len, classes))
            for name, cls in sorted(classes.items()):
                shown = [
                    self.names.get(f"{cls.__name__}.{field.name}", field.name)
                    for field in options(cls)
                ]
                listed = ", ".join(f"--{option.replace('_', '-')}" for option in shown) or "none"
                space = " " * (longest + 4)
                text += textwrap.fill(
                    f"  {name:{longest}}  {listed}",
                    width,
                    subsequent_indent=space,
                    break_on_hyphens=False,
                    break_long_words=False,
                )
                text += "\n"
        return text

    def check(self, prog: str) -> None:
        """Refuse arguments that tyro would refuse in its own words.

        Raises:
            InputError: For an option that the command does not have (with the options of the chosen
                classes and the closest spelling) or that requires another option, for a value of
                another type, and for an argument that is missing or one too many.
        """
        values = list[str]()
        waiting = list(self.arguments)
        while waiting:
            flag, equals, value = waiting.pop(0).partition("=")
            flag = _spelled(flag)
            if not _is_option(flag):
                values.append(flag + equals + value)
                continue
            if flag not in self.known:
                known = sorted(self.known)
                close = difflib.get_close_matches(flag, known, 1, 0.75)
                hint = f"; did you mean {close[0]}?" if close else ""
                owned = ""
                for name, flags in self.chosen.items():
                    shown = sorted(own for own in flags if not own.startswith("--no-"))
                    owned += f"; options of {name}: {', '.join(shown) or 'none'}"
                raise InputError(f"expected an option of {prog}, got {flag}{hint}{owned}")
            self.given.add(flag)
            rest = next((n for n, each in enumerate(waiting) if _is_option(each)), len(waiting))
            taken = 0 if equals else min(rest, _most_values(self.known[flag]))
            _require_value(flag, self.known[flag], [value] if equals else waiting[:taken])
            del waiting[:taken]
        for key, flags in self.needed.items():
            others = sorted(flags & self.given)
            if others and key not in self.given:
                raise InputError(f"expected {key} with {', '.join(others)}, got none")
        for name, hint in self.positional.items():
            taken = min(len(values), _most_values(hint))
            if taken or name in self.required:
                _require_value(name if taken else f"{name} (required)", hint, values[:taken])
            del values[:taken]
        require(not values, f"no further arguments of {prog}", " ".join(values))
        for name in sorted(self.required - {*self.given, *self.positional}):
            _require_value(f"{name} (required)", self.known[name], [])


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _optional_dataclass(hint: Any) -> type | None:
    """Return the dataclass of a type such as ``Optimizer | None``; None for another type."""
    found = [each for each in get_args(hint) if dataclasses.is_dataclass(each)]
    return found[0] if type(None) in get_args(hint) and len(found) == 1 else None  # type: ignore[return-value]


def _is_option(argument: str) -> bool:
    """Tell whether an argument names an option; negative numbers and ``-`` do not."""
    named = argument.startswith("-") and argument != "-"
    return named and isinstance(number_or_text(argument), str)


def _most_values(hint: Any) -> int:
    """Return the largest number of values that one option or argument takes."""
    bare = _bare(hint)
    if bare is bool:
        return 0
    if get_origin(bare) is tuple:
        inner = get_args(bare)
        return 2**31 if inner[-1] is ... else len(inner)
    unions = [_most_values(each) for each in get_args(bare) if get_origin(bare) is not Literal]
    return max(unions, default=1)


def _require_value(name: str, hint: Any, texts: Sequence[str]) -> None:
    expected = f"to be {described(hint).removeprefix('a tuple of ')}"
    if _bare(hint) is bool:
        expected = "without a value"
    require(_fits(texts, hint), f"{name} {expected}", " ".join(texts) if texts else None)


def _fits(texts: Sequence[str], hint: Any) -> bool:
    """Tell whether an option of a type can be read from texts: as words, or as values."""
    if _bare(hint) is bool:
        return not texts
    values = [None if text == "None" else number_or_text(text) for text in texts]
    one = (texts[0], values[0]) if len(texts) == 1 else ()
    return any(fits(found, hint) for found in (*one, tuple(texts), tuple(values)))


def number_or_text(text: str) -> int | float | str:
    """Read a number if the text is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


@functools.cache
def _helps(cls: type) -> dict[str, str]:
    """Read the description of every field from the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        for entry in docstring_parser.parse(base.__doc__ or "").params:
            found[entry.arg_name] = " ".join((entry.description or "").replace("``", "").split())
    return found


def _spelled(flag: str) -> str:
    return f"--{flag[2:].replace('_', '-')}" if flag.startswith("--") else flag


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
        choices: Annotated type of a field → how the user chooses its class.
        names: ``Class.field`` → option, if the option is not named after the field.
        needs: Dataclass of a field → the option that all its other options require.

    Returns:
        The command.

    Raises:
        InputError: For arguments that ``check`` refuses, in one line.
        SystemExit: With code 0, after printing requested help; with code 2, after a message of
            tyro, for arguments that only tyro refuses.
    """
    for before, argument in zip((prog, *arguments), arguments, strict=False):
        flag, equals, value = argument.partition("=")
        if not argument or (equals and not value and flag.startswith("--")):
            # An empty path would be the working folder.
            raise InputError(f"expected a value after {flag or before}, got an empty one")
    parser = _Parser(list(arguments), choices, names, needs)
    form = parser.form(command)
    asked_for_help = {"-h", "--help"} & {*arguments}
    if not asked_for_help:
        parser.check(prog)
    try:
        values: Any = tyro.cli(
            form.cls,
            prog=prog,
            description=form.cls.__doc__,
            args=parser.arguments,
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except SystemExit as ending:
        if not ending.code:  # After help.
            print(parser.options_by_class(prog), end="")
        raise
    built: C = form.build(values)
    return built
