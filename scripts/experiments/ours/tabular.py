"""Markov decision processes with few states: exact values, optimal policies, counted models."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.errors import require, require_interval
from rlreps.typing import ArrayLike, DoubleArray

_FAR = 10_000.0
"""A goal counts as out of reach beyond this many expected steps."""


@dataclasses.dataclass(frozen=True, eq=False)
class TabularModel:
    """A Markov decision process of n states, whose rewards count on arrival.

    Attributes:
        to: Probabilities of the next state by action and state, [A, n, n].
    """

    to: DoubleArray

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return len(self.to[0])

    @cached_property
    def uniform(self) -> DoubleArray:
        """The uniformly random policy, [n, A]."""
        actions = len(self.to)
        return np.full((self.num_states, actions), 1.0 / actions)

    def probabilities(self, policy: ArrayLike) -> DoubleArray:
        """Return the probabilities [n, A] of a policy, given as probabilities or as actions [n]."""
        given = np.asarray(policy)
        if given.ndim == 2:
            return np.asarray(given, np.float64)
        chosen: DoubleArray = np.eye(len(self.to))[given]
        return chosen

    def policy_values(self, policy: ArrayLike, rewards: ArrayLike, discount: float) -> DoubleArray:
        """Solve for V(s) = E Σ_t γᵗ r(s_{t+1}) of one policy, [n, m].

        Args:
            policy: Probabilities [n, A], or actions [n].
            rewards: The reward of arriving in each state, [n, m].
            discount: γ.
        """
        rewards = np.asarray(rewards, np.float64)
        chain = np.einsum("sa,ast->st", self.probabilities(policy), self.to)
        kernel = np.eye(self.num_states) - discount * chain
        return np.linalg.solve(kernel, chain @ rewards)

    def optimal_action_values(self, rewards: ArrayLike, discount: float) -> DoubleArray:
        """Iterate Q(s, a) = Σ P(s' | s, a)(r(s') + γ max_b Q(s', b)) to rounding, [n, A, m].

        ``rewards`` [n, m] count on arriving in each state.
        """
        require_interval("discount", discount, "[0, 1)")
        rewards = np.asarray(rewards, np.float64)
        require(
            rewards.shape[:1] == (self.num_states,),
            f"rewards [{self.num_states}, m]",
            rewards.shape,
        )
        best: DoubleArray = np.zeros_like(rewards)
        tolerance = 1e-10 * max(1.0, float(np.abs(rewards).max(initial=0.0)))
        while True:
            values = self.backed_up(rewards + discount * best)
            new = values.max(axis=1)
            if float(np.abs(new - best).max(initial=0.0)) <= tolerance:
                return values
            best = new

    def least_steps(self, reached: ArrayLike) -> DoubleArray:
        """Iterate T(s) = 1 + min_a Σ P(s' | s, a) T(s') to rounding, with T = 0 on arrival.

        Args:
            reached: Which states belong to each of m goals, [n, m].

        Returns:
            The least expected number of steps to each goal, [n, m].

        Raises:
            InputError: If a goal is farther than 10,000 steps from a state.
        """
        goals = np.asarray(reached, np.bool_)
        steps: DoubleArray = np.zeros(goals.shape)
        while True:
            new = np.where(goals, 0.0, 1.0 + self.backed_up(steps).min(axis=1))
            if float(np.abs(new - steps).max()) <= 1e-9:
                return new
            steps, most = new, float(new.max())
            require(most < _FAR, "goals that can be reached from every state", f"{most:g} steps")

    def steps_within(self, reached: ArrayLike, cap: int) -> DoubleArray:
        """Compute the least expected number of steps to a goal or a cap, [n]; 0 at the goal.

        Exact, by backward induction over the remaining steps. ``reached`` [n] marks the goal.
        """
        goal = np.asarray(reached, np.bool_)
        steps: DoubleArray = np.zeros(len(goal))
        for _ in range(cap):
            steps = np.where(goal, 0.0, 1.0 + (self.to @ steps).min(axis=0))
        return steps

    def components(self, size: int, discount: float) -> DoubleArray:
        """Compute σu of the random policy's successor measure, uniformly weighted, [n, size].

        The sum starts at the first state reached, as in ``SuccessorRepresentation``.
        """
        measure = self.policy_values(self.uniform, np.eye(self.num_states), discount)
        left, values, _ = np.linalg.svd(measure)
        return np.asarray(left[:, :size] * values[:size])

    def backed_up(self, values: DoubleArray) -> DoubleArray:
        """Compute Σ P(s' | s, a) v(s') of values [n, m], [n, A, m]."""
        following: DoubleArray = np.einsum("ast,tm->sam", self.to, values, optimize=True)
        return following


@dataclasses.dataclass(frozen=True, eq=False)
class TabularProblem:
    """A model with several rewards.

    Attributes:
        model: The model.
        rewards: Reward of arriving in each state, [n, m].
        discount: γ.
    """

    model: TabularModel
    rewards: DoubleArray
    discount: float

    @cached_property
    def random(self) -> DoubleArray:
        """Values of the random policy, [n, m]."""
        return self.model.policy_values(self.model.uniform, self.rewards, self.discount)

    @cached_property
    def optimal(self) -> DoubleArray:
        """Optimal values, [n, m]."""
        values = self.model.optimal_action_values(self.rewards, self.discount)
        return np.asarray(values.max(axis=1))

    def gains(self, policies: Sequence[npt.NDArray[Any]]) -> DoubleArray:
        """Compute policies' gains over the random policy, as shares of the optimal gains, [m].

        Args:
            policies: One for each of the first rewards: probabilities [n, A], or actions [n].
        """
        values = [
            self.model.policy_values(policy, self.rewards[:, [index]], self.discount).mean()
            for index, policy in enumerate(policies)
        ]
        count = len(policies)
        least = self.random[:, :count].mean(axis=0)
        gains: DoubleArray = (values - least) / (self.optimal[:, :count].mean(axis=0) - least)
        return gains


def greedy(values: ArrayLike) -> list[npt.NDArray[np.intp]]:
    """Return the actions [n] of greatest values [n, A, m], for each of m rewards."""
    return list(np.argmax(values, axis=1).T)


def estimate_model(
    before: npt.NDArray[np.int64],
    action: npt.NDArray[Any],
    after: npt.NDArray[np.int64],
    shape: tuple[int, int],
) -> TabularModel:
    """Estimate a model by counting; an action not tried in a state is assumed to stay there.

    Args:
        before: State of each transition, [N]; -1 leaves a transition out.
        action: [N].
        after: Next state, [N]; -1 leaves a transition out.
        shape: Numbers of actions and of states.
    """
    actions, states = shape
    known = (before >= 0) & (after >= 0)
    counts = np.zeros((actions, states, states))
    np.add.at(counts, (action[known], before[known], after[known]), 1.0)
    total = counts.sum(axis=2, keepdims=True)
    stay = np.eye(states)[None]
    return TabularModel(np.where(total > 0.0, counts / np.maximum(total, 1.0), stay))
