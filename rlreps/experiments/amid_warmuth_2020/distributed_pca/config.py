"""Configuration and presets of the experiment on workers."""

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

RuleName = Literal["oja", "krasulina", "implicit_krasulina", "incremental_pca"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedPcaConfig(RepeatedPcaConfig):
    """Workers on shares of their own, combined again and again (Amid & Warmuth 2020, Table 2).

    The defaults are the paper's protocol: one pass, one row at a time.

    Attributes:
        rules: Streaming rules.
        power: γ of the learning rate η0 / t^γ, t = 1, 2, … a worker's own updates.
        workers: M, that go on from a common model.
        combine_every: Rows that each worker learns from between combinations; all of its rows,
            where it has fewer.
        learning_rates: Initial learning rates η0 to choose from.
    """

    rules: tuple[RuleName, ...] = get_args(RuleName)
    power: float = 0.9
    workers: int = 10
    combine_every: int = 1000
    learning_rates: tuple[float, ...] = AUTHORS_RATES

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rules", "learning_rates"):
            require_different(name, getattr(self, name))
        for rule in self.rules:
            require_choice("rules", rule, get_args(RuleName))
        require_powers("power", (self.power,))
        require_rates("learning_rates", self.learning_rates)
        require_positive("combine_every", self.combine_every)
        require(self.workers >= 2, "workers >= 2", self.workers)

    def interval(self, count: int) -> int:
        """Rows of each worker between combinations, of ``count`` rows that workers share."""
        return min(self.combine_every, count // self.workers)


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
