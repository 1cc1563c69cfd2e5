"""Values of a policy from the nearest rows, without a regression that could extrapolate."""

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy.spatial import KDTree

from rlreps.successor.fitting.basis import DenseBasis
from rlreps.successor.fitting.least_squares import LeastSquares

_NEIGHBOURS = 5
_MOST_ROWS = 20_000
"""Largest number of rows; more are left out, by a random draw."""


class NearestRows:
    """Means over nearest rows as values of policies: an averager (Gordon 1995).

    Q(s, a) is the mean of r_i + γ c_i Q(s'_i, π(s'_i)) over the five rows i nearest to (s, a). Such
    values lie within the discounted sums of the rewards in the data. They are blurred, so they
    compare policies better than they measure one.

    Distances between states are those of ``basis.coordinates``. Other discrete actions are far
    away. Each number of a box counts as much over its range as the root mean square distance of
    states from their mean.

    Args:
        solution: The fit, of whose rows at most 20,000 are taken.
        rewards: Rewards of all rows, [N].
    """

    def __init__(self, solution: LeastSquares, rewards: np.ndarray) -> None:
        basis, kind = solution.basis, solution.actions
        assert isinstance(basis, DenseBasis)
        chosen = np.random.default_rng(0).permutation(len(rewards))[:_MOST_ROWS]
        self.basis, self.discount = basis, solution.discount
        self.rows, self.rewards = solution.recorded.at(chosen), rewards[chosen]
        length = np.sqrt(np.square(basis.coordinates(self.rows.observation)).sum(axis=1).mean())
        width = 1e-3 if kind.low is None or kind.high is None else kind.high - kind.low
        # Length of a unit of actions, [] or [k].
        self.scale = length / np.where(width > 0.0, width, 1.0)

    @functools.cached_property
    def states(self) -> np.ndarray:
        """States that rows reach before the end of an episode, [m, ...]."""
        return np.asarray(self.rows.next_observation[~self.rows.terminated])

    @functools.cached_property
    def _tree(self) -> KDTree:
        return KDTree(self._places(self.rows.observation, self.rows.action))

    def _places(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        scaled = actions.reshape(len(states), -1) * self.scale
        return np.column_stack([self.basis.coordinates(states), scaled])

    def value(self, choose: Callable[[np.ndarray], np.ndarray]) -> float:
        """Return the mean value at ``states`` of a policy: states [m, ...] → actions."""
        nearest = np.arange(1, 1 + min(_NEIGHBOURS, len(self.rewards)))
        _, found = self._tree.query(self._places(self.states, choose(self.states)), nearest)
        values, continues = self.rewards.astype(np.float64), ~self.rows.terminated
        for _ in range(math.ceil(math.log(1e-3) / math.log(self.discount))):
            later = values[found].mean(axis=1)
            values = self.rewards.astype(np.float64)
            values[continues] += self.discount * later
        return float(values[found].mean())
