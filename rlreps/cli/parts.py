"""What commands of several modules share."""

import json
from typing import Annotated, Any, TypeAlias

import tyro

Switch: TypeAlias = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""A flag that is given or not, without a negation."""


def print_json(values: Any) -> None:
    """Prints JSON values on standard output."""
    print(json.dumps(values, indent=2, allow_nan=False))
