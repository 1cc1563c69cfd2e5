"""The numbers of a training run that runs of one compiled program may differ in."""

import dataclasses
from typing import Any, NamedTuple

from jax import Array

from rlreps.losses import DanskinLissa, Explicit, Objective

HYPERPARAMETER_FIELDS = (
    "optimizer.learning_rate",
    "objective.kappa0",
    "objective.weight_learning_rate",
)
"""Fields of a ``TrainingConfig`` that decide neither a shape nor what is computed."""


class Hyperparameters(NamedTuple):
    """Numbers, or arrays of one number for each of several runs, that a learner is built from.

    Attributes:
        learning_rate: The encoder's (initial) learning rate.
        kappa0: κ0 of LISSA's step size; an array is not checked to lie in (0, 2).
        weight_learning_rate: Learning rate of ``explicit``'s stored weights.
    """

    learning_rate: float | Array
    kappa0: float | Array
    weight_learning_rate: float | Array

    @classmethod
    def of(cls, objective: Objective, learning_rate: float) -> "Hyperparameters":
        """Those of an objective beside the encoder's learning rate."""
        kappa0 = objective.kappa0 if isinstance(objective, DanskinLissa) else 1.9
        weight_rate = objective.weight_learning_rate if isinstance(objective, Explicit) else None
        return cls(learning_rate, kappa0, learning_rate if weight_rate is None else weight_rate)

    def of_objective(self, objective: Objective) -> Objective:
        """Return the objective with these numbers where it has them."""
        kappa0: Any = self.kappa0
        weight_rate: Any = self.weight_learning_rate
        if isinstance(objective, DanskinLissa):
            return dataclasses.replace(objective, kappa0=kappa0)
        if isinstance(objective, Explicit):
            return dataclasses.replace(objective, weight_learning_rate=weight_rate)
        return objective
