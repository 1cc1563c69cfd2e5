"""Rewards named after a fit: of sampled states, of all transitions, or of reaching a state."""

import dataclasses
import functools
from typing import Any

import numpy as np

from rlreps.errors import require, warn_user
from rlreps.numerics import bytes_of, effective_number, hash_rows
from rlreps.subspace.ridge import ridge_by_leave_one_out
from rlreps.successor.fitting.basis import FourierBasis, blocks_of
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.observed import Observed, check_finite, format_observation
from rlreps.successor.fitting.reward_checks import describe_arriving, describe_shifted

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
    describe = describe_arriving if at_starts else describe_shifted
    if of_rows or at_starts:
        warn_user(describe(solution, values))
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
    decisive = counts[np.unique(pair[apart > 0.5 * apart.max()])]
    return outcomes == len(counts) and bool(min(counts.mean(), decisive.mean()) >= _RECUR)


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
