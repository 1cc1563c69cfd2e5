"""What the configurations of all experiments on streaming principal components share."""

import dataclasses
import math
from collections.abc import Sequence

from rlreps.errors import require, require_positive

AUTHORS_RATES = (0.1, 1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""The initial learning rates that Amid & Warmuth's code tries."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepeatedPcaConfig:
    """Repeated runs of streaming rules, whose initial learning rates are chosen beforehand.

    Attributes:
        components: Numbers of components k.
        tuning_fraction: Share of the rows that initial learning rates are chosen on.
        repeats: Runs of each rule, seeds ``seed`` … ``seed + repeats - 1``: a seed is a start and
            an order of the rows, which all rules share.
        seed: Seed of the first repeat and of the choice of η0.
    """

    components: tuple[int, ...] = (5, 10, 20)
    tuning_fraction: float = 0.1
    repeats: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require_different("components", self.components)
        for count in (*self.components, self.repeats):
            require_positive("components and repeats", count)
        require(
            0.0 < self.tuning_fraction <= 1.0, "tuning_fraction in (0, 1]", self.tuning_fraction
        )
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)

    @property
    def seeds(self) -> range:
        """A seed for each repeat."""
        return range(self.seed, self.seed + self.repeats)


def require_different(name: str, values: Sequence[object]) -> None:
    """Raises an ``InputError`` for no values, or one that stands there twice."""
    require(len(set(values)) == len(values) >= 1, f"different {name}, at least one", values)


def require_rates(name: str, values: Sequence[float]) -> None:
    """Raises an ``InputError`` unless all values are finite and positive."""
    for value in values:
        require(0.0 < value < math.inf, f"finite {name} > 0", value)


def require_powers(name: str, values: Sequence[float]) -> None:
    """Raises an ``InputError`` unless all values are finite and not negative."""
    for value in values:
        require(0.0 <= value < math.inf, f"finite {name} >= 0", value)
