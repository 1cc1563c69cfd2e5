"""Values of a policy by walks along the nearest rows, without a regression of values."""

import math
from collections.abc import Callable

import numpy as np
from scipy.spatial import KDTree

from rlreps.numerics import bytes_of, rows_equal
from rlreps.runs.progress import progress_bar
from rlreps.successor.fitting.basis import DenseBasis
from rlreps.successor.fitting.least_squares import LeastSquares, Steps

_WALKS = 256
_MOST_STARTS = 4_096
"""Largest number of starts of episodes among which walks take different states."""
_MOST_ROWS = 20_000
"""Largest number of rows; more are left out, by a random draw."""
_SLACK = 1.0
"""A row found may be twice as far as the nearest; it is 0.1 to 0.5 % farther on average."""
_OFFSET_KEPT = 0.9
"""Share of the offset from the nearest row that a step keeps."""
_LEAST_WEIGHT = 0.02
"""Weight γᵗ at which walks are cut."""
_MOST_STEPS = 400


class NearestRows:
    """Walks along the nearest rows as values of policies.

    A walk with action a in state s receives the reward r_i of the row i whose (s_i, a_i) is
    nearest, and goes to s'_i + 0.9 (s − s_i). With 0 and 1 in place of 0.9 these would be the
    locally constant and the locally incremental analogue of Lguensat et al. (2017): walks can leave
    the data where the policy does, but not for ever. Observations of whole numbers, or of two or
    more axes, become s'_i; indices in which no row starts end a walk. Among rows of one place a
    walk draws one, with the same random numbers for all policies. Walks are cut once γᵗ is 0.02, or
    after 400 steps, and count as if they went on as before.

    Distances between states are those of ``basis.coordinates``. Other discrete actions are far
    away. Each number of a box counts as much over its range as the root mean square distance of
    states from their mean.

    Args:
        solution: The fit, of whose rows at most 20,000 are taken.
        rewards: Rewards of all rows, [N].

    Attributes:
        starts: States in which walks start, [m, ...]: different states in which the data's episodes
            start, and states of other rows up to 256.
    """

    def __init__(self, solution: LeastSquares, rewards: np.ndarray) -> None:
        basis, kind = solution.basis, solution.actions
        assert isinstance(basis, DenseBasis)
        order = np.random.default_rng(0).permutation(len(rewards))
        chosen = order[:_MOST_ROWS]
        self.basis, self.discount = basis, solution.discount
        self.rows, self.rewards = solution.recorded.at(chosen), rewards[chosen].astype(np.float64)
        self._ends = self.rows.terminated | ~solution.started(self.rows.next_observation)
        seen = solution.recorded.observation
        first = order[episode_starts(solution.recorded)[order]][:_MOST_STARTS]
        # Walks from one state would be the same walk, with a standard error of zero.
        first = first[np.sort(np.unique(bytes_of(seen[first], seen.dtype), return_index=True)[1])]
        others = order[np.isin(order, first, invert=True)]
        self.starts = seen[np.concatenate([first, others])[:_WALKS]]
        placed = basis.coordinates(self.rows.observation)
        length = np.sqrt(np.square(placed).sum(axis=1).mean())
        width = 1e-3 if kind.low is None or kind.high is None else kind.high - kind.low
        # Length of a unit of actions, [] or [k].
        self.scale = length / np.where(width > 0.0, width, 1.0)
        places = self._places(placed, self.rows.action)
        # Networks round the features of equal images differently.
        _, first, which, self._counts = np.unique(
            places.round(4), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        self._tree = KDTree(places[first])
        # Rows in the order of their places, and where the rows of each place begin.
        self._order = which.ravel().argsort(kind="stable")
        self._begin = self._counts.cumsum() - self._counts

    def returns(self, choose: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Compute the discounted rewards of a policy's walks: states [m, ...] → actions; [m]."""
        rows, states = self.rows, self.starts
        found, walking, weight = np.zeros(len(states)), np.arange(len(states)), 1.0
        moves = states.ndim == 2 and np.issubdtype(states.dtype, np.floating)
        # States that are those of rows need the policy once.
        followed = None if moves else self._nearest(rows.next_observation, choose)
        steps = min(_MOST_STEPS, math.ceil(math.log(_LEAST_WEIGHT) / math.log(self.discount)))
        rng, places = np.random.default_rng(0), self._nearest(states, choose)
        with progress_bar("walks along rows", total=steps, unit="steps", after=2.0) as advance:
            for _ in range(steps):
                rank = (rng.random(len(found))[walking] * self._counts[places]).astype(int)
                at = self._order[self._begin[places] + rank]
                found[walking] += weight * self.rewards[at]
                weight *= self.discount
                goes_on = ~self._ends[at]
                if moves:
                    after = rows.next_observation[at]
                    states = (after + _OFFSET_KEPT * (states - rows.observation[at]))[goes_on]
                at, walking = at[goes_on], walking[goes_on]
                advance(1)
                if not len(walking):
                    break
                places = self._nearest(states, choose) if followed is None else followed[at]
        found[walking] /= 1.0 - weight
        return found

    def _nearest(
        self, states: np.ndarray, choose: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        places = self._places(self.basis.coordinates(states), choose(states))
        return np.asarray(self._tree.query(places, eps=_SLACK)[1])

    def _places(self, placed: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return np.column_stack([placed, actions.reshape(len(placed), -1) * self.scale])


def episode_starts(rows: Steps) -> np.ndarray:
    """Tell whether a row does not go on from the row before, [N]."""
    goes_on = rows_equal(rows.next_observation[:-1], rows.observation[1:])
    return np.append(True, rows.terminated[:-1] | ~goes_on)
