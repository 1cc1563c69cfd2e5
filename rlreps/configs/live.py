"""Configurations of training without a stored matrix."""

import dataclasses
from typing import Literal, get_args

from rlreps.configs.training import TrainingConfig
from rlreps.errors import require, require_choice, require_positive

CumulantsName = Literal["discs", "random_fourier", "random_network"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveTrainingConfig:
    """One training run on entries from fresh rollouts of PuddleWorld.

    Attributes:
        training: How to train; its ``tasks`` are cumulants drawn anew for every update.
        arena: One of the named arenas, or the path of a TOML file that describes one.
        cumulants: The family of functions that the tasks are drawn from.
        horizon: Terms of the discounted sum, h.
        discount: γ, strictly between 0 and 1.
        rollouts: Rollouts from each start state, averaged.
        count_start: Whether the sum starts with the start state (Σ_{t≥0} γᵗ) or with the first
            successor (Σ_{t≥1} γᵗ⁻¹).
        centring_starts: Further start states whose mean comes off every row; None is one for each
            row, which keeps rows independent.
        target_tasks: Functions behind the subspace that a run with a store is measured against;
            what their sampling adds to the distance falls as its inverse.
    """

    # Every row of a live batch is a rollout and every task a function of each of its states.
    training: TrainingConfig = dataclasses.field(
        default_factory=lambda: TrainingConfig(steps=2000, rows=250, tasks=256)
    )
    arena: str = "sutton"
    cumulants: CumulantsName = "discs"
    horizon: int = 700
    discount: float = 0.99
    rollouts: int = 1
    count_start: bool = True
    centring_starts: int | None = None
    target_tasks: int = 4096

    def __post_init__(self) -> None:
        require_choice("cumulants", self.cumulants, get_args(CumulantsName))
        for name in ("horizon", "rollouts", "target_tasks"):
            require_positive(name, getattr(self, name))
        require(0.0 < self.discount < 1.0, "discount strictly between 0 and 1", self.discount)
        require(
            self.centring_starts is None or self.centring_starts >= 1,
            "centring_starts None or >= 1",
            self.centring_starts,
        )
        encoder, objective = self.training.encoder.name, self.training.objective
        require(encoder != "tabular", "an encoder of positions for live rollouts", encoder)
        require(objective.live, "a method that needs no matrix, for live rollouts", objective.name)
