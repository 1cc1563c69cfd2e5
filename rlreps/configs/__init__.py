"""Frozen, validated configurations; the command line is generated from them.

On the command line, nested fields are flags of their own (``--learning-rate``), and a nested name
takes the name of what it names (``--encoder``, ``--method``, ``--optimizer``).

This package imports neither JAX nor anything that does, so that ``rlreps --help`` answers at once.
Each name here (an encoder, a method, an optimizer) is a key of the one dictionary that builds it;
a test holds the two lists together.
"""

from rlreps.configs.json_values import as_json, from_json
from rlreps.configs.training import (
    EncoderConfig,
    EncoderName,
    FeatureNormName,
    MethodName,
    ObjectiveConfig,
    OptimizerConfig,
    OptimizerName,
    ScheduleName,
    TrainingConfig,
)

__all__ = [
    "EncoderConfig",
    "EncoderName",
    "FeatureNormName",
    "MethodName",
    "ObjectiveConfig",
    "OptimizerConfig",
    "OptimizerName",
    "ScheduleName",
    "TrainingConfig",
    "as_json",
    "from_json",
]
