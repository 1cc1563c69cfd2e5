"""Settings of truths from rollouts of sampled states."""

import dataclasses

from rlreps.config import checked, interval, no_option, positive
from rlreps.cumulants import Cumulants, RandomIndicators
from rlreps.errors import require
from rlreps.successor.measure.settings import LONGEST_HORIZON, MOST_ROLLOUTS, RolloutSettings


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class StateSampling(RolloutSettings):
    """Which states and cumulants are drawn, and how many rollouts estimate their sums.

    Attributes:
        horizon: h, number of terms of the sum.
        rollouts: Rollouts from each state, at least one for each half.
        states: Number of distinct states, n.
        tasks: Number of cumulants, t.
        visits: Most steps of the policy for each state drawn; 16 distinct ones for each suffice.
        cumulants: Family of functions of the observation, flat; bytes are divided by 255.
        quantile: Share of the states at which an indicator is 0 (Farebrother et al. 2023 tune
            thresholds to a share, too). Other families do not use it.
        counters: Fields of a state that count steps; states that differ in them alone are the same.
            In an environment of Gymnasium, attributes.
    """

    horizon: int = interval(f"[1, {LONGEST_HORIZON}]", 40)
    discount: float = interval("(0, 1)", 0.95)
    rollouts: int = positive(256, least=2, most=MOST_ROLLOUTS)
    states: int = positive(2000, least=2)
    tasks: int = positive(512)
    visits: int = positive(256)
    cumulants: Cumulants = dataclasses.field(default=RandomIndicators())
    quantile: float = interval("(0, 1)", 0.8)
    counters: tuple[str, ...] = no_option(("time", "steps"))

    def __post_init__(self) -> None:
        flat = hasattr(self.cumulants, "num_inputs")
        require(flat, "cumulants of any number of inputs", type(self.cumulants).__name__)

    @property
    def most_visits(self) -> int:
        """Number of steps after which the search for states ends."""
        return self.states * self.visits

    @property
    def most_distinct(self) -> int:
        """Number of distinct states at which the search ends."""
        return 16 * self.states

    @property
    def transitions(self) -> int:
        """Most steps of all rollouts; those in Gymnasium end with their episodes."""
        return self.states * self.rollouts * self.steps_ahead
