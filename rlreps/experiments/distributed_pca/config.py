"""Configuration and presets of the experiment on workers.

Like ``rlreps.configs``, this module does not import JAX.
"""

import dataclasses
import math
from typing import Literal, get_args

from rlreps.validation import require, require_choice, require_positive

RuleName = Literal["oja", "krasulina", "implicit_krasulina", "incremental_pca"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedPcaConfig:
    """Workers on shares of their own, combined again and again (Amid & Warmuth 2020, Table 2).

    The defaults are the paper's protocol: one pass, one row at a time.

    Attributes:
        rules: Streaming rules.
        power: γ of the learning rate η0 / t^γ, t = 1, 2, … a worker's own updates.
        components: Numbers of components k.
        workers: M, that go on from a common model.
        combine_every: Rows that each worker learns from between combinations.
        learning_rates: Initial learning rates η0 to choose from.
        tuning_fraction: Share of the rows that one model chooses them on.
        repeats: Runs of each rule, seeds ``seed`` … ``seed + repeats - 1``: a seed is a start and
            an order of the rows.
        seed: Seed of the first repeat and of the choice of η0.
    """

    rules: tuple[RuleName, ...] = get_args(RuleName)
    power: float = 0.9
    components: tuple[int, ...] = (5, 10, 20)
    workers: int = 10
    combine_every: int = 1000
    learning_rates: tuple[float, ...] = (0.1, 1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
    tuning_fraction: float = 0.1
    repeats: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rules", "components", "learning_rates"):
            values = getattr(self, name)
            require(len(set(values)) == len(values) >= 1, f"different {name}, at least one", values)
        for rule in self.rules:
            require_choice("rules", rule, get_args(RuleName))
        require(0.0 <= self.power < math.inf, "a finite power >= 0", self.power)
        for rate in self.learning_rates:
            require(0.0 < rate < math.inf, "finite learning_rates > 0", rate)
        require(
            0.0 < self.tuning_fraction <= 1.0, "tuning_fraction in (0, 1]", self.tuning_fraction
        )
        for count in (*self.components, self.combine_every, self.repeats):
            require_positive("components, combine_every and repeats", count)
        require(self.workers >= 2, "workers >= 2", self.workers)
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)

    @property
    def seeds(self) -> range:
        """A seed for each repeat."""
        return range(self.seed, self.seed + self.repeats)


PRESETS: dict[str, DistributedPcaConfig] = {
    "smoke": DistributedPcaConfig(
        components=(3,),
        workers=3,
        combine_every=50,
        learning_rates=(0.1, 1.0, 10.0),
        repeats=2,
    ),
    # The paper's whole protocol takes minutes on two cores.
    "laptop": DistributedPcaConfig(),
    "paper": DistributedPcaConfig(),
}
"""Preset name → configuration."""
