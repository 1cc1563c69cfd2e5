"""Discounted sums over future states, and the settings of the methods that compute them."""

import dataclasses

import numpy as np

from rlreps.config import checked, interval, positive
from rlreps.errors import require

LONGEST_HORIZON = 10**7
"""Largest number of terms of a discounted sum: each has a weight in memory."""

_MOST_POINTS = 2**20
"""Largest number of quadrature points of a sub-cell, which are in memory together."""

MOST_ROLLOUTS = 10**9
"""Largest number of rollouts from a cell: the standard error is then far below single precision."""

ROLLOUTS_PER_BLOCK = 250
"""Number of rollouts that share a key. Changing it changes the matrix of every seed."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscountedSum:
    """A discounted sum over future states.

    Attributes:
        horizon: h, number of terms of the sum. Defaults are those of Le Lan et al. (2023).
        discount: γ, strictly between 0 and 1.
        count_start: Whether the sum starts with the start state (Σ_{t≥0} γᵗ, the paper's formula)
            or with the first successor (Σ_{t≥1} γᵗ⁻¹).
        seed: Seed of every random draw, in [0, 2³²).
    """

    horizon: int = interval(f"[1, {LONGEST_HORIZON}]", 700)
    discount: float = interval("(0, 1)", 0.99)
    count_start: bool = True
    seed: int = interval("[0, 2**32)", 0)

    @property
    def steps_ahead(self) -> int:
        """Number of steps from the start to the last term of the sum."""
        return self.horizon - 1 if self.count_start else self.horizon

    @property
    def discounts(self) -> np.ndarray:
        """γᵗ for t < h, [h]."""
        return np.power(self.discount, np.arange(self.horizon), dtype=np.float64)

    @property
    def row_sum(self) -> float:
        """Sum of every row: (1 - γʰ) / (1 - γ)."""
        return (1.0 - self.discount**self.horizon) / (1.0 - self.discount)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings(DiscountedSum):
    """A discounted sum estimated from rollouts.

    Attributes:
        rollouts: Rollouts from each start cell, at least one for each half.
    """

    rollouts: int = positive(1000, least=2, most=MOST_ROLLOUTS)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TransitionSettings(DiscountedSum):
    """A discounted sum computed from one-step transition probabilities.

    Attributes:
        refinement: Number of sub-cells along each side of a cell; the chain moves between
            sub-cells.
        points: Quadrature points in each sub-cell, a power of two.
    """

    refinement: int = positive(1)
    points: int = positive(4096, most=_MOST_POINTS)

    def __post_init__(self) -> None:
        require(self.points.bit_count() == 1, "points to be a power of two", self.points)
