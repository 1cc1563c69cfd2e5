"""The one dictionary from an optimizer's name to an optax transformation."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import optax
from jax import Array

from rlreps.configs import OptimizerConfig
from rlreps.errors import require_positive

Schedule = Callable[[Any], Array]
Params = TypeVar("Params")

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


def optimizer_step(
    optimizer: optax.GradientTransformation, gradients: Params, state: Any, params: Params
) -> tuple[Params, Any]:
    """One optimizer step: (new parameters, new optimizer state)."""
    # Optax mixes integer counts with floats, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state
