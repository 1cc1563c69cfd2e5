"""Results of our own runs that the package includes, for comparisons without training."""

import functools
import gzip
import importlib.resources
from typing import Any

from rlreps.files import parse_json


@functools.cache
def read_released(experiment: str) -> dict[str, Any]:
    """Read the laptop preset's ``config``, and what its ``cells`` measured, by name.

    Cells have no seconds: they would be those of another machine.
    """
    file = importlib.resources.files("rlreps.data") / f"{experiment}.json.gz"
    found: dict[str, Any] = parse_json(gzip.decompress(file.read_bytes()), file.name)
    return found
