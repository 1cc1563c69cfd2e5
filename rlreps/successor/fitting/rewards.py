"""Rewards named after a fit: of sampled states, of all transitions, or of reaching a state."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rlreps.errors import require, warn_user
from rlreps.numerics import bytes_of, effective_number, hash_rows
from rlreps.subspace.ridge import ridge_by_leave_one_out
from rlreps.successor.fitting.basis import FourierBasis, blocks_of
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.nearest_rows import episode_starts
from rlreps.successor.fitting.observation_checks import MOST_TESTED_ROWS, regress
from rlreps.successor.fitting.observed import Observed, check_finite, format_observation
from rlreps.successor.fitting.record_checks import few_features

FEWEST_ARRIVALS = 100
"""Least number of arrivals at a goal without a warning: this count's relative error is 0.1."""

_SAME_REWARD = 1e-5
"""Rewards of one state that differ by less, relative to the largest reward, count as equal."""

_RARE = 0.05
"""Share of the transitions below which rewards are rare."""

_RECUR = 10
"""Mean number of rows of a state and action from which equal outcomes rule chance out."""

_MOST_SAMPLES = 5_000
"""Largest number of reward samples in a regression."""

_FEWEST_ROWS = 1_000
"""With fewer rows, rewards are not compared with other rows."""
_FEATURES, _MOST_FEATURES = 40, 800
"""Number of features of a state for this comparison, and the largest one of state and action."""
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


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A reward on arrival, made by ``SuccessorRepresentation.task`` or ``goal``.

    Attributes:
        solution: The solution that gives its values.
        rewards: The reward of arriving in the next state of each recorded transition, [N].
    """

    solution: LeastSquares
    rewards: np.ndarray

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """Weights of the action values of the data's policy, less ``constant``, [p, m_b]."""
        solution = self.solution
        centred = solution.centred(self.rewards)[0]
        return solution.arranged(solution.solve(solution.rewarded(centred)))[:, :, 0]

    @functools.cached_property
    def constant(self) -> float:
        """Added to the values of all states and actions; 0 if a row terminates."""
        return self.solution.centred(self.rewards)[1]


def sampled_task(
    solution: LeastSquares, observed: Observed, observations: Any, rewards: Any
) -> Task:
    """Return the task of rewards at samples of states; see ``SuccessorRepresentation.task``."""
    reached = solution.recorded.next_observation
    samples = observed.checked(observations)
    require(len(samples) >= 1, "at least one reward", len(samples))
    values = check_finite("rewards", rewards, len(samples))
    of_rows = np.array_equal(samples, reached)
    at_starts = np.array_equal(samples, solution.recorded.observation)
    if (of_rows or at_starts) and (told := _describe_misplaced(solution, values, at_starts)):
        warn_user(told)
    if of_rows:
        return rewarded_task(solution, values)
    kind = np.result_type(samples, reached)
    keys, inverse = np.unique(bytes_of(samples, kind), return_inverse=True)
    means = np.bincount(inverse, values) / np.bincount(inverse)
    apart = np.zeros(len(keys))
    np.maximum.at(apart, inverse, np.abs(values - means[inverse]))
    differ = apart > _SAME_REWARD * np.abs(values).max()
    if differ.any():
        warn_user(
            f"rewards of one state differ in {differ.sum():,} of {len(keys):,} states, by up "
            f"to {apart.max():.3g} from the mean, which the task takes: they depend on the "
            "action or on the state before, or are noise"
        )
    own = bytes_of(reached, kind)
    place = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
    known = keys[place] == own
    found = np.where(known, means[place], 0.0)
    if not known.all() and observed.num_states is None and len(samples) >= 2:
        few = np.random.default_rng(0).permutation(len(samples))[:_MOST_SAMPLES]
        ridge = ridge_by_leave_one_out(solution.features(samples[few]), values[few])
        guessed = solution.basis.project(reached[~known], ridge.weights)
        found[~known] = guessed + ridge.intercept
    return rewarded_task(solution, found)


def rewarded_task(solution: LeastSquares, rewards: np.ndarray) -> Task:
    """Return the task of these rewards; warn if none, or few transitions, tell them apart."""
    if not rewards.any():
        warn_user("no transition reaches a state with a reward, so all values are 0; collect more")
    median = float(np.median(rewards))
    apart = rewards - median
    count = round(float(effective_number(apart / max(np.abs(apart).max(), 1e-300))))
    rare = 0 < count < min(FEWEST_ARRIVALS, _RARE * len(rewards))
    if rare and not _certain(solution, rewards):
        have, few = ("has", "this one") if count == 1 else ("have", "these few")
        warn_user(
            f"{count} of {len(rewards):,} transitions {have} a reward far from the median, "
            f"{median:.3g}: values and policies depend on {few}; collect more of them"
        )
    return Task(solution, rewards)


def _describe_misplaced(solution: LeastSquares, rewards: np.ndarray, at_starts: bool) -> str:
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
    if len(inner) < _FEWEST_ROWS or effective_number(apart) < FEWEST_ARRIVALS:
        return ""
    fitted, left_out = inner[::2], inner[1::2]
    first = first if len(first) >= _FEWEST_FIRST else left_out
    if isinstance(solution.basis, FourierBasis) and size <= _MOST_FEATURES // _FEATURES:
        few, axes = few_features(solution.basis, recorded.observation[inner], _FEATURES, 0)

        def features(states: np.ndarray) -> np.ndarray:
            return np.column_stack([few.apply(states), states.reshape(len(states), -1) @ axes])

    elif (solution.basis.num_states or np.inf) <= _MOST_FEATURES // size:
        features = np.eye(solution.basis.num_features).__getitem__
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


def _certain(solution: LeastSquares, rewards: np.ndarray) -> bool:
    """Return whether states and actions recur, each with one outcome and reward.

    They recur ten times in the mean, and so do those with rewards far from the median.
    """
    numbers: list[np.ndarray] = []
    for column in (*solution.recorded, rewards):  # The first holds the observations.
        numbers.append(np.unique(hash_rows(column), return_inverse=True)[1])
        if _RECUR * (1 + int(numbers[0].max())) > len(rewards):
            return False
    pairs = numbers[0] * len(rewards) + numbers[1]
    _, pair, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    outcomes = np.unique(np.stack(numbers), axis=1).shape[1]
    apart = np.abs(rewards - np.median(rewards))
    told = counts[np.unique(pair[apart > 0.5 * apart.max()])]
    return outcomes == len(counts) and bool(min(counts.mean(), told.mean()) >= _RECUR)


def arriving_task(solution: LeastSquares, goal: np.ndarray) -> Task:
    """Return the task of reaching a state [1, ...]."""
    count, rewards = arrivals(solution, goal)
    rare = count is not None and count < FEWEST_ARRIVALS
    if rare and (count == 0 or not _certain(solution, rewards)):
        reach, few = ("reaches", "this one") if count == 1 else ("reach", "these few")
        warn_user(
            f"{count} of {len(rewards):,} transitions {reach} the goal "
            f"{format_observation(goal[0])}: its values and policy depend on {few}; collect more "
            "there"
        )
    return Task(solution, rewards)


def arrivals(solution: LeastSquares, goal: np.ndarray) -> tuple[int | None, np.ndarray]:
    """Return how many recorded rows reach a goal [1, ...], and the reward of arriving, [N].

    The values of this reward are the density m at the goal. For indices of states, the reward
    is N / (number of arrivals) on arrival; for others it is φ(s')ᵀ G⁻¹ φ(goal).

    For random Fourier features, a row reaches the goal if its kernel with the goal is at least
    0.95: it is then within a third of the kernel's width. Features of networks have no kernel,
    and the number of rows is None.
    """
    reached = solution.recorded.next_observation
    if solution.basis.num_states is not None:
        there = reached == goal[0]
        return int(there.sum()), there * (len(there) / max(1, int(there.sum())))
    count = None
    if isinstance(solution.basis, FourierBasis):
        count = int((solution.basis.nearness(reached, goal) >= 0.95).sum())
    there = solution.features(goal)[0]
    weights = np.linalg.solve(solution.reached_moment, there)
    blocks = blocks_of(len(reached), len(weights))
    return count, np.concatenate([solution.features(reached[some]) @ weights for some in blocks])
