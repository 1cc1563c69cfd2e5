"""Configurations as JSON."""

import dataclasses
from pathlib import Path
from typing import Any


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
