"""Worlds whose rewards count on arrival: steps to goals, exact components, counted worlds."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.typing import ArrayLike, DoubleArray
from rlreps.worlds import World


def expected_next(world: World, values: ArrayLike) -> DoubleArray:
    """Compute Σ P(s' | s, a) v(s') of values [n] or [n, m], [n, A] or [n, A, m]."""
    given = np.asarray(values, np.float64)
    following: DoubleArray = world.transitions @ given
    return following.reshape(*world.rewards.shape, *given.shape[1:])


def with_rewards(world: World, rewards: ArrayLike) -> World:
    """Return a world with other rewards [n], which are paid on arriving in each state."""
    paid = expected_next(world, rewards)
    return dataclasses.replace(world, rewards=paid, transition_rewards=None)


def least_steps(world: World, reached: ArrayLike, cap: int | None = None) -> DoubleArray:
    """Compute the least expected number of steps to a goal or a cap; 0 at the goal.

    Backward induction over the remaining steps: exact for a cap, else to rounding.

    Args:
        world: The world.
        reached: Which states belong to the goal, [n], or to each of m goals, [n, m].
        cap: Largest number of steps; None is as many as a goal needs, at most 10,000.

    Returns:
        [n] or [n, m].
    """
    goals = np.asarray(reached, np.bool_)
    steps: DoubleArray = np.zeros(goals.shape)
    for _ in range(cap or 10_000):
        before = steps
        steps = np.where(goals, 0.0, 1.0 + expected_next(world, before).min(axis=1))
        if cap is None and float(np.abs(steps - before).max()) <= 1e-9:
            break
    return steps


def exact_components(world: World, size: int, discount: float) -> DoubleArray:
    """Compute σu of the random policy's successor measure, uniformly weighted, [n, size].

    The sum starts at the first state reached, as in ``SuccessorRepresentation``.
    """
    solver = world.successor(discount=discount)
    left, values, _ = np.linalg.svd(solver.multiply(solver.chain.toarray()))
    return np.asarray(left[:, :size] * values[:size])


def count_world(
    before: npt.NDArray[np.int64],
    action: npt.NDArray[Any],
    after: npt.NDArray[np.int64],
    shape: tuple[int, int],
) -> World:
    """Estimate a world by counting; an action not tried in a state is assumed to stay there.

    Args:
        before: State of each transition, [N]; -1 leaves a transition out.
        action: [N].
        after: Next state, [N]; -1 leaves a transition out.
        shape: Numbers of states and of actions.
    """
    states, actions = shape
    known = (before >= 0) & (after >= 0)
    counts = np.zeros((actions, states, states))
    np.add.at(counts, (action[known], before[known], after[known]), 1.0)
    total = counts.sum(axis=2, keepdims=True)
    stay = np.eye(states)[None]
    chances = np.where(total > 0.0, counts / np.maximum(total, 1.0), stay)
    return World.from_arrays(probabilities=chances, rewards=np.zeros(shape))
