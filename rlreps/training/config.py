"""The configuration of a training run, and the update that it describes."""

import dataclasses
from typing import Literal, TypeAlias

from rlreps.config import checked, interval, positive, with_sizes
from rlreps.encoders import EVERY_ENCODER, Encoder, FourierMLP, Tabular
from rlreps.errors import require, require_memory
from rlreps.losses import OBJECTIVES, Explicit, LargeBatch, Objective
from rlreps.training.optimizers import Optimizer
from rlreps.training.update import Learner

METHODS: dict[str, type] = {**OBJECTIVES, **EVERY_ENCODER}
"""Name → class, for everything that a stored configuration can name."""

States: TypeAlias = Literal["centres", "uniform"]
"""Positions of the states that encoders see: the centres of cells, or anywhere inside cells."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One training run: an encoder trained on entries of a stored matrix.

    The defaults are the recommended recipe, with which networks learn fastest.

    Attributes:
        encoder: The encoder.
        objective: The objective.
        optimizer: The encoder's optimizer.
        num_features: d, number of features of the encoder.
        steps: Number of updates.
        rows: b, states drawn per update, which a method divides among its estimates.
        tasks: t, columns drawn per update.
        states: ``centres`` trains on the centres of the drawn cells; ``uniform`` trains on
            positions drawn uniformly inside the cells, that is over the whole square, with Ψ
            constant within a cell (Le Lan et al. 2023, Sec. 5.3). Evaluation is at the centres.
        seed: Seed of the first run.
        num_seeds: Independent runs trained together, seeds ``seed`` … ``seed + num_seeds - 1``.
        evaluate_every: Updates between evaluations against the ground truth.
        checkpoint_every: Updates between checkpoints, a multiple of ``evaluate_every``; None is the
            least multiple from 500 on. After one, those due within a second, or within 19 times as
            long as it took to write, are left out.
    """

    encoder: Encoder = dataclasses.field(default=FourierMLP())
    objective: Objective = dataclasses.field(
        default=LargeBatch(precondition=1e-2, leave_one_out=True)
    )
    optimizer: Optimizer = dataclasses.field(default=Optimizer())
    num_features: int = positive(10)
    steps: int = positive(1000)
    rows: int = positive(1000)
    tasks: int = positive(1000)
    states: States = "centres"
    seed: int = interval("[0, 2**31)", 0)
    num_seeds: int = positive(1, most=10**6)
    evaluate_every: int = positive(100)
    checkpoint_every: int | None = positive(None)

    def __post_init__(self) -> None:
        require(
            (self.checkpoint_every or 0) % self.evaluate_every == 0,
            f"checkpoint_every to be a multiple of evaluate_every ({self.evaluate_every})",
            self.checkpoint_every,
        )
        require_memory("batches of all seeds", 4 * self.rows * self.tasks * self.num_seeds)
        require(
            self.states == "centres" or not isinstance(self.encoder, Tabular),
            "an encoder of positions for states drawn inside their cells",
            self.encoder.name,
        )
        with_sizes(self.objective, num_features=self.num_features).require_rows(self.rows)

    @property
    def seeds(self) -> range:
        """The seeds of all runs."""
        return range(self.seed, self.seed + self.num_seeds)


def make_learner(
    config: TrainingConfig,
    *,
    num_inputs: int,
    num_states: int = 1,
    frame_shape: tuple[int, ...] = (),
    num_tasks: int | None = None,
    resets_diverged: bool = False,
) -> Learner:
    """Make the configured update for data of given sizes.

    Args:
        config: The run.
        num_inputs: Number of coordinates of a state.
        num_states: n, for a tabular encoder.
        frame_shape: Shape of what an encoder of frames sees.
        num_tasks: Number of columns of the matrix; None if the source is live.
        resets_diverged: Whether runs that diverge are set to zero.
    """
    rate, objective = config.optimizer.learning_rate, config.objective
    if isinstance(objective, Explicit) and objective.weight_learning_rate is None:
        # Runs with their own learning rates use the same program.
        objective = dataclasses.replace(objective, weight_learning_rate=rate)
    encoder = with_sizes(
        config.encoder,
        num_features=config.num_features,
        num_inputs=num_inputs,
        num_states=num_states,
        frame_shape=frame_shape,
    )
    return Learner(
        encoder=encoder,
        objective=with_sizes(
            objective,
            num_features=config.num_features,
            num_tasks=num_tasks,
            encoder=encoder,
            encoder_learning_rate=rate,
        ),
        optimizer=with_sizes(config.optimizer, steps=config.steps),
        rows=config.rows,
        tasks=config.tasks,
        resets_diverged=resets_diverged,
    )
