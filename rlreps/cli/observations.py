"""The options that name what an agent sees of a PuddleWorld."""

from typing import Any

from rlreps.cli.options import Choice
from rlreps.envs.observations import OBSERVATIONS, Observation

OBSERVED: dict[Any, Choice] = {Observation | None: Choice("observation", OBSERVATIONS)}
OBSERVED_NAMES = {
    **{f"Code.{name}": f"code_{name}" for name in ("size", "bins", "seed")},
    "Image.size": "image_size",
}
