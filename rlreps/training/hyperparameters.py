"""The numbers of a training run that runs of one compiled program may differ in."""

from typing import NamedTuple

from jax import Array

from rlreps.configs import ObjectiveConfig

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
    def of(cls, objective: ObjectiveConfig, learning_rate: float) -> "Hyperparameters":
        """Those of an objective beside the encoder's learning rate."""
        weight_rate = objective.weight_learning_rate
        return cls(
            learning_rate, objective.kappa0, learning_rate if weight_rate is None else weight_rate
        )
