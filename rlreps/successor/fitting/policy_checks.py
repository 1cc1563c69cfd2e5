"""Checks of policies: what the data tell about actions, and whether the kernel suits the reward.

Functions return a warning, or "" where there is none.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy.spatial import KDTree

from rlreps.numerics import interruptible
from rlreps.successor.fitting.basis import DenseBasis, FourierBasis
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.products import MOST_UNKNOWNS

_MOST_ALONE = 0.5
"""Share of the rows that may start in states in which only one action was tried."""
_NARROWER = 0.25
"""Width of the kernel that judges action values, in widths of the kernel of the fit."""
_NARROW_RIDGE = 1e-4
"""Ridge of this kernel: small, so that it explains more than the kernel of the fit."""
_ALIKE = 1e-8
"""Share of the mean square of values below which differences between actions are rounding."""
_JUDGES = 300
"""Number of features of the state of the narrower kernel; fewer if there are many actions."""
_FEWEST_JUDGES = 50
_MOST_JUDGED = 20_000
"""Largest number of rows that judge action values."""
_MOST_PREDICTABLE = 0.35
"""Good policies of 18 problems had at most 0.13, but one had 0.32. Bad ones of six had at least
0.37, and a seventh, which is told that its reward is rare, 0.32."""
_LEFT_TO_STATES = 0.01
"""Share of the variance of rewards that actions leave, below which states do not matter."""
_NEAREST = (60, 5)
"""Number of nearest rows, one of which has an action that was tried: at least, and for each action.
An action with a local share of 5 % is missing from sixty rows with a chance of 0.05."""
_FEWEST_FAR = 10
"""The nearest rows are at most one row in so many."""
_MOST_ASKED = 1_000
"""Largest number of states in which a policy is compared with the nearest rows."""
_MOST_UNTRIED = 0.05
"""Good policies of random and mixed logs had at most 0.01, one of a controller's log 0.05; a bad
one of such a log 0.08."""
_STRETCHES = 100
"""Number of stretches of time that two halves of the rows take in turn."""


def describe_unseen(solution: LeastSquares, states: np.ndarray, actions: np.ndarray) -> str:
    """Name indices of states [m] in which no row starts, and actions [m, k] that none takes there.

    Nothing is said of states that ended episodes, since 0 is their value, of actions of a box, or
    of vectors: "".
    """
    if solution.basis.num_states is None:
        return ""
    missing, unknown = [], np.unique(states[solution.unknown[states]])
    if unknown.size:
        more = f" and {unknown.size - 1:,} more" if unknown.size > 1 else ""
        missing.append(f"starts from state {unknown[0]}{more}")
    if solution.tried is None:
        return "".join(missing)
    row, column = np.nonzero(~solution.tried[states[:, None], actions])
    if row.size:
        pairs = np.unique([states[row], actions[row, column]], axis=1)
        more = f" (one of {pairs.shape[1]:,} pairs)" if pairs.shape[1] > 1 else ""
        missing.append(f"takes action {pairs[1, 0]} in state {pairs[0, 0]}{more}")
    return " or ".join(missing)


def describe_alike(solution: LeastSquares, rewards: np.ndarray) -> str:
    """Return a warning if all rewards [N] are one that no policy changes; else ""."""
    if np.ptp(rewards) != 0.0 or (rewards[0] != 0.0 and solution.recorded.terminated.any()):
        return ""
    ends = "" if rewards[0] == 0.0 else " and none ends an episode"
    return (
        f"all transitions have the reward {rewards[0]:.3g}{ends}: their values do not tell "
        "actions apart; collect others"
    )


def describe_costs(solution: LeastSquares, rewards: np.ndarray) -> str:
    """Return a warning if rewards of all recorded rows, [N], are hardly more than costs of actions.

    They are if no row terminates, and a regression on the action alone leaves less than 1 % of
    their variance: a mean for each discrete action, or a quadratic polynomial. Else returns "".
    """
    if solution.recorded.terminated.any() or np.ptp(rewards) == 0.0:
        return ""
    some = np.random.default_rng(0).permutation(len(rewards))[:_MOST_JUDGED]
    actions, rewards = solution.recorded.action[some], rewards[some]
    if solution.actions.num_actions is not None:
        _, which, counts = np.unique(actions, return_inverse=True, return_counts=True)
        left, rank = rewards - (np.bincount(which, rewards) / counts)[which], len(counts)
    else:
        features = solution.actions.weights(actions).astype(np.float64)
        weights, _, rank, _ = np.linalg.lstsq(features, rewards)
        left = rewards - features @ weights
    if len(left) <= rank or np.square(left).sum() / (len(left) - rank) >= (
        _LEFT_TO_STATES * rewards.var(ddof=1)
    ):
        return ""
    return (
        "states explain less than 1% of the variance of rewards, and actions the rest: the policy "
        "may only avoid costs of actions; collect transitions with other rewards"
    )


def describe_untried(solution: LeastSquares, actions: np.ndarray) -> str:
    """Return a warning if most rows leave a policy a single action to choose; else ""."""
    if not np.ptp(actions, axis=1).any():
        return (
            "all transitions have the same action, and the policy takes no other: it is the "
            "data's; collect transitions of other actions"
        )
    if solution.tried is None:
        return ""
    alone = solution.tried.sum(axis=1) == 1
    share = float(alone[solution.rows.observation].mean())
    if share <= _MOST_ALONE:
        return ""
    return (
        f"{share:.0%} of the transitions start in states in which only one action was tried, and "
        "the policy takes no other there; collect transitions of other actions"
    )


def describe_departures(solution: LeastSquares, choose: Callable[[np.ndarray], np.ndarray]) -> str:
    """Return a warning if a policy takes actions that the nearest rows do not have; else "".

    The policy maps states [m, ...] to actions [m]. Indices of states and boxes of actions are not
    judged.
    """
    basis, count = solution.basis, solution.actions.num_actions
    if count is None or basis.num_states is not None:
        return ""
    assert isinstance(basis, DenseBasis)
    nearest, rows = max(_NEAREST[0], _NEAREST[1] * count), len(solution.recorded.action)
    some = np.random.default_rng(0).permutation(rows)[:_MOST_JUDGED]
    if len(some) < _FEWEST_FAR * nearest:
        return ""
    seen, taken = solution.recorded.observation[some], solution.recorded.action[some]
    asked = seen[:_MOST_ASKED]
    places = basis.coordinates(seen)
    _, near = KDTree(places).query(places[: len(asked)], k=nearest)
    tried = (taken[near] == choose(asked)[:, None]).any(axis=1)
    share = 1.0 - float(tried.mean())
    if share <= _MOST_UNTRIED:
        return ""
    return (
        f"in {share:.0%} of the data's states the policy takes an action that none of the "
        f"{nearest} nearest rows has: its values may be extrapolated; collect transitions of "
        "other actions, such as random ones"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class KernelCheck:
    """A check whether the kernel of random Fourier features suits a reward.

    Attributes:
        solution: The fit.
    """

    solution: LeastSquares

    def describe(self, rewards: np.ndarray, weights: np.ndarray) -> str:
        """Say whether TD errors are predictable, with the arguments of ``predictable``."""
        share = self.predictable(rewards, weights)
        if share <= _MOST_PREDICTABLE:
            return ""
        return (
            "the kernel is too wide for this reward: one of a quarter of its width predicts TD "
            f"errors, of at least {share:.0%} of the differences between actions; try "
            "improvements=None, or fit a smaller width"
        )

    def predictable(self, rewards: np.ndarray, weights: np.ndarray) -> float:
        """Return the predictable part of TD errors, relative to the data policy's advantages.

        The TD errors of exact values are noise. Here, a regression on features of a narrower kernel
        predicts TD errors of other rows. The result is √(e / E[(Q(s, a) − V(s))²]), where e is the
        mean square that the regression explains, at the lower end of its 95 % interval. Action
        values with large predictable errors rank actions badly. The result is 0 for features
        without a kernel, and if actions hardly differ: then no kernel helps.

        Args:
            rewards: Rewards of all rows, less the constant that the weights leave out, [N].
            weights: Weights of the action values, [p, m_b].
        """
        solution = self.solution
        chosen, half, judges = self._judges
        if not judges:
            return 0.0
        rows, values = solution.recorded.at(chosen), weights[:, :, None]
        taken = solution.actions.weights(rows.action)
        found = solution.valued(values, rows.observation, taken)
        now, then = (
            solution.valued(values, states, solution.behaviour(states))
            for states in (rows.observation, rows.next_observation)
        )
        later = solution.discount * ~rows.terminated[:, None] * then
        errors = rewards[chosen, None] + later - found
        left = errors.copy()
        for own, other in itertools.permutations(range(2)):
            judge, tested = judges[own], half == other
            right = judge.right_hand_side(errors[half == own])
            fitted = judge.arranged(interruptible(np.linalg.solve, judge.gram, right))
            left[tested] -= judge.valued(fitted, rows.observation[tested], taken[tested])
        explained = np.square(errors) - np.square(left)
        each = np.array([part.mean() for part in np.array_split(explained, _STRETCHES)])
        least = each.mean() - 1.96 * each.std() / math.sqrt(_STRETCHES)
        advantages = np.square(found - now).mean()
        # Single precision gives no smaller differences between actions of one value.
        if advantages <= _ALIKE * np.square(found).mean():
            return 0.0
        return float(np.sqrt(max(0.0, least) / advantages))

    @functools.cached_property
    def _judges(self) -> tuple[np.ndarray, np.ndarray, list[LeastSquares]]:
        """Some rows, the half that each is in, and equations of each half in a narrower kernel.

        Stretches of time alternate between the halves. The list of equations is empty for features
        without a kernel, too many actions, or too few rows.
        """
        solution, basis = self.solution, self.solution.basis
        rows, actions = solution.recorded, solution.actions
        chosen = np.random.default_rng(0).permutation(len(rows.action))[:_MOST_JUDGED]
        chosen = np.sort(chosen)
        half = np.arange(len(chosen)) * _STRETCHES // len(chosen) % 2
        count = min(_JUDGES, MOST_UNKNOWNS // actions.size, len(chosen) // 10)
        if not isinstance(basis, FourierBasis) or count < _FEWEST_JUDGES:
            return chosen, half, []
        narrow = FourierBasis.of(
            rows.observation, count, _NARROWER, 0, basis.axes.astype(np.float64)
        )
        given = solution.discount, _NARROW_RIDGE, solution.behaviour
        parts = [rows.at(chosen[half == number]) for number in range(2)]
        return chosen, half, [LeastSquares(narrow, actions, part, *given) for part in parts]
