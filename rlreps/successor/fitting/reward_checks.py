"""Tell whether rewards belong to their rows, by how well the rows beside predict them."""

from collections.abc import Callable

import numpy as np

from rlreps.numerics import effective_number
from rlreps.successor.fitting.basis import FourierBasis
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.nearest_rows import episode_starts
from rlreps.successor.fitting.observation_checks import MOST_TESTED_ROWS, regress
from rlreps.successor.fitting.record_checks import few_features

_FEWEST_REWARDS = 100
"""With fewer rewards far from the median, rewards are not compared with other rows."""
_FEWEST_ROWS = 1_000
"""With fewer rows, rewards are not compared with other rows."""
_FEWEST_FEATURES, _MOST_OF_STATE, _MOST_FEATURES = 10, 40, 800
"""Numbers of features of a state for this comparison, and largest one of state and action."""
_ROWS_A_FEATURE = 6
"""Smallest number of rows for each feature of state and action."""
_LEFT = 0.1
"""Share of the variance of rewards below which nothing is left to explain."""
_OTHER, _EXPLAINED = 0.3, 0.2
"""Share of its error that another row leaves, and of the variance that it explains, to be told."""
_AT_STARTS = (
    "the rewards depend on more than the states in which rows start: a reward is that of arriving; "
    "give transitions.next_observation to reward each row"
)
_FEWEST_FIRST, _LATE, _WRONG = 10, 10, 0.2
"""Number of episodes, how much worse than other rows and than the row before a first row predicts
its reward, and the share of the variance that this leaves, to be told."""


def describe_misplaced(solution: LeastSquares, rewards: np.ndarray, at_starts: bool) -> str:
    """Say whether rewards [N] seem to be those of other rows, or not of the states; "" otherwise.

    A linear regression predicts the reward of a row by features of state and action together and of
    the next state, of the row itself or of a row beside it in the episode. Rewards that are late
    may be functions of the state, but those of the first rows belong to the episode before.

    Args:
        solution: The fit.
        rewards: The reward that was given with each row.
        at_starts: Whether they were given as rewards of arriving where the rows start.
    """
    recorded, size = solution.recorded, solution.actions.size
    starts = episode_starts(recorded)
    rng = np.random.default_rng(0)
    inner = rng.permutation(1 + np.flatnonzero(~(starts[1:-1] | starts[2:])))[:MOST_TESTED_ROWS]
    first = rng.permutation(1 + np.flatnonzero(starts[1:-1]))[:MOST_TESTED_ROWS]
    apart = rewards - np.median(rewards)
    if len(inner) < _FEWEST_ROWS or effective_number(apart) < _FEWEST_REWARDS:
        return ""
    fitted, left_out = inner[::2], inner[1::2]
    first = first if len(first) >= _FEWEST_FIRST else left_out
    most = min(_MOST_FEATURES, len(inner) // _ROWS_A_FEATURE) // size
    if isinstance(solution.basis, FourierBasis) and most >= _FEWEST_FEATURES:
        count = min(_MOST_OF_STATE, most)
        few, axes = few_features(solution.basis, recorded.observation[inner], count, 0)

        def features(states: np.ndarray) -> np.ndarray:
            return np.column_stack([few.apply(states), states.reshape(len(states), -1) @ axes])

    elif (solution.basis.num_states or np.inf) <= most:
        one_hot = np.eye(solution.basis.num_features)

        def features(states: np.ndarray) -> np.ndarray:
            return np.asarray(one_hot[states])

    else:
        return ""

    def of_state(rows: np.ndarray) -> np.ndarray:
        return features(recorded.observation[rows])

    def of_row(rows: np.ndarray) -> np.ndarray:
        taken = solution.actions.weights(recorded.action[rows])
        pairs = np.einsum("np,nc->npc", of_state(rows), taken).reshape(len(rows), -1)
        return np.column_stack([pairs, features(recorded.next_observation[rows])])

    def errors(of: Callable[[np.ndarray], np.ndarray], step: int = 0) -> tuple[float, float]:
        """Return mean squared errors over the variance in rows left out, and in first rows."""
        weights = regress(of(fitted + step), rewards[fitted])
        left = [np.square(rewards[rows] - of(rows + step) @ weights) for rows in (left_out, first)]
        inside, at_first = (float(squares.mean() / rewards.var()) for squares in left)
        return inside, at_first

    own, own_first = errors(of_row)
    if at_starts:
        state = errors(of_state)[0]
        return _AT_STARTS * (state > _LEFT and own < min(_OTHER * state, 1.0 - _EXPLAINED))
    (before, before_first), (after, _) = errors(of_row, -1), errors(of_row, 1)
    if own_first > max(_LATE * own, _WRONG) and before_first < own_first / _LATE:
        name = "before"
    elif own < _LEFT or min(before, after) > min(_OTHER * own, 1.0 - _EXPLAINED):
        return ""
    else:
        name = "before" if before < after else "after"
    return (
        f"the rewards seem to be those of the rows {name}: a reward belongs to the row whose "
        "action it follows"
    )
