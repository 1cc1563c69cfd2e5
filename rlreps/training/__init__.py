"""Train encoders: one update, vmapped populations, the host loop and evaluation."""

from rlreps.training.optimizers import Optimizer, RMSProp
from rlreps.training.population import Evaluate, TrainingResult, stack, train, train_population
from rlreps.training.update import Learner

__all__ = [
    "Evaluate",
    "Learner",
    "Optimizer",
    "RMSProp",
    "TrainingResult",
    "stack",
    "train",
    "train_population",
]
