"""Configuration, presets and recipes of the time-to-distance experiment.

Like ``rlreps.configs``, this module does not import JAX.
"""

import dataclasses

from rlreps.configs import (
    SuccessorConfig,
    TrainingConfig,
)
from rlreps.validation import require, require_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """A way to train, for every d.

    Attributes:
        name: What figures and tables call it.
        trainings: One run for each d.
    """

    name: str
    trainings: tuple[TrainingConfig, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """A distance to reach in a time.

    Attributes:
        d: Number of features.
        distance: Subspace distance to reach, as a mean over seeds.
        seconds: Seconds of training, without compilation and evaluation.
    """

    d: int
    distance: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PuddleWorldFastConfig:
    """Every recipe at every d, one seed at a time.

    Attributes:
        successor: The ground truth.
        recipes: The winner first, then Danskin-LISSA's best, then what they are compared with.
        num_seeds: Seeds 0 … num_seeds - 1 of each.
        goals: What the winner is to reach.
        factor: How many times the winner's distance Danskin-LISSA's may be at equal time.
    """

    successor: SuccessorConfig = dataclasses.field(
        default_factory=lambda: SuccessorConfig(method="transition")
    )
    recipes: tuple[Recipe, ...]
    num_seeds: int
    goals: tuple[Goal, ...] = (
        Goal(d=10, distance=0.005, seconds=30.0),
        Goal(d=50, distance=0.03, seconds=120.0),
    )
    factor: float = 3.0

    def __post_init__(self) -> None:
        require_positive("num_seeds", self.num_seeds)
        require(len(self.recipes) >= 2, "at least two recipes", len(self.recipes))
        for recipe in self.recipes:
            found = tuple(training.num_features for training in recipe.trainings)
            require(found == self.dimensions, f"recipes for d = {self.dimensions}", found)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """d, the same for every recipe."""
        return tuple(training.num_features for training in self.recipes[0].trainings)
