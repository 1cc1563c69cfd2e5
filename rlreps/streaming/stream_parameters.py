"""What ``StreamingPCA`` is asked for, checked."""

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlreps.errors import require, require_choice
from rlreps.streaming.missing import require_imputing
from rlreps.streaming.registry import RULES
from rlreps.streaming.stream_model import StreamSetup


def checked_setup(parameters: Mapping[str, Any], features: int, most: int) -> StreamSetup:
    """The setup of a stream.

    Args:
        parameters: All of the estimator's, by name.
        features: Of a row.
        most: Components where ``n_components`` is None.

    Raises:
        InputError: For the first parameter that makes no sense.
    """
    rule, missing = parameters["rule"], parameters["missing"]
    require_choice("rule", rule, tuple(RULES))
    require(isinstance(missing, bool | np.bool_), "missing to be True or False", missing)
    if missing:
        require_imputing(rule)
    for name in ("batch_size", "passes"):
        value = parameters[name]
        require(_is_whole(value) and value >= 1, f"a whole {name} >= 1", value)
    power, rate = parameters["power"], parameters["learning_rate"]
    require(_is_finite(power) and power >= 0.0, "a finite power >= 0", power)
    sensible = rate is None or (_is_finite(rate) and rate > 0.0)
    require(sensible, "a finite learning_rate > 0 or None", rate)
    k = most if parameters["n_components"] is None else parameters["n_components"]
    fits = _is_whole(k) and 1 <= k <= features
    require(fits, f"a whole n_components from 1 to {features}", k)
    least = RULES[rule].least_rows_per_update(int(k))
    require(
        parameters["batch_size"] >= least,
        f"batch_size >= {least} for {int(k)} components by {rule}, or a rule that learns from "
        "single rows",
        parameters["batch_size"],
    )
    return StreamSetup(
        rule,
        features,
        int(k),
        float(power),
        int(parameters["batch_size"]),
        bool(missing),
    )


def require_rows(setup: StreamSetup, count: int) -> None:
    """Raises an ``InputError`` unless so many rows are enough for one update."""
    least = setup.least_rows_per_update
    expected = f"at least {least} rows at once for {setup.num_components} components by"
    require(count >= least, f"{expected} {setup.rule}", count)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
