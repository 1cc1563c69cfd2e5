"""Configuration and presets of the PuddleWorld experiment (Le Lan et al. 2023, App. C.3)."""

import dataclasses

from rlreps.encoders import MLP
from rlreps.errors import require, require_choice, require_positive
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.successor.measure import MonteCarlo
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig

MASKABLE = ("danskin_lissa", "explicit", "large_batch")
"""Methods to which a feature that is zero at every state is the same as one that is not there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PuddleWorldConfig:
    """Every method at every d with every seed, under the paper's protocol.

    Attributes:
        successor: The ground truth.
        objectives: The methods.
        training: The protocol; objective and number of features are replaced run by run.
        dimensions: d.
        headline_dimension: The d of the pictures of components.
        members: Most runs of one method in one program; beyond, it takes several programs.
    """

    successor: MonteCarlo = dataclasses.field(default_factory=MonteCarlo)
    objectives: tuple[Objective, ...] = (
        DanskinLissa(gradient_rows=50, weight_rows=50, covariance_rows=50),
        Explicit(),
        LargeBatch(),
    )
    training: TrainingConfig
    dimensions: tuple[int, ...]
    headline_dimension: int = 10
    members: int = 64

    def __post_init__(self) -> None:
        require(len(self.objectives) >= 1, "at least one objective", self.objectives)
        names = [objective.name for objective in self.objectives]
        require(len(set(names)) == len(names), "every method once", names)
        for d in self.dimensions:
            require(1 <= d < self.successor.num_cells, f"d in [1, {self.successor.num_cells})", d)
        require(
            self.headline_dimension in self.dimensions,
            f"headline_dimension to be one of dimensions {self.dimensions}",
            self.headline_dimension,
        )
        require_positive("members", self.members)
        for objective in self.objectives:
            require_choice("objectives", str(objective.name), MASKABLE)
            require(
                getattr(objective, "precondition", None) is None
                and not getattr(objective, "whitening", False),
                "objectives without precondition and whitening, which mix masked features in",
                objective,
            )
            objective.require_rows(self.training.rows)

    def method(self, objective: Objective) -> TrainingConfig:
        """How one method's runs train, with features enough for the largest d."""
        return dataclasses.replace(
            self.training, objective=objective, num_features=max(self.dimensions)
        )


_PROTOCOL = TrainingConfig(
    encoder=MLP(hidden=(512, 512)),
    optimizer=Optimizer(name="adam", learning_rate=1e-4, schedule="constant"),
    rows=250,
    tasks=1,
    steps=100_000_000,
    num_seeds=5,
    evaluate_every=20_000,
    checkpoint_every=100_000,
)

PRESETS: dict[str, PuddleWorldConfig] = {
    "smoke": PuddleWorldConfig(
        successor=MonteCarlo(bins=16, rollouts=50, horizon=200, block_rows=64),
        training=dataclasses.replace(
            _PROTOCOL,
            encoder=MLP(hidden=(32,)),
            steps=100,
            num_seeds=2,
            evaluate_every=50,
            checkpoint_every=50,
        ),
        dimensions=(2, 5),
        headline_dimension=5,
    ),
    "laptop": PuddleWorldConfig(
        training=dataclasses.replace(
            _PROTOCOL, steps=6_000, num_seeds=3, evaluate_every=500, checkpoint_every=1_000
        ),
        dimensions=(2, 5, 10, 20, 50),
    ),
    "paper": PuddleWorldConfig(
        training=_PROTOCOL, dimensions=(1, 2, 5, 10, 15, 20, 25, 50, 75, 100)
    ),
}
"""Preset name → configuration."""
