"""Optimizers as frozen dataclasses whose learning rate is a number that a sweep can vary."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import optax

from rlreps.config import configurable, interval, size

OptimizerName = Literal["adam", "rmsprop", "sgd"]
Schedule = Literal["constant", "cosine", "linear"]

SCHEDULES: dict[str, Callable[[Any, int], optax.Schedule]] = {
    "constant": lambda rate, steps: optax.constant_schedule(rate),
    "cosine": lambda rate, steps: optax.cosine_decay_schedule(rate, steps),
    "linear": lambda rate, steps: optax.linear_schedule(rate, 0.0, steps),
}
"""Schedule name → schedule for (initial learning rate, updates in the run)."""


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optax optimizer with a learning-rate schedule.

    Attributes:
        name: ``adam``, ``rmsprop`` or ``sgd``.
        learning_rate: The (initial) learning rate.
        schedule: ``constant``, or ``cosine`` or ``linear`` decay to zero over the run.
        steps: Number of updates in the run, which ``train`` fills in. None is unknown: the learning
            rate stays constant, whatever the schedule.
    """

    name: OptimizerName = "adam"
    learning_rate: float = interval("(0, inf)", 2e-3)
    schedule: Schedule = "linear"
    steps: int | None = size(None)

    @property
    def rate(self) -> optax.Schedule:
        """The learning rate of each update."""
        schedule = "constant" if self.steps is None else self.schedule
        return SCHEDULES[schedule](self.learning_rate, self.steps or 0)

    @property
    def transformation(self) -> optax.GradientTransformation:
        """The optax transformation."""
        make: Callable[[optax.Schedule], optax.GradientTransformation] = getattr(optax, self.name)
        return make(self.rate)


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class RMSProp(Optimizer):
    """RMSProp with TensorFlow 1's constants by default, and an average that starts at 1.

    Gradients g become g / sqrt(v + epsilon), where v is a moving average of g². optax's ``rmsprop``
    starts v at 0, so that its first step is (1 − decay)^(−1/2) times the learning rate.

    Attributes:
        decay: Decay of the average, in [0, 1).
        initial_scale: v before the first update.
        epsilon: Term added under the root.
    """

    name: Literal["rmsprop"] = "rmsprop"
    decay: float = interval("[0, 1)", 0.9, static=True)
    initial_scale: float = interval("[0, inf)", 1.0, static=True)
    epsilon: float = interval("(0, inf)", 1e-10, static=True)

    @property
    def transformation(self) -> optax.GradientTransformation:
        """The optax transformation."""
        return optax.rmsprop(
            self.rate,
            decay=self.decay,
            eps=self.epsilon,
            initial_scale=self.initial_scale,
        )


@configurable
@dataclasses.dataclass(frozen=True)
class GivenOptimizer:
    """An optax transformation of the user's own, without numbers that a sweep can vary.

    Attributes:
        transformation: The optax transformation.
    """

    transformation: optax.GradientTransformation
