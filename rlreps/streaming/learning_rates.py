"""Learning rates over time."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from rlreps.config import configurable, interval

Schedule = Callable[[Array], Array]
"""Number of updates, [] (int32) → learning rate, []."""

LearningRate = float | Array | Schedule
"""A fixed learning rate, [], or a schedule."""


@configurable
@dataclasses.dataclass(frozen=True)
class PowerDecay:
    """The schedule η_t = η0 / t^γ at the t-th update, t = 1, 2, … (Amid & Warmuth 2020).

    Attributes:
        initial: η0 > 0, []; an array is not checked.
        power: γ ≥ 0; 0 keeps the rate constant.
    """

    initial: float | Array = interval("(0, inf)")
    power: float = interval("[0, inf)")

    def __call__(self, step: Array) -> Array:
        """Return the learning rate of the update that follows ``step`` updates, []."""
        time = step.astype(jnp.result_type(float)) + 1.0
        decayed: Array = jnp.asarray(self.initial, time.dtype) * time**-self.power
        return decayed
