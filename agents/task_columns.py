"""Task columns: what auxiliary tasks ask of the future.

Column k has a cumulant c_k, a function of observations, and a discount γ_k, both drawn once at the
start; it asks for ψ_k(s) = E Σ_{j≥0} γ_k^j c_k(S_j), S_0 = s, under the policies that filled the
replay. Columns of larger discounts are larger and count for more, as in the successor measure.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.agents.config import AuxiliaryConfig
from rlreps.agents.networks import as_inputs
from rlreps.cumulants import Cells, Cumulants, RandomFourier, RandomIndicators
from rlreps.errors import require

_MOST_DIMENSIONS = 3
"""Coordinates beyond which cells of a grid are too many to be visited."""


class ColumnParams(NamedTuple):
    """Columns.

    Attributes:
        cumulants: Parameters of the cumulants' family.
        discounts: γ, [t], each uniform over an interval.
    """

    cumulants: Any
    discounts: Array


class TaskColumns(NamedTuple):
    """A kind of task columns.

    Attributes:
        num_tasks: t.
        bounds: Between what the cumulants' values lie; the first is <= 0 and the second >= 0.
        init: key → columns.
        apply: (columns, observations [..., *observation]) → cumulants [..., t] (float32). Bytes are
            divided by 255, as the torso sees them.
    """

    num_tasks: int
    bounds: tuple[float, float]
    init: Callable[[Array], ColumnParams]
    apply: Callable[[ColumnParams, Array], Array]


def make_task_columns(config: AuxiliaryConfig, observation_shape: Sequence[int]) -> TaskColumns:
    """The task columns that a configuration names.

    Args:
        config: Their kind, number and discounts.
        observation_shape: Of one observation. Images are flattened for random networks and waves;
            ``cells`` divide vectors alone, each coordinate from 0 to 1.

    Raises:
        InputError: For ``cells`` of anything but vectors of at most three coordinates.
    """
    family, num_tasks, bounds = _family(config, tuple(observation_shape))
    rank = len(observation_shape)

    def init(key: Array) -> ColumnParams:
        cumulant_key, discount_key = jax.random.split(key)
        low, high = config.discount_low, config.discount_high
        discounts = jax.random.uniform(discount_key, (num_tasks,), jnp.float32, low, high)
        return ColumnParams(family.init(cumulant_key, num_tasks), discounts)

    def apply(params: ColumnParams, observations: Array) -> Array:
        leading = observations.shape[: observations.ndim - rank]
        flat = as_inputs(observations).reshape(*leading, -1)
        return family.apply(params.cumulants, flat)

    return TaskColumns(num_tasks, bounds, init, apply)


def _family(
    config: AuxiliaryConfig, shape: tuple[int, ...]
) -> tuple[Cumulants, int, tuple[float, float]]:
    """A family of cumulants, how many of them, and the bounds of their values."""
    size = math.prod(shape)
    if config.tasks == "cells":
        require(
            len(shape) == 1 and size <= _MOST_DIMENSIONS,
            f"observations that are vectors of at most {_MOST_DIMENSIONS} coordinates, for "
            "auxiliary tasks cells",
            f"shape {shape}",
        )
        cells = Cells(bins=config.cells_per_axis, num_inputs=size)
        return cells, cells.num_cells, (0.0, 1.0)
    if config.tasks == "random_indicators":
        return RandomIndicators(num_inputs=size), config.num_tasks, (0.0, 1.0)
    waves = RandomFourier(length_scale=config.length_scale, num_inputs=size)
    return waves, config.num_tasks, (-math.sqrt(2.0), math.sqrt(2.0))
