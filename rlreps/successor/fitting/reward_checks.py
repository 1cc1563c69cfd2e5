"""Check whether rewards belong to their rows, by how well the rows beside predict them."""

import dataclasses
from collections.abc import Callable

import numpy as np

from rlreps.numerics import effective_number
from rlreps.successor.fitting.basis import FourierBasis
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.nearest_rows import episode_starts
from rlreps.successor.fitting.observation_checks import (
    FEWEST_TESTED_ROWS,
    MOST_TESTED_ROWS,
    interactions,
    regress,
)
from rlreps.successor.fitting.record_checks import few_features

_FEWEST_REWARDS = 100  # Nothing is compared with fewer rewards far from the median.
_ROWS_A_FEATURE = 6  # Smallest number of rows for each feature of state and action.
_MOST_FEATURES = 800  # Largest number of features of state and action.
_FEWEST_OF_STATE, _MOST_OF_STATE = 10, 40  # Numbers of Fourier features of a state.

_LEFT = 0.1  # Nothing is left to explain if an error is below this share of the variance.
_OTHER = 0.3  # A better predictor leaves at most this share of the error of another.
_EXPLAINED = 0.2  # A better predictor explains at least this share of the variance.

_FEWEST_FIRST = 10  # First rows are compared in at least so many episodes.
_LATE = 10  # Late rewards leave more than so many times the error of other rows.
_WRONG = 0.2  # They also leave more than this share of the variance, and the row before does not.


def describe_arriving(solution: LeastSquares, rewards: np.ndarray) -> str:
    """Say whether rewards [N], given with the states where rows start, are those of arriving."""
    if (regressions := _Regressions.of(solution, rewards)) is None:
        return ""
    state, row = (regressions.errors(alone=alone)[0] for alone in (True, False))
    if state <= _LEFT or row >= min(_OTHER * state, 1.0 - _EXPLAINED):
        return ""
    return (
        "the rewards depend on more than the states in which rows start: a reward is that of "
        "arriving; give transitions.next_observation to reward each row"
    )


def describe_shifted(solution: LeastSquares, rewards: np.ndarray) -> str:
    """Say whether rewards [N] seem to be those of the rows before or after; "" otherwise.

    Rewards that are late may be functions of the state, but those of the first rows belong to the
    episode before.
    """
    if (regressions := _Regressions.of(solution, rewards)) is None:
        return ""
    own, own_first = regressions.errors()
    (before, before_first), (after, _) = regressions.errors(-1), regressions.errors(1)
    late = own_first > max(_LATE * own, _WRONG) and before_first < own_first / _LATE
    if not late and (own < _LEFT or min(before, after) > min(_OTHER * own, 1.0 - _EXPLAINED)):
        return ""
    name = "before" if late or before < after else "after"
    return (
        f"the rewards seem to be those of the rows {name}: a reward belongs to the row whose "
        "action it follows"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Regressions:
    """Linear regressions of rewards on features of rows, or of states alone.

    Attributes:
        solution: The fit.
        rewards: The reward that was given with each row, [N].
        features: Features of states.
        inner: Rows of the regression and of its test, which have rows of the episode beside them.
        first: First rows of episodes.
    """

    solution: LeastSquares
    rewards: np.ndarray
    features: Callable[[np.ndarray], np.ndarray]
    inner: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, solution: LeastSquares, rewards: np.ndarray) -> "_Regressions | None":
        """Draw rows; return None if rows, rewards or features are too few."""
        starts = episode_starts(solution.recorded)
        rng = np.random.default_rng(0)
        inner = rng.permutation(1 + np.flatnonzero(~(starts[1:-1] | starts[2:])))[:MOST_TESTED_ROWS]
        first = rng.permutation(1 + np.flatnonzero(starts[1:-1]))[:MOST_TESTED_ROWS]
        apart = rewards - np.median(rewards)
        if len(inner) < FEWEST_TESTED_ROWS or effective_number(apart) < _FEWEST_REWARDS:
            return None
        features = _features_of_states(solution, inner)
        return features and cls(solution, rewards, features, inner, first)

    def errors(self, step: int = 0, alone: bool = False) -> tuple[float, float]:
        """Predict the reward of a row by the row ``step`` rows later, or by its state alone.

        Returns:
            Mean squared errors over the variance, in rows left out of the regression and in first
            rows (if they are many).
        """
        fitted, left_out = self.inner[::2], self.inner[1::2]
        first = self.first if len(self.first) >= _FEWEST_FIRST else left_out
        weights = regress(self._columns(fitted + step, alone), self.rewards[fitted])
        inside, at_first = (
            np.square(self.rewards[rows] - self._columns(rows + step, alone) @ weights).mean()
            for rows in (left_out, first)
        )
        return float(inside / self.rewards.var()), float(at_first / self.rewards.var())

    def _columns(self, rows: np.ndarray, alone: bool) -> np.ndarray:
        """Return features of state and action together and of the next state, or of the state."""
        recorded = self.solution.recorded
        states = self.features(recorded.observation[rows])
        if alone:
            return states
        pairs = interactions(states, self.solution.actions.weights(recorded.action[rows]))
        return np.column_stack([pairs, self.features(recorded.next_observation[rows])])


def _features_of_states(
    solution: LeastSquares, rows: np.ndarray
) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return features of states, as many as the rows allow; None if these are too few."""
    basis = solution.basis
    most = min(_MOST_FEATURES, len(rows) // _ROWS_A_FEATURE) // solution.actions.size
    if isinstance(basis, FourierBasis) and most >= _FEWEST_OF_STATE:
        count = min(_MOST_OF_STATE, most)
        few, axes = few_features(basis, solution.recorded.observation[rows], count, 0)
        return lambda states: np.column_stack(
            [few.apply(states), states.reshape(len(states), -1) @ axes]
        )
    if (basis.num_states or np.inf) <= most:
        one_hot = np.eye(basis.num_features)
        return lambda states: np.asarray(one_hot[states])
    return None
