"""Configuration and presets of the experiment on learning rates."""

import dataclasses
from typing import Literal, get_args

from rlreps.errors import require, require_choice, require_positive
from rlreps.experiments.amid_warmuth_2020.pca_config import (
    AUTHORS_RATES,
    RepeatedPcaConfig,
    require_different,
    require_powers,
    require_rates,
)

RuleName = Literal["oja", "krasulina", "explicit_krasulina", "implicit_krasulina"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRateSensitivityConfig(RepeatedPcaConfig):
    """η0 chosen on a part of the rows, then scaled up and down (Amid & Warmuth 2020, Table 1).

    The defaults are the paper's protocol: one pass, one row at a time.

    Attributes:
        rules: Streaming rules; the paper's "Sanger" is ``explicit_krasulina``.
        powers: γ of each rule's learning rate η0 / t^γ.
        learning_rates: Initial learning rates η0 to choose from.
        scales: Factors of the chosen η0, 1 among them; they share starts and orders of the rows.
        evaluations: Points of each curve after its start. Rows that do not fill the last interval
            between them are left out.
    """

    rules: tuple[RuleName, ...] = get_args(RuleName)
    powers: tuple[float, ...] = (0.9, 0.9, 0.8, 0.8)
    learning_rates: tuple[float, ...] = AUTHORS_RATES
    scales: tuple[float, ...] = (0.1, 1.0, 10.0)
    evaluations: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rules", "learning_rates", "scales"):
            require_different(name, getattr(self, name))
        for rule in self.rules:
            require_choice("rules", rule, get_args(RuleName))
        require(
            len(self.powers) == len(self.rules),
            f"a power for each of the {len(self.rules)} rules",
            self.powers,
        )
        require_powers("powers", self.powers)
        require_rates("learning_rates", self.learning_rates)
        require_rates("scales", self.scales)
        require(1.0 in self.scales, "1 among the scales", self.scales)
        require_positive("evaluations", self.evaluations)

    @property
    def is_published(self) -> bool:
        """Whether rules, schedules, choice of η0 and scales are the paper's."""
        paper = LearningRateSensitivityConfig()
        names = ("rules", "powers", "learning_rates", "tuning_fraction", "scales")
        return all(getattr(self, name) == getattr(paper, name) for name in names)


PRESETS: dict[str, LearningRateSensitivityConfig] = {
    "smoke": LearningRateSensitivityConfig(
        components=(2, 4), learning_rates=(0.1, 1.0, 10.0), repeats=2, evaluations=10
    ),
    # The paper's whole protocol takes minutes on two cores.
    "laptop": LearningRateSensitivityConfig(),
    "paper": LearningRateSensitivityConfig(evaluations=100),
}
"""Preset name → configuration."""
