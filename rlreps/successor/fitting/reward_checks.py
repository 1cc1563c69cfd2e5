"""Check whether rewards belong to their rows, by how well the rows beside predict them."""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.spatial import cKDTree

from rlreps.numerics import effective_number
from rlreps.successor.fitting.basis import FourierBasis
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.nearest_rows import episode_starts
from rlreps.successor.fitting.record_checks import few_features
from rlreps.successor.fitting.regressions import (
    FEWEST_TESTED_ROWS,
    MOST_TESTED_ROWS,
    interactions,
    means_of_others,
    regress,
    share_left,
)

_FEWEST_REWARDS = 100  # Nothing is compared with fewer rewards far from the median.
_ROWS_A_FEATURE = 6  # Smallest number of rows for each feature of state and action.
_MOST_FEATURES = 800  # Largest number of features of state and action.
_FEWEST_OF_STATE, _MOST_OF_STATE = 10, 40  # Numbers of Fourier features of a state.

_LEFT = 0.1  # Nothing is left to explain if an error is below this share of the variance.
_SMALL = 0.01  # Below _LEFT, down to this error, only an exact predictor is better.
_EXACT = 0.03  # An exact predictor leaves at most this share of the error of another.
_OTHER = 0.3  # A better predictor leaves at most this share of the error of another.
_EXPLAINED = 0.2  # A better predictor also explains at least this share of the variance.
_ALONE = 0.3  # Or it explains more than _LEFT, and another at most this share of what it explains.

_MOST_NEAREST = 4_000  # Nearest rows are sought among so many.
_PERMUTATIONS = 19  # Rewards tell nothing if one of so many permutations is predicted better.

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
    """Say whether rewards [N] seem to be those of other rows; "" otherwise.

    Rewards that are late may be functions of the state, but those of the first rows belong to the
    episode before.
    """
    if (regressions := _Regressions.of(solution, rewards)) is None:
        return ""
    own, own_first = regressions.errors()
    (before, before_first), (after, _) = regressions.errors(-1), regressions.errors(1)
    late = own_first > max(_LATE * own, _WRONG) and before_first < own_first / _LATE
    name, other = ("before", before) if late or before < after else ("after", after)
    better = other < min(_OTHER * own, 1.0 - _EXPLAINED)
    alone = 1.0 - other > max(_LEFT, (1.0 - own) / _ALONE)
    exact = own > _SMALL and other < _EXACT * own
    if late or exact or (own > _LEFT and (better or alone)):
        return (
            f"the rewards seem to be those of the rows {name}: a reward belongs to the row whose "
            "action it follows"
        )
    if own > _LEFT and regressions.are_unrelated():
        return (
            "states and actions tell nothing measurable of the rewards: they belong to other rows, "
            "are noise, or depend on what is not observed; no policy is then better than another"
        )
    return ""


@dataclasses.dataclass(frozen=True, eq=False)
class _Regressions:
    """Regressions of rewards on state, action and next state of rows, or on states alone.

    They are linear in features of vectors. For indices, they are means over other rows.

    Attributes:
        solution: The fit.
        rewards: The reward that was given with each row, [N].
        features: Features of vectors; None for indices.
        inner: Rows of the regression and of its test, which have rows of the episode beside them.
        first: First rows of episodes.
    """

    solution: LeastSquares
    rewards: np.ndarray
    features: Callable[[np.ndarray], np.ndarray] | None
    inner: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, solution: LeastSquares, rewards: np.ndarray) -> "_Regressions | None":
        """Draw rows; return None if rows, rewards or features are too few."""
        recorded = solution.recorded
        starts = episode_starts(recorded)
        rng = np.random.default_rng(0)
        inner = 1 + np.flatnonzero(~(starts[1:-1] | starts[2:]))
        if len(inner) < FEWEST_TESTED_ROWS:  # Episodes are short.
            inner = np.arange(1, len(rewards) - 1)
        inner = rng.permutation(inner)[:MOST_TESTED_ROWS]
        first = rng.permutation(1 + np.flatnonzero(starts[1:-1]))[:MOST_TESTED_ROWS]
        apart = rewards - np.median(rewards)
        if len(inner) < FEWEST_TESTED_ROWS or effective_number(apart) < _FEWEST_REWARDS:
            return None
        if solution.basis.num_states is not None:
            discrete = recorded.action.dtype.kind in "iu"
            return cls(solution, rewards, None, inner, first) if discrete else None
        features = _features_of_vectors(solution, inner)
        return features and cls(solution, rewards, features, inner, first)

    def errors(self, step: int = 0, alone: bool = False) -> tuple[float, float]:
        """Predict the reward of a row by the row ``step`` rows later, or by its state alone.

        Returns:
            Mean squared errors over the variance, in rows left out of the regression and in first
            rows (if they are many).
        """
        # What belongs to rows before may follow from terminal states, which only first rows show.
        first = self.first[: len(self.first) * (len(self.first) >= _FEWEST_FIRST)]
        rows = np.concatenate([self.inner, np.setdiff1d(first, self.inner)])
        rewards, fitted = self.rewards[rows], np.arange(len(rows)) % 2 == 0
        if self.features is None:
            columns = self._numbers(rows + step, alone)
            found = means_of_others(rewards[:, None], rewards.mean(keepdims=True), *columns)[:, 0]
        else:
            features = self._columns(rows + step, alone)
            found = features @ regress(features[fitted], rewards[fitted])
        squares = np.square(rewards - found) / self.rewards.var()
        inside = float(squares[: len(self.inner)][~fitted[: len(self.inner)]].mean())
        at_first = ~fitted & np.isin(rows, first)
        return inside, float(squares[at_first].mean()) if at_first.any() else inside

    def are_unrelated(self) -> bool:
        """Tell whether rows predict their own rewards no better than permuted ones.

        Rows of vectors also predict them by the nearest other row, since rewards may change within
        distances that features do not tell apart.
        """
        rng, own = np.random.default_rng(0), self.rewards[self.inner]
        drawn = [rng.permutation(own) for _ in range(_PERMUTATIONS)]
        targets = np.stack([own, *drawn], axis=1)
        if self.features is None:
            columns = self._numbers(self.inner, False)
            found = means_of_others(targets, targets.mean(axis=0), *columns)
            return self._is_chance(share_left(targets, found, targets))
        features = self._columns(self.inner, False)
        tested, found = targets[1::2], features[1::2] @ regress(features[::2], targets[::2])
        if not self._is_chance(share_left(tested, found, tested)):
            return False
        few, recorded = self.inner[:_MOST_NEAREST], self.solution.recorded
        action = self.solution.actions.weights(recorded.action[few])
        columns = [action, recorded.observation[few], recorded.next_observation[few]]
        flat = np.column_stack([column.reshape(len(few), -1) for column in columns])
        flat /= np.maximum(flat.std(axis=0), 1e-12)
        nearest = np.asarray(cKDTree(flat).query(flat, 2)[1])[:, 1]
        some = targets[: len(few)]
        return self._is_chance(share_left(some, some[nearest], some))

    @staticmethod
    def _is_chance(left: np.ndarray) -> bool:
        """Tell whether a permutation, of those after the first target, leaves less than it."""
        return bool(left[0] > left[1:].min())

    def _numbers(self, rows: np.ndarray, alone: bool) -> list[np.ndarray]:
        """Return state, action and next state, or the state, of indices."""
        recorded = self.solution.recorded
        columns = [recorded.observation, recorded.action, recorded.next_observation]
        return [column[rows] for column in columns[: 1 if alone else None]]

    def _columns(self, rows: np.ndarray, alone: bool) -> np.ndarray:
        """Return features of state and action together and of the next state, or of the state."""
        assert self.features is not None
        recorded = self.solution.recorded
        states = self.features(recorded.observation[rows])
        if alone:
            return states
        pairs = interactions(states, self.solution.actions.weights(recorded.action[rows]))
        return np.column_stack([pairs, self.features(recorded.next_observation[rows])])


def _features_of_vectors(
    solution: LeastSquares, rows: np.ndarray
) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return features of states, as many as the rows allow; None if these are too few."""
    basis = solution.basis
    most = min(_MOST_FEATURES, len(rows) // _ROWS_A_FEATURE) // solution.actions.size
    if not isinstance(basis, FourierBasis) or most < _FEWEST_OF_STATE:
        return None
    count = min(_MOST_OF_STATE, most)
    few, axes = few_features(basis, solution.recorded.observation[rows], count, 0)
    return lambda states: np.column_stack(
        [few.apply(states), states.reshape(len(states), -1) @ axes]
    )
