"""Results of our own runs that the package includes, for comparisons without training."""

import dataclasses
import functools
import gzip
import importlib.resources
from collections.abc import Sequence
from typing import Any

from rlreps.config import as_json
from rlreps.files import parse_json


@functools.cache
def read_released(experiment: str) -> dict[str, Any]:
    """Read the laptop preset's ``config``, and what its ``cells`` measured, by name.

    Cells have no seconds: they would be those of another machine.
    """
    file = importlib.resources.files("rlreps.data") / f"{experiment}.json.gz"
    found: dict[str, Any] = parse_json(gzip.decompress(file.read_bytes()), file.name)
    return found


def released_rest(
    experiment: str, config: Any, field: str, whole: Sequence[Any]
) -> tuple[Any, ...]:
    """List the released contestants that a run lacks, if it has the settings of the release.

    Args:
        experiment: Its name.
        config: The run's configuration.
        field: Its field of contestants.
        whole: All released contestants.
    """
    lacking = tuple(each for each in whole if each not in getattr(config, field))
    if not lacking:
        return ()
    given = as_json(dataclasses.replace(config, **{field: whole, "objective_digest": None}))
    return lacking if given == read_released(experiment)["config"] else ()
