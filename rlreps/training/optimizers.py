"""The one dictionary from an optimizer's name to an optax transformation."""

from collections.abc import Callable
from typing import Any

import optax
from jax import Array

from rlreps.configs import OptimizerConfig
from rlreps.errors import require_positive
from rlreps.numerics import optimizer_step as optimizer_step

Schedule = Callable[[Any], Array]

OPTIMIZERS: dict[str, Callable[[Schedule], optax.GradientTransformation]] = {
    "adam": lambda schedule: optax.adam(schedule),
    "rmsprop": lambda schedule: optax.rmsprop(schedule),
    "sgd": lambda schedule: optax.sgd(schedule),
}
"""Optimizer name → transformation for a learning-rate schedule."""

SCHEDULES: dict[str, Callable[[Any, int], optax.Schedule]] = {
    "constant": lambda rate, steps: optax.constant_schedule(rate),
    "cosine": lambda rate, steps: optax.cosine_decay_schedule(rate, steps),
    "linear": lambda rate, steps: optax.linear_schedule(rate, 0.0, steps),
}
"""Schedule name → schedule for (initial learning rate, updates in the run)."""


def make_optimizer(
    config: OptimizerConfig, steps: int, *, learning_rate: float | Array | None = None
) -> optax.GradientTransformation:
    """The optimizer that a configuration names, scheduled over ``steps`` updates.

    Args:
        config: The configuration.
        steps: Updates of the run.
        learning_rate: Initial learning rate in place of the configuration's, [].

    Raises:
        InputError: If ``steps`` is below 1.
    """
    require_positive("steps", steps)
    rate = config.learning_rate if learning_rate is None else learning_rate
    schedule = SCHEDULES[config.schedule](rate, steps)
    return OPTIMIZERS[config.name](schedule)
