"""Configuration, presets and recipes of the time-to-distance experiment."""

import dataclasses

from rlreps.encoders import Cosine, Encoder, FourierMLP
from rlreps.errors import require, require_positive
from rlreps.losses import DanskinChunked, LargeBatch, Objective
from rlreps.successor.measure import SuccessorMeasure, Transition
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig


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

    successor: SuccessorMeasure = dataclasses.field(default_factory=lambda: Transition())
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


_LARGE_BATCH = LargeBatch(precondition=1e-2, leave_one_out=True)
_DANSKIN = DanskinChunked()


def _training(
    d: int,
    *,
    objective: Objective,
    encoder: Encoder,
    learning_rate: float,
    steps: int,
    rows: int = 1000,
    tasks: int = 1000,
) -> TrainingConfig:
    """One run of twenty measurements."""
    every = steps // 20
    return TrainingConfig(
        encoder=encoder,
        objective=objective,
        optimizer=Optimizer(learning_rate=learning_rate, schedule="linear"),
        num_features=d,
        steps=20 * every,
        rows=rows,
        tasks=tasks,
        evaluate_every=every,
        checkpoint_every=10 * every,
    )


def _cosine(frequencies: int) -> Encoder:
    return Cosine(frequencies=frequencies)


def _network(frequencies: int) -> Encoder:
    return FourierMLP(hidden=(256, 256), frequencies=frequencies)


# Found by a search on the refinement-1 transition matrix; every trial is in
# data/recipe-search.csv. Steps are such that the first two recipes train for about as long on two
# CPU cores.
_COSINE_LARGE_BATCH = Recipe(
    name="large batch, cosines",
    trainings=(
        _training(2, objective=_LARGE_BATCH, encoder=_cosine(19), learning_rate=0.03, steps=600),
        _training(5, objective=_LARGE_BATCH, encoder=_cosine(19), learning_rate=0.03, steps=600),
        _training(10, objective=_LARGE_BATCH, encoder=_cosine(19), learning_rate=0.03, steps=1000),
        _training(20, objective=_LARGE_BATCH, encoder=_cosine(23), learning_rate=0.03, steps=2200),
        _training(50, objective=_LARGE_BATCH, encoder=_cosine(31), learning_rate=0.1, steps=5400),
        _training(
            100,
            objective=_LARGE_BATCH,
            encoder=_cosine(31),
            learning_rate=0.1,
            steps=3500,
            rows=1500,
        ),
    ),
)
_COSINE_DANSKIN = Recipe(
    name="Danskin-LISSA in chunks, cosines",
    trainings=(
        _training(2, objective=_DANSKIN, encoder=_cosine(19), learning_rate=0.03, steps=540),
        _training(5, objective=_DANSKIN, encoder=_cosine(19), learning_rate=0.03, steps=540),
        _training(10, objective=_DANSKIN, encoder=_cosine(19), learning_rate=0.03, steps=900),
        _training(
            20, objective=_DANSKIN, encoder=_cosine(23), learning_rate=0.01, steps=1000, rows=2000
        ),
        _training(
            50, objective=_DANSKIN, encoder=_cosine(31), learning_rate=0.05, steps=1340, rows=4000
        ),
        _training(
            100, objective=_DANSKIN, encoder=_cosine(31), learning_rate=0.03, steps=1360, rows=4000
        ),
    ),
)
_NETWORK_LARGE_BATCH = Recipe(
    name="large batch, network",
    trainings=tuple(
        _training(
            d, objective=_LARGE_BATCH, encoder=_network(cosines), learning_rate=2e-3, steps=steps
        )
        for d, cosines, steps in (
            (2, 8, 600),
            (5, 8, 600),
            (10, 8, 1000),
            (20, 8, 1500),
            (50, 16, 4000),
            (100, 16, 4000),
        )
    ),
)
_RECIPES = (_COSINE_LARGE_BATCH, _COSINE_DANSKIN, _NETWORK_LARGE_BATCH)


def _smaller(recipe: Recipe) -> Recipe:
    """A recipe at d = 2 and 10 with few updates on a small grid."""
    chosen = [training for training in recipe.trainings if training.num_features in (2, 10)]
    return dataclasses.replace(
        recipe,
        trainings=tuple(
            dataclasses.replace(
                training, steps=100, rows=240, tasks=128, evaluate_every=20, checkpoint_every=100
            )
            for training in chosen
        ),
    )


PRESETS: dict[str, PuddleWorldFastConfig] = {
    "smoke": PuddleWorldFastConfig(
        successor=Transition(bins=20, points=256),
        recipes=tuple(_smaller(recipe) for recipe in _RECIPES),
        num_seeds=1,
        goals=(),
    ),
    "laptop": PuddleWorldFastConfig(recipes=_RECIPES, num_seeds=2),
    "paper": PuddleWorldFastConfig(recipes=_RECIPES, num_seeds=10),
}
"""Preset name → configuration."""
