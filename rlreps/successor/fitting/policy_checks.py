"""Checks of policies: what the data tell about actions and rewards.

Functions return a warning, or "" where there is none.
"""

import numpy as np

from rlreps.successor.fitting.least_squares import LeastSquares

_MOST_ALONE = 0.5
"""Share of the rows that may start in states in which only one action was tried."""
_MOST_JUDGED = 20_000
"""Largest number of rows that are compared."""
_LEFT_TO_STATES = 0.01
"""Share of the variance of rewards that actions leave, below which states do not matter."""


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
