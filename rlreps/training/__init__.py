"""Train encoders: one update, vmapped populations, the host loop and evaluation."""

from rlreps.training.evaluation import evaluate_features
from rlreps.training.loop import Finished
from rlreps.training.optimizers import SCHEDULES, GivenOptimizer, Optimizer, RMSProp, Schedule
from rlreps.training.population import Evaluate, TrainingResult, stack, train, train_population
from rlreps.training.update import (
    ChunkReport,
    Learner,
    TrainState,
    Updates,
    all_finite,
    zero_unless,
)

__all__ = [
    "SCHEDULES",
    "ChunkReport",
    "Evaluate",
    "Finished",
    "GivenOptimizer",
    "Learner",
    "Optimizer",
    "RMSProp",
    "Schedule",
    "TrainState",
    "TrainingResult",
    "Updates",
    "all_finite",
    "evaluate_features",
    "stack",
    "train",
    "train_population",
    "zero_unless",
]
