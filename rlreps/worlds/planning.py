"""Values and policies of a table of transitions, in double precision.

A table is a sparse matrix [n A, n] of probabilities: row s A + a holds the next states of action a
in state s. Terminal states lead to themselves and pay nothing.
"""

import math

import numpy as np
import scipy.sparse

from rlreps.errors import InputError, require, require_interval
from rlreps.numerics import as_real
from rlreps.typing import ArrayLike, DoubleArray
from rlreps.worlds.truths import SuccessorSolver, checked_discount

TransitionTable = scipy.sparse.csr_array

_TIE = 1e-12
"""Difference, relative to the best action's value, below which two values count as equal."""

_ROUNDING = 1e-14
"""Error of refined values and of advantages, relative to the discounted sum of absolute rewards."""

_LARGEST_DISCOUNT = 1.0 - 1e-9
"""Beyond it, that error is more than 10⁻⁵ of the reward of a step."""


def chain_of(table: TransitionTable, policy: DoubleArray) -> TransitionTable:
    """Return the transition matrix [n, n] of a policy [n, A] in a table [n A, n]."""
    states, actions = policy.shape
    rows = np.repeat(np.arange(states), actions)
    mixing = scipy.sparse.csr_array(
        (policy.ravel(), (rows, np.arange(states * actions))), (states, states * actions)
    )
    return scipy.sparse.csr_array(mixing @ table)


def action_values(
    table: TransitionTable, rewards: DoubleArray, values: DoubleArray, discount: float
) -> DoubleArray:
    """Compute r(s, a) + γ Σ P(s' | s, a) v(s') of values [n], [n, A]."""
    found: DoubleArray = rewards + discount * (table @ values).reshape(rewards.shape)
    return found


def policy_values(
    table: TransitionTable, rewards: DoubleArray, policy: DoubleArray, discount: float
) -> DoubleArray:
    """Solve for the values [n] of a policy [n, A] by a sparse LU."""
    gained = np.sum(policy * rewards, axis=1)
    return SuccessorSolver(chain_of(table, policy), discount).multiply(gained)


def advantages(
    table: TransitionTable, rewards: DoubleArray, values: DoubleArray, discount: float
) -> DoubleArray:
    """Compute r(s, a) − (1 − γ) v(s) + γ Σ P(s' | s, a) (v(s') − v(s)) of values [n], [n, A].

    These differences keep their digits where γ is close to 1 and values are large.
    """
    rows = np.repeat(np.arange(rewards.size), np.diff(table.indptr))
    apart = values[table.indices] - values[rows // rewards.shape[1]]
    gained = np.bincount(rows, table.data * apart, rewards.size).reshape(rewards.shape)
    found: DoubleArray = rewards - (1.0 - discount) * values[:, None] + discount * gained
    return found


def optimal_action_values(
    table: TransitionTable, rewards: DoubleArray, discount: float
) -> DoubleArray:
    """Compute Q* [n, A] by policy iteration.

    The values of a policy are refined by their advantages, which are zero for its own actions, so
    that their error does not grow with 1 / (1 − γ).

    Raises:
        InputError: For a discount outside [0, 1 − 10⁻⁹].
    """
    discount = checked_discount(discount)
    most = discount <= _LARGEST_DISCOUNT
    require(most, "a discount of at most 1 - 1e-9 (others leave too few digits)", discount)
    states, actions = rewards.shape
    every, chosen = np.arange(states), rewards.argmax(axis=1)
    for _ in range(states * actions):  # Rounding must not exchange policies for ever.
        solver = SuccessorSolver(chain_of(table, np.eye(actions)[chosen]), discount)
        values, gains = np.zeros(states), rewards
        for _ in range(3):
            values = values + solver.multiply(gains[every, chosen])
            gains = advantages(table, rewards, values, discount)
        # Sums of absolute rewards bound the rounding of each action's value, however small it is.
        sizes = solver.multiply(np.abs(rewards[every, chosen]))
        rounding = _ROUNDING * action_values(table, np.abs(rewards), sizes, discount)
        own = gains[every, chosen][:, None]
        # Two actions alone decide what tells them apart: a third's penalty may be far larger.
        least = np.maximum(rounding, rounding[every, chosen][:, None])
        better = gains > own + least
        if not better.any():
            break
        ahead = np.where(better, gains, -np.inf).argmax(axis=1)
        chosen = np.where(better.any(axis=1), ahead, chosen)
    # What rounding alone tells apart is equal.
    tied = np.abs(gains - own) <= least
    return values[:, None] + np.where(tied, own, gains)


def epsilon_greedy(values: ArrayLike, epsilon: float = 0.0) -> DoubleArray:
    """Return the probabilities [n, A] of the ε-greedy policy of values [n, A]; ties are shared.

    Values of a state that differ from its best by less than one part in 10¹² are ties. An action of
    the value −∞ is never greedy.

    Raises:
        InputError: For another shape, masked entries, or a state whose best value is not finite.
    """
    require_interval("epsilon", epsilon, "[0, 1]")
    table = as_real(values, "action values").astype(np.float64)
    require(table.ndim == 2 and table.size > 0, "action values [n, A]", table.shape)
    highest = table.max(axis=1, keepdims=True)
    require(bool(np.isfinite(highest).all()), "a finite best value of each state", "another")
    best = table >= highest - _TIE * np.abs(highest)
    greedy = best / best.sum(axis=1, keepdims=True)
    return np.asarray((1.0 - epsilon) * greedy + epsilon / table.shape[1])


def effective_horizon(
    table: TransitionTable,
    rewards: DoubleArray,
    start: DoubleArray,
    discount: float,
    steps: int,
    most: int = 20,
) -> float | None:
    """Bound the effective horizon of a deterministic game (Laidlaw et al. 2023).

    Q¹ are the values of the random policy, and Qᵏ⁺¹ those of one more step of value iteration. The
    bound of Theorem 5.4, for a k whose greedy policies are optimal, is

        H_k = k + max log_A(Qᵏ V* / Δᵏ²) + log_A(6 log(2 T A)),

    over states that optimal policies visit, with Qᵏ and V* of the best action and the gap Δᵏ to the
    best one that is not optimal. The theorem is for values of T steps; these are discounted values,
    since without a discount every early action of a long episode is optimal.

    Args:
        table: Transitions, [n A, n].
        rewards: Rewards, [n, A].
        start: Distribution of the first state, [n].
        discount: γ.
        steps: T.
        most: Largest k.

    Returns:
        The least H_k, k ≤ ``most``; None if there is none, nothing pays, a reward is negative, or
        there is one action.
    """
    states, actions = rewards.shape
    best = optimal_action_values(table, rewards, discount)
    value = best.max(axis=1)
    if actions < 2 or rewards.min() < 0.0 or not float(start @ value) > 0.0:
        return None
    right = best >= value[:, None] * (1.0 - _TIE)
    going = scipy.sparse.diags_array((right & (value > 0.0)[:, None]).ravel().astype(np.float64))
    visited, before = start > 0.0, -1
    while np.count_nonzero(visited) > before:
        before = int(np.count_nonzero(visited))
        visited = visited | ((going @ table).T @ np.repeat(visited, actions) > 0.0)
    counted = visited & (value > 0.0) & ~right.all(axis=1)
    extra = math.log(6.0 * math.log(2.0 * steps * actions), actions)
    uniform = np.full((states, actions), 1.0 / actions)
    current, bounds = policy_values(table, rewards, uniform, discount), []
    for k in range(1, most + 1):
        ours = action_values(table, rewards, current, discount)[counted]
        current = action_values(table, rewards, current, discount).max(axis=1)
        gap = ours.max(axis=1) - np.where(right[counted], -np.inf, ours).max(axis=1)
        if bool((gap > _TIE * ours.max(axis=1)).all()):
            ratio = float((ours.max(axis=1) * value[counted] / gap**2).max(initial=1.0))
            bounds.append(k + math.log(ratio, actions) + extra)
    return min(bounds, default=None)


def require_chances(what: str, chances: DoubleArray) -> None:
    """Raise an ``InputError`` if a probability is negative."""
    least = float(chances.min(initial=0.0))
    require(not least < 0.0, f"probabilities of {what} that are not negative", least)


def checked_policy(policy: ArrayLike | None, states: int, actions: int) -> DoubleArray:
    """Return the probabilities [n, A] of a policy; None is the uniformly random one.

    Raises:
        InputError: For another shape, or rows that are not distributions.
    """
    if policy is None:
        return np.full((states, actions), 1.0 / actions)
    found = as_real(policy, "a policy").astype(np.float64)
    require(found.shape == (states, actions), f"a policy [{states}, {actions}]", found.shape)
    require_chances("actions", found)
    off = np.abs(found.sum(axis=1) - 1.0).max()
    if not off < 1e-6:
        raise InputError(f"expected probabilities of actions that sum to 1, got {off:g} off")
    return np.asarray(found / found.sum(axis=1, keepdims=True))
