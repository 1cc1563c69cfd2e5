"""Configurations of the experiments and their presets; presets change numbers only."""

import dataclasses

from rlreps.encoders import MLP
from rlreps.errors import require, require_positive
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.successor.measure import MonteCarlo
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuickstartConfig:
    """The whole pipeline: ground truth, then every method under two recipes at equal budgets.

    Attributes:
        successor: The ground truth.
        objectives: What is compared, with the options that suit the recommended recipe; the
            paper's protocol runs the same methods without options.
        paper: The paper's protocol (Le Lan et al. 2023, App. C.3) with fewer steps; its objective
            and number of features are replaced run by run, as are the recommended recipe's.
        recommended: The recommended recipe.
        dimensions: Feature counts d compared under the recommended recipe.
        headline_dimension: The d of the paper's protocol, of the pictures and of the summary.
    """

    successor: MonteCarlo
    objectives: tuple[Objective, ...] = (
        DanskinLissa(permutations=5, whitening=True),
        LargeBatch(precondition=1e-2, leave_one_out=True),
        Explicit(weight_learning_rate=0.01),
    )
    paper: TrainingConfig
    recommended: TrainingConfig
    dimensions: tuple[int, ...] = (5, 10, 20)
    headline_dimension: int = 10

    def __post_init__(self) -> None:
        require(len(self.objectives) >= 1, "at least one objective", self.objectives)
        for dimension in self.dimensions:
            require_positive("dimensions", dimension)
        require(
            self.headline_dimension in self.dimensions,
            f"headline_dimension to be one of dimensions {self.dimensions}",
            self.headline_dimension,
        )

    def paper_runs(self) -> list[TrainingConfig]:
        """One run for each method, under the paper's protocol."""
        return [
            dataclasses.replace(
                self.paper,
                objective=type(objective)(),
                num_features=self.headline_dimension,
            )
            for objective in self.objectives
        ]

    def recommended_runs(self) -> list[TrainingConfig]:
        """One run for each method and dimension, under the recommended recipe."""
        return [
            dataclasses.replace(self.recommended, objective=objective, num_features=d)
            for objective in self.objectives
            for d in self.dimensions
        ]


_PAPER_PROTOCOL = TrainingConfig(
    encoder=MLP(hidden=(512, 512)),
    optimizer=Optimizer(learning_rate=1e-4, schedule="constant"),
    rows=250,
    tasks=1,
    steps=3000,
    num_seeds=3,
    evaluate_every=300,
    checkpoint_every=1500,
)

PRESETS: dict[str, QuickstartConfig] = {
    "smoke": QuickstartConfig(
        successor=MonteCarlo(bins=20, rollouts=100, horizon=200, block_rows=100),
        paper=dataclasses.replace(
            _PAPER_PROTOCOL, steps=200, num_seeds=2, evaluate_every=50, checkpoint_every=100
        ),
        recommended=TrainingConfig(
            steps=300, num_seeds=2, rows=250, tasks=64, evaluate_every=50, checkpoint_every=150
        ),
        dimensions=(5, 10),
    ),
    "laptop": QuickstartConfig(
        successor=MonteCarlo(rollouts=500),
        paper=_PAPER_PROTOCOL,
        recommended=TrainingConfig(
            steps=1000, num_seeds=3, evaluate_every=100, checkpoint_every=500
        ),
    ),
}
"""Preset name → configuration."""
