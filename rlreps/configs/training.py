"""Configurations of encoders, optimizers and training runs."""

import dataclasses
import math
from typing import Annotated, Literal, get_args

import tyro

from rlreps.config import with_sizes
from rlreps.configs.flags import objective_from_flags
from rlreps.errors import require, require_choice, require_positive
from rlreps.losses import LargeBatch, Objective

EncoderName = Literal["cosine", "fourier_mlp", "mlp", "tabular"]
OptimizerName = Literal["adam", "rmsprop", "sgd"]
ScheduleName = Literal["constant", "cosine", "linear"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """A state encoder φ: S → R^d.

    Attributes:
        name: ``mlp`` (coordinates in), ``fourier_mlp`` (cosines of the coordinates beside them),
            ``cosine`` (a linear map of products of cosines) or ``tabular`` (one free feature vector
            per state).
        hidden: Widths of the hidden ReLU layers.
        frequencies: Cosines per coordinate, cos(jπx) for j = 1 … frequencies
            (``fourier_mlp``, ``cosine``).
    """

    name: Annotated[EncoderName, tyro.conf.arg(name="encoder")] = "fourier_mlp"
    hidden: tuple[int, ...] = (256, 256)
    frequencies: int = 8

    def __post_init__(self) -> None:
        require_choice("encoder", self.name, get_args(EncoderName))
        for width in self.hidden:
            require_positive("hidden layer widths", width)
        require_positive("frequencies", self.frequencies)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The encoder's optimizer.

    Attributes:
        name: An optax optimizer.
        learning_rate: Its (initial) learning rate.
        schedule: ``constant``, or ``cosine`` or ``linear`` decay to zero over the run.
    """

    name: Annotated[OptimizerName, tyro.conf.arg(name="optimizer")] = "adam"
    learning_rate: float = 2e-3
    schedule: ScheduleName = "linear"

    def __post_init__(self) -> None:
        require_choice("optimizer", self.name, get_args(OptimizerName))
        require_choice("schedule", self.schedule, get_args(ScheduleName))
        require(
            self.learning_rate > 0.0 and math.isfinite(self.learning_rate),
            "a finite learning_rate > 0",
            self.learning_rate,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One training run: an encoder trained on entries of a stored matrix.

    The defaults are the recommended recipe: what a network reaches soonest (README, Recipes).

    Attributes:
        encoder: The encoder.
        objective: The objective.
        optimizer: The optimizer.
        num_features: d, features of the encoder.
        steps: Updates.
        rows: b, states drawn per update, all roles together.
        tasks: t, columns drawn per update.
        seed: Seed of the first run.
        num_seeds: Independent runs trained together, seeds ``seed`` … ``seed + num_seeds - 1``.
        evaluate_every: Updates between evaluations against the ground truth.
        checkpoint_every: Updates between checkpoints; a multiple of ``evaluate_every``.
    """

    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    objective: Annotated[Objective, tyro.conf.arg(constructor=objective_from_flags)] = (
        dataclasses.field(default_factory=lambda: LargeBatch(precondition=1e-2, leave_one_out=True))
    )
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    num_features: int = 10
    steps: int = 1000
    rows: int = 1000
    tasks: int = 1000
    seed: int = 0
    num_seeds: int = 1
    evaluate_every: int = 100
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        for name in ("num_features", "steps", "rows", "tasks", "num_seeds", "evaluate_every"):
            require_positive(name, getattr(self, name))
        require(
            self.checkpoint_every >= 1 and self.checkpoint_every % self.evaluate_every == 0,
            f"checkpoint_every to be a multiple of evaluate_every ({self.evaluate_every})",
            self.checkpoint_every,
        )
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        with_sizes(self.objective, num_features=self.num_features).require_rows(self.rows)
