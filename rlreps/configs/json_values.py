"""Configurations as JSON."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from rlreps.errors import InputError

Config = TypeVar("Config")


def as_json(config: Any) -> dict[str, Any]:
    """A configuration as plain JSON values (paths as strings, tuples as lists)."""

    def plain(value: Any) -> Any:
        if isinstance(value, Path):
            return str(value)
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    result: dict[str, Any] = plain(dataclasses.asdict(config))
    return result


def from_json(kind: type[Config], stored: Mapping[str, Any]) -> Config:
    """A configuration from what ``as_json`` made of it.

    Args:
        kind: Its class, a dataclass; fields that are not there keep their defaults.
        stored: JSON values.

    Raises:
        InputError: For fields that the class does not have, or values that it does not take.
    """
    hints = get_type_hints(kind)

    def value(name: str, found: Any) -> Any:
        if dataclasses.is_dataclass(hints.get(name)):
            return from_json(hints[name], found)
        return tuple(found) if isinstance(found, list) else found

    try:
        return kind(**{name: value(name, found) for name, found in stored.items()})
    except TypeError as error:
        raise InputError(f"expected the fields of a {kind.__name__}, got {error}") from error
