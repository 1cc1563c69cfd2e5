"""Values of a policy by walks along the nearest rows, without a regression of values."""

from collections.abc import Callable

import numpy as np

from rlreps.successor.fitting.basis import DenseBasis
from rlreps.successor.fitting.least_squares import LeastSquares

_WALKS = 256
_MOST_ROWS = 20_000
"""Largest number of rows; more are left out, by a random draw."""
_OFFSET_KEPT = 0.9
"""Share of the offset from the nearest row that a step keeps."""
_LEAST_WEIGHT = 0.02
"""Weight γᵗ at which walks end."""


class NearestRows:
    """Walks along the nearest rows as values of policies.

    A walk with action a in state s receives the reward r_i of the row i whose (s_i, a_i) is
    nearest, and goes to s'_i + 0.9 (s − s_i). With 0 and 1 in place of 0.9 these would be the
    locally constant and the locally incremental analogue of Lguensat et al. (2017): walks can leave
    the data where the policy does, but not for ever. Images and vectors of whole numbers become
    s'_i. Among rows with equal (s_i, a_i) a walk draws one, with the same random numbers for all
    policies.

    Distances between states are those of ``basis.coordinates``. Other discrete actions are far
    away. Each number of a box counts as much over its range as the root mean square distance of
    states from their mean.

    Args:
        solution: The fit, of whose rows at most 20,000 are taken.
        rewards: Rewards of all rows, [N].

    Attributes:
        starts: States in which walks start: at most 256 of those in which rows go on, [m, ...].
    """

    def __init__(self, solution: LeastSquares, rewards: np.ndarray) -> None:
        basis, kind = solution.basis, solution.actions
        assert isinstance(basis, DenseBasis)
        chosen = np.random.default_rng(0).permutation(len(rewards))[:_MOST_ROWS]
        self.basis, self.discount = basis, solution.discount
        self.rows, self.rewards = solution.recorded.at(chosen), rewards[chosen].astype(np.float64)
        self.starts = self.rows.next_observation[~self.rows.terminated][:_WALKS]
        placed = basis.coordinates(self.rows.observation)
        length = np.sqrt(np.square(placed).sum(axis=1).mean())
        width = 1e-3 if kind.low is None or kind.high is None else kind.high - kind.low
        # Length of a unit of actions, [] or [k].
        self.scale = length / np.where(width > 0.0, width, 1.0)
        places, which, self._counts = np.unique(
            self._places(self.rows.observation, self.rows.action),
            axis=0,
            return_inverse=True,
            return_counts=True,
        )
        # Rows in the order of their places, and where the rows of each place begin.
        self._order = which.ravel().argsort(kind="stable")
        self._first = self._counts.cumsum() - self._counts
        # A product with [x, 1] is |x − place|² less |x|², [k + 1, places].
        self._table = np.column_stack([-2.0 * places, np.square(places).sum(axis=1)]).T

    def returns(self, choose: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Compute the discounted rewards of a policy's walks: states [m, ...] → actions; [m]."""
        states, walking, weight = self.starts, np.arange(len(self.starts)), 1.0
        found, rng = np.zeros(len(states)), np.random.default_rng(0)
        while len(walking) and weight > _LEAST_WEIGHT:
            nearest = self._nearest(states, choose(states), rng.random(len(found))[walking])
            found[walking] += weight * self.rewards[nearest]
            goes_on = ~self.rows.terminated[nearest]
            states = self._moved(states, nearest)[goes_on]
            walking, weight = walking[goes_on], weight * self.discount
        return found

    def _moved(self, states: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        before, after = self.rows.observation[nearest], self.rows.next_observation[nearest]
        moves = states.ndim == 2 and np.issubdtype(states.dtype, np.floating)
        return after + _OFFSET_KEPT * (states - before) if moves else after

    def _nearest(self, states: np.ndarray, actions: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        places = self._places(states, actions)
        compared = np.column_stack([places, np.ones(len(places))]) @ self._table
        found = compared.argmin(axis=1)
        rank = (drawn * self._counts[found]).astype(int)
        return np.asarray(self._order[self._first[found] + rank])

    def _places(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        scaled = actions.reshape(len(states), -1) * self.scale
        return np.column_stack([self.basis.coordinates(states), scaled])
