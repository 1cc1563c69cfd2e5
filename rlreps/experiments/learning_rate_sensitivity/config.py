"""Configuration and presets of the experiment on learning rates.

Like ``rlreps.configs``, this module does not import JAX.
"""

import dataclasses
import math
from typing import Literal, get_args

from rlreps.validation import require, require_choice, require_positive

RuleName = Literal["oja", "krasulina", "explicit_krasulina", "implicit_krasulina"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRateSensitivityConfig:
    """η0 chosen on a part of the rows, then scaled up and down (Amid & Warmuth 2020, Table 1).

    The defaults are the paper's protocol: one pass, one row at a time.

    Attributes:
        rules: Streaming rules; the paper's "Sanger" is ``explicit_krasulina``.
        powers: γ of each rule's learning rate η0 / t^γ.
        components: Numbers of components k.
        learning_rates: Initial learning rates η0 to choose from.
        tuning_fraction: Share of the rows that they are chosen on.
        scales: Factors of the chosen η0, 1 among them.
        repeats: Runs of each scale, seeds ``seed`` … ``seed + repeats - 1``: a seed is a start and
            an order of the rows, which all scales share.
        evaluations: Points of each curve after its start. Rows that do not fill the last interval
            between them are left out.
        seed: Seed of the first repeat and of the choice of η0.
    """

    rules: tuple[RuleName, ...] = get_args(RuleName)
    powers: tuple[float, ...] = (0.9, 0.9, 0.8, 0.8)
    components: tuple[int, ...] = (5, 10, 20)
    learning_rates: tuple[float, ...] = (0.1, 1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
    tuning_fraction: float = 0.1
    scales: tuple[float, ...] = (0.1, 1.0, 10.0)
    repeats: int = 10
    evaluations: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rules", "components", "learning_rates", "scales"):
            values = getattr(self, name)
            require(len(set(values)) == len(values) >= 1, f"different {name}, at least one", values)
        for rule in self.rules:
            require_choice("rules", rule, get_args(RuleName))
        require(
            len(self.powers) == len(self.rules),
            f"a power for each of the {len(self.rules)} rules",
            self.powers,
        )
        for power in self.powers:
            require(0.0 <= power < math.inf, "finite powers >= 0", power)
        for name in ("learning_rates", "scales"):
            for value in getattr(self, name):
                require(0.0 < value < math.inf, f"finite {name} > 0", value)
        require(1.0 in self.scales, "1 among the scales", self.scales)
        require(
            0.0 < self.tuning_fraction <= 1.0, "tuning_fraction in (0, 1]", self.tuning_fraction
        )
        for count in (*self.components, self.repeats, self.evaluations):
            require_positive("components, repeats and evaluations", count)
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)

    @property
    def seeds(self) -> range:
        """A seed for each repeat."""
        return range(self.seed, self.seed + self.repeats)

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
