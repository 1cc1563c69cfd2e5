"""Learning rates over time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.errors import require

Schedule = Callable[[Array], Array]
"""Updates made, [] (int32) → learning rate, []."""

LearningRate = float | Array | Schedule
"""A fixed learning rate, [], or a schedule of it."""


def power_decay(initial: float | Array, power: float) -> Schedule:
    """η_t = η0 / t^γ at the t-th update, t = 1, 2, … (Amid & Warmuth 2020).

    Args:
        initial: η0 > 0, []; an array is not checked.
        power: γ ≥ 0; 0 keeps the rate.

    Returns:
        The schedule.

    Raises:
        InputError: For a number η0 or γ outside its range.
    """
    _require_positive_rate(initial)
    require(power >= 0.0, "power >= 0", power)

    def rate(step: Array) -> Array:
        time = step.astype(jnp.result_type(float)) + 1.0
        decayed: Array = jnp.asarray(initial, time.dtype) * time**-power
        return decayed

    return rate


def require_learning_rate(learning_rate: LearningRate) -> None:
    """Raises an ``InputError`` for a fixed rate that is not positive; arrays are not checked."""
    if not callable(learning_rate):
        _require_positive_rate(learning_rate)


def learning_rate_at(learning_rate: LearningRate, step: Array, dtype: jnp.dtype) -> Array:
    """The learning rate of the update that ``step`` updates came before, []."""
    rate = learning_rate(step) if callable(learning_rate) else learning_rate
    return jnp.asarray(rate, dtype)


def _require_positive_rate(rate: float | Array) -> None:
    if not isinstance(rate, jax.Array):
        require(rate > 0.0, "learning_rate > 0", rate)
