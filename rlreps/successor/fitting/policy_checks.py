"""Checks of policies: what the data tell about actions, rewards and the returns of a policy.

Functions return a warning, or "" where there is none; ``Appraisal`` decides between policies.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.

from rlreps.successor.fitting.least_squares import LeastSquares

_MOST_ALONE = 0.5
"""Share of the rows that may start in states in which only one action was tried."""
_MOST_JUDGED = 20_000
"""Largest number of rows that are compared."""
_LEFT_TO_STATES = 0.01
"""Share of the variance of rewards that actions leave, below which states do not matter."""
_MOST_NEGATIVE = 0.2
"""Good policies of nine problems had at most 0.13, bad ones that left the data at least 0.36."""
_BETTER = 0.05
"""Share of its gain over the data by which one improvement has to be better to replace another."""
_LEVEL = 0.05
"""Level of the one-sided test that one improvement is better."""
_FREE = 2.0
"""Multiple of a limited policy's gain over the data that a policy of all actions has to gain."""
_MOST_MISSED = 0.4
"""Share of the promised gain that a policy may miss on the nearest rows; good ones miss 0.2."""


def describe_unseen(solution: LeastSquares, states: np.ndarray, actions: np.ndarray) -> str:
    """Name indices of states [m] in which no row starts, and actions [m, k] that none takes there.

    Nothing is said of states that ended episodes, since 0 is their value, of actions of a box, or
    of vectors: "".
    """
    known = solution.known
    if known is None:
        return ""
    missing, unknown = [], np.unique(states[~(known.started | known.ended)[states]])
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


def describe_constant_rewards(solution: LeastSquares, rewards: np.ndarray) -> str:
    """Return a warning if all rewards [N] are one that no policy changes; else ""."""
    if np.ptp(rewards) != 0.0 or (rewards[0] != 0.0 and solution.recorded.terminated.any()):
        return ""
    ends = "" if rewards[0] == 0.0 else " and none ends an episode"
    return (
        f"all transitions have the reward {rewards[0]:.3g}{ends}: their values do not tell "
        "actions apart; collect others"
    )


def describe_action_only_rewards(solution: LeastSquares, rewards: np.ndarray) -> str:
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


def describe_untried_actions(solution: LeastSquares, actions: np.ndarray) -> str:
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


class Appraisal(NamedTuple):
    """The values of a policy where walks along the nearest rows start.

    Attributes:
        returns: Discounted rewards of each of the policy's walks, [m].
        promised: Mean of the values by which the policy chooses.
        data: Mean value of the data's policy.
        constant: Left out of all of these, since it would round differences away.
    """

    returns: np.ndarray
    promised: float
    data: float
    constant: float

    @property
    def value(self) -> float:
        """Mean value of the policy on the nearest rows."""
        return float(self.returns.mean())

    @property
    def gain(self) -> float:
        """What the policy gains over the data's."""
        return self.value - self.data

    @property
    def overpromises(self) -> bool:
        """Whether the policy misses much of the gain that it promises."""
        return self.promised - self.value > _MOST_MISSED * (self.promised - self.data)

    def replaces_fitted(self, fitted: "Appraisal") -> bool:
        """Tell whether one improvement, appraised here, replaces fitted Q iteration."""
        better = self.value - fitted.value > _BETTER * abs(self.gain)
        return better and self._surely_exceeds(fitted)

    def replaces_constrained(self, constrained: "Appraisal", one_step: "Appraisal") -> bool:
        """Tell whether a policy of all actions replaces one of likely actions.

        Args:
            constrained: The policy of likely actions.
            one_step: One improvement, of likely actions.
        """
        better = self.value > one_step.value and self.gain > _FREE * max(constrained.gain, 0.0)
        return better and not self.overpromises and self._surely_exceeds(constrained)

    def _surely_exceeds(self, other: "Appraisal") -> bool:
        """Tell whether the mean return exceeds another's by a one-sided t-test of paired walks.

        Equal positive differences do: ten walks or more have the same sign by chance in one case of
        1,024.
        """
        more = self.returns - other.returns
        error = float(more.std(ddof=1)) / math.sqrt(len(more))
        return float(more.mean()) > float(scipy.stats.t.ppf(1.0 - _LEVEL, len(more) - 1)) * error


def describe_unlikely(unconstrained: Appraisal, constrained: Appraisal) -> str:
    """Return the warning that a policy of all actions replaces one of likely actions."""
    values = [each.value + each.constant for each in (unconstrained, constrained)]
    return (
        "the data's policy hardly takes the actions of a better policy: walks along the nearest "
        "rows give a policy that chooses from all actions a mean value of "
        f"{values[0]:.3g}, and one that chooses from likely actions {values[1]:.3g}; the policy "
        "chooses from all; collect more of them"
    )


def describe_replaced(fitted: Appraisal, one_step: Appraisal) -> str:
    """Return the warning that one improvement replaces fitted Q iteration."""
    values = [each.value + each.constant for each in (one_step, fitted)]
    return (
        "one improvement is better than fitted Q iteration and replaces it: walks along the "
        f"nearest rows give its policy a mean value of {values[0]:.3g}, and the other "
        f"{values[1]:.3g}"
    )


def describe_overpromised(policy: Appraisal) -> str:
    """Return the warning that a policy's values promise more than its walks return."""
    promised, value, data = (
        each + policy.constant for each in (policy.promised, policy.value, policy.data)
    )
    return (
        f"the policy's values are not credible: their mean is {promised:.3g}, but walks along the "
        f"nearest rows give the policy {value:.3g} (the data's policy: {data:.3g}); collect data "
        "of this policy too"
    )


def describe_departure(ratios: np.ndarray) -> str:
    """Return a warning if a policy leaves the data, by ratios of its visits to the rows [N]."""
    squares = np.square(ratios)
    negative = squares[ratios < 0.0].sum() / squares.sum()
    if not negative > _MOST_NEGATIVE:  # NaN if the policy visits no row.
        return ""
    return (
        f"the policy leaves the data, where values are extrapolated: {negative:.0%} of the squared "
        "ratios of its visits to those of the data are negative; record steps of this policy too, "
        "or try improvements=1"
    )
