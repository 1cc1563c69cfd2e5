"""Configuration of the quickstart: the methods that it compares, and its presets."""

import dataclasses
from collections.abc import Mapping

from rlreps.encoders import MLP
from rlreps.losses import DanskinLissa, Explicit, LargeBatch, Objective
from rlreps.successor.measure import MonteCarlo
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig

_PUBLISHED: Mapping[type[Objective], Objective] = {
    Explicit: Explicit(weight_start=1.0, dense_optimizer=True)
}
"""Methods whose published options differ from the defaults of rlreps."""

RECIPES = {"paper": "Paper's protocol", "recommended": "Recommended recipe"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuickstartConfig:
    """The whole pipeline: ground truth, then every method under two recipes at equal budgets.

    Attributes:
        successor: The ground truth.
        objectives: The methods to compare, with options that suit the recommended recipe; the
            paper's protocol runs the same methods with their published options.
        paper: The paper's protocol (Le Lan et al. 2023, App. C.3) with fewer updates. Each run
            replaces objective and number of features, as in the recommended recipe. Large batch
            fits its weights on the gradient's own rows, which differs from the paper: fitting on
            all cells would take too long.
        recommended: The recommended recipe.
        dimensions: Numbers of features d compared under the recommended recipe.
        headline_dimension: The d of the paper's protocol, of the pictures and of the summary.
        estimated_seconds: Rough time on two cores.
    """

    successor: MonteCarlo
    objectives: tuple[Objective, ...] = (
        LargeBatch(precondition=1e-2, leave_one_out=True),
        DanskinLissa(permutations=5, whitening=True),
        Explicit(weight_learning_rate=0.01),
    )
    paper: TrainingConfig
    recommended: TrainingConfig
    dimensions: tuple[int, ...] = (10,)
    headline_dimension: int = 10
    estimated_seconds: int

    def runs(self) -> dict[str, tuple[str, TrainingConfig]]:
        """List every training run: folder's name → (recipe, configuration)."""
        found = {}
        # The longest first, so that the last ones end together and no core waits.
        for objective in self.objectives:
            for d in self.dimensions:
                run = dataclasses.replace(self.recommended, objective=objective, num_features=d)
                found[f"recommended-{objective.name}-d{d}"] = ("recommended", run)
        for objective in self.objectives:
            d = self.headline_dimension
            published = _PUBLISHED.get(type(objective), type(objective)())
            plain = dataclasses.replace(self.paper, objective=published, num_features=d)
            found[f"paper-{objective.name}-d{d}"] = ("paper", plain)
        return found


_PAPER = TrainingConfig(
    encoder=MLP(hidden=(512, 512)),
    optimizer=Optimizer(learning_rate=1e-4, schedule="constant"),
    rows=250,
    tasks=1,
    states="uniform",
    steps=3000,
    num_seeds=3,
    evaluate_every=300,
    checkpoint_every=1500,
)


def _paper(steps: int, seeds: int) -> TrainingConfig:
    return dataclasses.replace(
        _PAPER,
        steps=steps,
        num_seeds=seeds,
        evaluate_every=steps // 10,
        checkpoint_every=steps // 2,
    )


PRESETS = {
    "smoke": QuickstartConfig(
        successor=MonteCarlo(bins=20, rollouts=100, horizon=200, block_rows=100),
        paper=_paper(100, 2),
        recommended=TrainingConfig(
            steps=150, num_seeds=2, rows=250, tasks=64, evaluate_every=25, checkpoint_every=75
        ),
        dimensions=(5, 10),
        estimated_seconds=40,
    ),
    "laptop": QuickstartConfig(
        successor=MonteCarlo(rollouts=500),
        objectives=(
            LargeBatch(precondition=1e-2, leave_one_out=True),
            DanskinLissa(permutations=2, whitening=True),
            Explicit(weight_learning_rate=0.01),
        ),
        paper=_paper(1000, 1),
        recommended=TrainingConfig(),
        estimated_seconds=120,
    ),
    "full": QuickstartConfig(
        successor=MonteCarlo(rollouts=500),
        paper=_PAPER,
        recommended=TrainingConfig(num_seeds=3),
        dimensions=(5, 10, 20),
        estimated_seconds=600,
    ),
}
"""Preset name → configuration."""
