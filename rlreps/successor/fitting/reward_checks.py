"""Check whether rewards belong to their rows, by how well the rows beside predict them."""

import dataclasses

import numpy as np
from scipy.spatial import cKDTree

from rlreps.numerics import effective_number
from rlreps.successor.fitting.basis import FourierBasis
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.nearest_rows import episode_starts
from rlreps.successor.fitting.regressions import (
    FEWEST_TESTED_ROWS,
    MOST_TESTED_ROWS,
    PERMUTATIONS,
    Columns,
    errors,
    predict,
    share_left,
)

_FEWEST_REWARDS = 100  # Nothing is compared with fewer rewards far from the median.
_FEWEST_FIRST = 10  # First rows are compared in at least so many episodes.
_ROWS_A_FEATURE = 6  # Smallest number of rows for each feature of state and action.
_MOST_FEATURES = 800  # Largest number of features of state and action.
_FEWEST_OF_STATE, _MOST_OF_STATE = 10, 40  # Numbers of Fourier features of a state.
_MOST_NEAREST = 4_000  # Nearest rows are sought among so many.

_LEFT = 0.1  # Something is left to explain, or explained, from this share of the variance on.
_BETTER = 5  # The odds of what a better predictor leaves are smaller by this factor.
_EXACT, _SMALL = 30, 0.01  # Errors below _LEFT, down to the second, differ by this factor.
_LATE = 10  # First rows leave more than so many times the error of others if rewards are late.


def describe_arriving(solution: LeastSquares, rewards: np.ndarray) -> str:
    """Say whether rewards [N], given with the states where rows start, are those of arriving."""
    if (rows := _Rewards.of(solution, rewards)) is None:
        return ""
    state, row = (rows.errors(alone=alone)[0] for alone in (True, False))
    if state <= _LEFT or not _is_better(row, state):
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
    if (rows := _Rewards.of(solution, rewards)) is None:
        return ""
    own, own_first = rows.errors()
    (before, before_first), (after, _) = rows.errors(-1), rows.errors(1)
    late = own_first > _LATE * own and _is_better(before_first, own_first)
    name, other = ("before", before) if late or before < after else ("after", after)
    if late or _is_better(other, own):
        return (
            f"the rewards seem to be those of the rows {name}: a reward belongs to the row whose "
            "action it follows"
        )
    if own > _LEFT and rows.are_unrelated():
        return (
            "states and actions tell nothing measurable of the rewards: they belong to other rows, "
            "are noise, or depend on what is not observed; no policy is then better than another"
        )
    return ""


def _is_better(other: float, own: float) -> bool:
    """Tell whether an error is clearly smaller than another, both as shares of the variance."""
    if own <= _SMALL or other >= 1.0 - _LEFT:
        return False
    factor = _BETTER if own > _LEFT else _EXACT
    return own >= 1.0 or factor * other / (1.0 - other) < own / (1.0 - own)


@dataclasses.dataclass(frozen=True, eq=False)
class _Rewards:
    """Predictions of rewards by state, action and next state of rows, or by states alone.

    Attributes:
        solution: The fit.
        rewards: The reward that was given with each row, [N].
        columns: What predicts.
        inner: Rows that have rows of the episode beside them, if these are many.
        first: First rows of episodes, if these are many.
    """

    solution: LeastSquares
    rewards: np.ndarray
    columns: Columns
    inner: np.ndarray
    first: np.ndarray

    @classmethod
    def of(cls, solution: LeastSquares, rewards: np.ndarray) -> "_Rewards | None":
        """Draw rows; return None if rows, rewards or features are too few."""
        recorded, basis, actions = solution.recorded, solution.basis, solution.actions
        starts, rng = episode_starts(recorded), np.random.default_rng(0)
        inner = 1 + np.flatnonzero(~(starts[1:-1] | starts[2:]))
        if len(inner) < FEWEST_TESTED_ROWS:  # Episodes are short.
            inner = np.arange(1, len(rewards) - 1)
        inner = rng.permutation(inner)[:MOST_TESTED_ROWS]
        first = rng.permutation(1 + np.flatnonzero(starts[1:-1]))[:MOST_TESTED_ROWS]
        count = min(_MOST_FEATURES, len(inner) // _ROWS_A_FEATURE) // actions.size
        vectors = isinstance(basis, FourierBasis) and count >= _FEWEST_OF_STATE
        counted = basis.num_states is not None and actions.num_actions is not None
        many = effective_number(rewards - np.median(rewards)) >= _FEWEST_REWARDS
        if len(inner) < FEWEST_TESTED_ROWS or not many or not (vectors or counted):
            return None
        seen, count = recorded.observation[inner], min(_MOST_OF_STATE, count)
        columns = Columns.of(basis, actions, seen, count, 0)
        return cls(
            solution, rewards, columns, inner, first if len(first) >= _FEWEST_FIRST else first[:0]
        )

    def of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the columns of state and action together, and of the next state."""
        recorded = self.solution.recorded.at(rows)
        pair = self.columns.of_pair(recorded.observation, recorded.action)
        return *pair, *self.columns.of_state(recorded.next_observation)

    def errors(self, step: int = 0, alone: bool = False) -> tuple[float, float]:
        """Predict the reward of a row by the row ``step`` rows later, or by its state alone.

        Returns:
            Mean squared errors over the variance, in inner rows and in first rows (if they are
            many).
        """
        # What belongs to rows before may follow from terminal states, which only first rows show.
        rows = np.concatenate([self.inner, np.setdiff1d(self.first, self.inner)])
        states, rewards = self.solution.recorded.observation, self.rewards[rows]
        seen = self.columns.of_state(states[rows]) if alone else self.of_rows(rows + step)
        tested, found = predict(rewards[:, None], *seen)
        squares, rows = np.square(rewards[tested] - found[:, 0]) / self.rewards.var(), rows[tested]
        inside = float(squares[np.isin(rows, self.inner)].mean())
        at_first = np.isin(rows, self.first)
        return inside, float(squares[at_first].mean()) if at_first.any() else inside

    def are_unrelated(self) -> bool:
        """Tell whether rows predict their own rewards no better than permuted ones.

        Rows of vectors also predict them by the nearest other row, since rewards may change within
        distances that features do not tell apart.
        """
        rng, own = np.random.default_rng(0), self.rewards[self.inner]
        drawn = [rng.permutation(own) for _ in range(PERMUTATIONS)]
        targets = np.stack([own, *drawn], axis=1)
        left = [errors(targets, *self.of_rows(self.inner))]
        if self.columns.few is not None:
            few, targets = (
                self.solution.recorded.at(self.inner[:_MOST_NEAREST]),
                targets[:_MOST_NEAREST],
            )
            actions = self.solution.actions.weights(few.action)
            columns = actions, few.observation, few.next_observation
            flat = np.column_stack([column.reshape(len(actions), -1) for column in columns])
            flat /= np.maximum(flat.std(axis=0), 1e-12)
            nearest = np.asarray(cKDTree(flat).query(flat, 2)[1])[:, 1]
            left.append(share_left(targets, targets[nearest], targets))
        return all(each[0] > each[1:].min() for each in left)
