"""Frozen dataclasses that are both an object and its configuration.

An objective, encoder, streaming rule, cumulant family or operator is one frozen dataclass. Its
fields are its options. Five things follow from the fields alone:

- it is a JAX pytree whose leaves are its numbers, so that a sweep can vary them in one program;
- a user's values are checked: their types, a ``positive`` integer, a number in an ``interval``;
  ``__post_init__`` checks conditions between fields;
- fields marked ``size`` are not options: the caller who knows the data fills them in;
- the command line builds a method's options from its class;
- ``as_json`` and ``from_json`` store it in a run's configuration.
"""

import abc
import dataclasses
import functools
import importlib
import inspect
import numbers
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.errors import InputError, own_code, require, require_interval, require_positive

T = TypeVar("T")

Check = Callable[[str, Any], None]
"""(name of a field, a user's value) → an ``InputError`` if the value is invalid."""

_SIZE = "size"
_LEAF = "leaf"
_STATIC = "static"
_CHECK = "check"


def positive(default: Any = dataclasses.MISSING, *, least: int = 1, most: int | None = None) -> Any:
    """Declare an integer that is at least ``least``."""
    check = functools.partial(require_positive, least=least, most=most)
    return dataclasses.field(default=default, metadata={_CHECK: check})


def interval(within: str, default: Any = dataclasses.MISSING, *, static: bool = False) -> Any:
    """Declare a number in an interval such as ``(0, 2)`` or ``[0, inf)``.

    With ``static``, the number decides which operations are computed (see ``static``).
    """
    check = functools.partial(require_interval, interval=within)
    return dataclasses.field(
        default=default, metadata={_CHECK: check} | ({_STATIC: True} if static else {})
    )


def size(default: Any = dataclasses.MISSING, *, leaf: bool = False) -> Any:
    """Declare a field that the data decides, such as the number of features or tasks.

    Whole numbers are at least 1. With ``leaf`` the field is a pytree of arrays, or a configurable
    with numbers of its own.
    """
    return dataclasses.field(
        default=default, metadata={_SIZE: True} | ({_LEAF: True} if leaf else {})
    )


def no_option(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field that only Python can give: the command line has no option for it."""
    return dataclasses.field(default=default, metadata={_SIZE: True})


def static(default: Any = dataclasses.MISSING) -> Any:
    """Declare a number that decides which operations are computed, so that it cannot be traced."""
    return dataclasses.field(default=default, metadata={_STATIC: True})


def leaf() -> Any:
    """Declare a field that is a pytree of arrays, or a configurable with numbers of its own."""
    return dataclasses.field(metadata={_LEAF: True})


def configurable(cls: type[T]) -> type[T]:
    """Register a frozen dataclass as a pytree whose leaves are its numbers.

    Leaves are the fields annotated ``float`` or ``float | None``, except ``static`` fields, and the
    fields declared by ``leaf``. Other fields are static and must be hashable. Values that a user
    gives are ``checked``; JAX rebuilds nodes around tracers without this check, by setting fields
    directly.
    """
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = [
        f.name
        for f in fields
        if _LEAF in f.metadata or (_is_number(hints[f.name]) and _STATIC not in f.metadata)
    ]
    static = [f.name for f in fields if f.name not in leaves]

    def flatten(node: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in leaves]
        return children, tuple(getattr(node, name) for name in static)

    def unflatten(fixed: tuple[Any, ...], children: Iterable[Any]) -> T:
        node = object.__new__(cls)
        for name, value in [*zip(leaves, children, strict=True), *zip(static, fixed, strict=True)]:
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return checked(cls)


def checked(cls: type[T]) -> type[T]:
    """Make a dataclass check the values of its fields before its own ``__post_init__``.

    A value must be of its field's type and pass the check that the field declares.
    """
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    accepts = {name: _test_of(hints[name]) for name in fields}
    checks = {name: check for name, f in fields.items() if (check := _check_of(f, hints[name]))}
    init = cls.__init__
    _, *names = inspect.signature(init).parameters

    @functools.wraps(init)
    def checking(self: T, *args: Any, **options: Any) -> None:
        for name, value in {**dict(zip(names, args, strict=False)), **options}.items():
            if name in fields and not accepts[name](value):
                raise InputError(f"expected {name} to be {described(hints[name])}, got {value!r}")
            if name in checks and value is not None:
                checks[name](name, value)
        init(self, *args, **options)

    cls.__init__ = checking  # type: ignore[assignment]
    return cls


def _check_of(field: dataclasses.Field[Any], hint: Any) -> Check | None:
    """Return the check that a field declares; sizes that are integers are positive."""
    check: Check | None = field.metadata.get(_CHECK)
    kinds = {*get_args(hint)} - {type(None)} if _is_union(hint) else {hint}
    is_count = check is None and kinds == {int} and _SIZE in field.metadata
    return require_positive if is_count else check


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (types.UnionType, Union)


def _is_number(hint: Any) -> bool:
    if _is_union(hint):
        return {*get_args(hint)} - {type(None), jax.Array} == {float}
    return hint is float


def with_sizes(thing: T, **sizes: Any) -> T:
    """Fill in the ``size`` fields that a configurable has; other sizes are ignored."""
    known = {f.name for f in dataclasses.fields(thing) if _SIZE in f.metadata}  # type: ignore[arg-type]
    changes = {name: value for name, value in sizes.items() if name in known}
    return dataclasses.replace(thing, **changes)  # type: ignore[type-var]


def options(cls: Any) -> list[dataclasses.Field[Any]]:
    """List the fields of a configurable class or instance that a user may set: all but sizes."""
    return [f for f in dataclasses.fields(cls) if f.init and _SIZE not in f.metadata]


def name_of(cls: type) -> str:
    """Spell a class's name as options and files do: ``DanskinLissa`` → ``danskin_lissa``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()


def registry(*classes: type[T]) -> dict[str, type[T]]:
    """Map the names of classes to the classes."""
    return {name_of(cls): cls for cls in classes}


def import_object(place: str, expected: str) -> Any:
    """Import what MODULE:NAME names; the working folder is searched too.

    Raises:
        InputError: If the module cannot be imported or lacks the object.
    """
    module, _, name = place.partition(":")
    require(bool(name) and all(module.split(".")), f"{expected} as MODULE:NAME", place)
    if "" not in sys.path:
        sys.path.insert(0, "")
    with own_code(f"{expected} at {place}"):
        return getattr(importlib.import_module(module), name)


def import_extra(module: str, extra: str, user: str) -> Any:
    """Import a module that an extra of rlreps installs.

    Raises:
        InputError: If the package is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise InputError(
            f'expected the package {package} for {user}, got none: pip install "rlreps[{extra}]"'
        ) from error


def as_json(value: Any) -> Any:
    """Convert a configuration to plain JSON values.

    Dataclasses become objects of their fields. A configurable (a registered pytree with options)
    stores its class's name under ``name`` instead of its sizes.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: as_json(getattr(value, f.name)) for f in options(value)}
        # A registered pytree is a node, not a leaf.
        named = not jax.tree_util.all_leaves([value])
        return {"name": name_of(type(value)), **fields} if named else fields
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value


def from_json(
    cls: type[T], stored: Mapping[str, Any], classes: Mapping[str, type] | None = None
) -> T:
    """Rebuild a dataclass from the result of ``as_json``.

    Args:
        cls: The dataclass. Fields that are not stored keep their defaults.
        stored: JSON values.
        classes: Name → class of the configurables among its fields.

    Raises:
        InputError: For fields that the class does not have, or values that it refuses.
    """
    hints = get_type_hints(cls)

    def value(name: str, found: Any) -> Any:
        if isinstance(found, Mapping):
            if classes is not None and found.get("name") in classes:
                rest = {key: item for key, item in found.items() if key != "name"}
                return from_json(classes[found["name"]], rest, classes)
            hint = hints.get(name)
            kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)]
            known = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
            if len(known) == 1:
                return from_json(known[0], found, classes)
        plain = tuple(found) if isinstance(found, list) else found
        if not _test_of(hints.get(name))(plain):
            expected = f"{name} of {cls.__name__} to be {described(hints[name])}"
            raise InputError(f"expected {expected}, got {plain!r}")
        return plain

    known = [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
    other = [name for name in stored if name not in known]
    expected = f"the fields {', '.join(known)} of {cls.__name__}"
    require(not other, expected, ", ".join(other))
    try:
        return cls(**{name: value(name, found) for name, found in stored.items()})
    except InputError:
        raise
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"expected the fields of {cls.__name__}, got {error}") from error


def _test_of(hint: Any) -> Callable[[Any], bool]:
    """Return the function that tells whether a value is of a type.

    Types are those of JSON, paths, dataclasses and ``abc.ABC``s; others accept everything. NumPy's
    numbers count as numbers. A float may also be an array of numbers or a tracer, since a sweep
    varies it; a path may be a string.
    """
    if hint in _TESTS:  # Before classes: Path counts as a subclass of abc.ABC, by os.PathLike.
        return _TESTS[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _test_of(inner[0])
    if _is_union(hint):
        tests = [_test_of(each) for each in inner]
        return lambda value: any(test(value) for test in tests)
    if origin is Literal:
        # Without the types, True would pass for 1.
        return lambda value: (_is_integer(value) or isinstance(value, str)) and value in inner
    if origin is tuple:
        tests = [_test_of(each) for each in inner if each is not ...]
        if inner[-1:] == (...,):
            return lambda value: isinstance(value, tuple) and all(map(tests[0], value))
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(tests)
            and all(test(each) for test, each in zip(tests, value, strict=True))
        )
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, abc.ABC)):
        return lambda value: isinstance(value, hint)
    return lambda value: True


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    if isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.integer, jnp.floating))
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


_TESTS: dict[Any, Callable[[Any], bool]] = {
    int: _is_integer,
    float: _is_real,
    bool: lambda value: isinstance(value, bool | np.bool_),
    str: lambda value: isinstance(value, str),
    Path: lambda value: isinstance(value, str | Path),  # JSON holds strings.
    type(None): lambda value: value is None,
}

_DESCRIPTIONS = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "truth values"),
    str: ("a string", "strings"),
    Path: ("a path", "paths"),
    type(None): ("None", "None"),
}
"""Type → description of one value and of several values."""


def described(hint: Any) -> str:
    """Describe the values of a type for a message, such as "an integer or None"."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return described(inner[0])
    if _is_union(hint):
        return " or ".join(map(described, inner))
    if origin is Literal:
        return f"one of {', '.join(sorted(map(str, inner)))}"
    if origin is tuple:
        number = "" if inner[-1] is ... else f"{len(inner)} "
        each = inner[0] if get_origin(inner[0]) is not Annotated else get_args(inner[0])[0]
        return f"a tuple of {number}{_DESCRIPTIONS.get(each, ('', 'values'))[1]}"
    return _DESCRIPTIONS[hint][0] if hint in _DESCRIPTIONS else f"of type {hint.__name__}"
