"""Frozen, validated configurations; the command line is generated from them.

On the command line, nested fields are flags of their own (``--learning-rate``), and a nested name
takes the name of what it names (``--encoder``, ``--method``, ``--optimizer``).

Each name here (an encoder, an optimizer) is a key of the one dictionary that builds it; a test
holds the two lists together.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from rlreps import config
from rlreps.config import as_json
from rlreps.configs.training import (
    EncoderConfig,
    EncoderName,
    OptimizerConfig,
    OptimizerName,
    ScheduleName,
    TrainingConfig,
)
from rlreps.losses import OBJECTIVES

__all__ = [
    "EncoderConfig",
    "EncoderName",
    "OptimizerConfig",
    "OptimizerName",
    "ScheduleName",
    "TrainingConfig",
    "as_json",
    "from_json",
]

Config = TypeVar("Config")


def from_json(kind: type[Config], stored: Mapping[str, Any]) -> Config:
    """Rebuild a configuration from what ``as_json`` made of it.

    Raises:
        InputError: For fields that the class does not have, or values that it refuses.
    """
    return config.from_json(kind, stored, OBJECTIVES)
