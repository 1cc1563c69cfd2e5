"""Train encoders: one update, vmapped populations, the host loop and evaluation."""

from rlreps.training.loop import Evaluate, TrainingResult, train, train_members

__all__ = ["Evaluate", "TrainingResult", "train", "train_members"]
