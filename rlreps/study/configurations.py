"""Configurations of experiments: nested fields replaced, and differences from a paper's."""

import dataclasses
from collections.abc import Collection
from typing import Any, TypeVar

from rlreps.config import as_json
from rlreps.errors import require

Config = TypeVar("Config")


def replace_nested(config: Config, **changes: Any) -> Config:
    """Replace fields of a configuration and of the configurations nested in it.

    Args:
        config: A dataclass; configurations in its fields are searched, lists are not.
        **changes: Field → value. A field of the configuration itself takes precedence over a nested
            one.

    Raises:
        InputError: For an unknown field, or one that several nested configurations have.
    """
    fields = dataclasses.fields(config)  # type: ignore[arg-type]
    parts = {each.name: getattr(config, each.name) for each in fields}
    found = {name: value for name, value in changes.items() if name in parts}
    within: dict[str, dict[str, Any]] = {}
    for name in changes.keys() - parts.keys():
        having = [part for part, value in parts.items() if _has(found.get(part, value), name)]
        require(len(having) == 1, f"one part of {type(config).__name__} with {name}", having)
        within.setdefault(having[0], {})[name] = changes[name]
    for part, inner in within.items():
        found[part] = replace_nested(found.get(part, parts[part]), **inner)
    return dataclasses.replace(config, **found)  # type: ignore[type-var]


def _has(value: Any, name: str) -> bool:
    """Return whether a configuration, or one nested in it, has a field."""
    if not dataclasses.is_dataclass(value):
        return False
    fields = {field.name for field in dataclasses.fields(value)}
    return name in fields or any(_has(getattr(value, each), name) for each in fields)


def flatten_json(value: Any, path: str = "") -> dict[str, Any]:
    """List the leaves of JSON values by their dotted paths.

    A list is a leaf unless it holds mappings; the path of a mapping in a list includes its index.
    """
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    above = f"{path}." if path else ""
    parts = (flatten_json(each, f"{above}{name}") for name, each in value.items())
    return {inner: leaf for part in parts for inner, leaf in part.items()}


def scalars(value: Any) -> set[Any]:
    """Return every text, number and truth value in JSON values."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return {each for part in inner for each in scalars(part)}
    return {value}


def list_changed_fields(
    config: Any, paper: Any, free: Collection[str] = ()
) -> dict[str, tuple[object, object]]:
    """List the fields in which a configuration differs from the paper's.

    Args:
        config: The configuration.
        paper: The paper's configuration.
        free: Fields to leave out, with everything below them, dotted as in ``config.json``.

    Returns:
        Dotted path of a field → its values in the paper's configuration and in this one; None
        stands for a configuration without the field.
    """
    theirs, ours = flatten_json(as_json(paper)), flatten_json(as_json(config))
    return {
        path: (theirs.get(path), ours.get(path))
        for path in {**theirs, **ours}
        if theirs.get(path) != ours.get(path)
        and not any(f"{path}.".startswith(f"{each}.") for each in free)
    }


def follows(config: Any, paper: Any, free: Collection[str] = ()) -> bool:
    """Return whether a configuration equals the paper's except for free fields.

    Only such a configuration may judge a paper's statements. A free field does not change the
    result, or the paper does not specify it.
    """
    return not list_changed_fields(config, paper, free)
