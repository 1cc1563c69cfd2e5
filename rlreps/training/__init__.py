"""Train encoders: one update, vmapped populations, the host loop and evaluation."""

from rlreps.training.population import Evaluate, TrainingResult, train, train_members

__all__ = ["Evaluate", "TrainingResult", "train", "train_members"]
