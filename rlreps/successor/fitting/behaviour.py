"""The policy that made the data: counts or a regression of its actions, or a user's function."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from jax import Array

from rlreps.errors import require
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, DenseBasis, UnitVectors, blocks_of
from rlreps.successor.fitting.least_squares import Steps

ArrayT = TypeVar("ArrayT", np.ndarray, Array)


@dataclasses.dataclass(frozen=True, eq=False)
class EstimatedBehaviour:
    """E[b(a) | s] from counts (unit vectors φ) or a regression on φ, with weights [p, m_b]."""

    basis: Basis
    weights: np.ndarray
    num_actions: int | None

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return to_probabilities(self.basis.project(states, self.weights), self.num_actions)


def basis_of_policy(basis: Basis) -> Basis:
    """Return the features of policies: those of a fit, or unit vectors for indices of states."""
    return basis if basis.num_states is None else UnitVectors(basis.num_states)


def estimate_behaviour(
    basis: Basis, actions: ActionBasis, rows: Steps, held: np.ndarray
) -> EstimatedBehaviour:
    """Count actions in each index of a state, or regress b(a) on φ(s).

    States (indices) in which no row starts take the mean over all rows. For other observations, the
    held-out rows (``held`` [N] marks them) choose the ridge. If the regression's squared error on
    these rows is not at least 1 % below the error of a policy that does not depend on the state,
    the result is this policy.
    """
    taken = actions.weights(rows.action).astype(np.float64)
    mean = taken.mean(axis=0)
    if basis.num_states is not None:
        counts = np.zeros((basis.num_states, taken.shape[1]))
        np.add.at(counts, rows.observation, taken)
        total = np.bincount(rows.observation, minlength=basis.num_states)[:, None]
        shares = np.where(total > 0, counts / np.maximum(total, 1), mean).astype(np.float32)
        return EstimatedBehaviour(basis_of_policy(basis), shares, actions.num_actions)
    assert isinstance(basis, DenseBasis)
    size, own = basis.num_features, np.flatnonzero(~held)
    constant = np.zeros((size, taken.shape[1]))
    constant[-1] = mean
    if not np.ptp(taken, axis=0).any():  # One action.
        return EstimatedBehaviour(basis, constant.astype(np.float32), actions.num_actions)
    gram, crossed = np.zeros((size, size)), np.zeros((size, taken.shape[1]))
    for some in blocks_of(len(own), size):
        features = basis.apply(rows.observation[own[some]])
        gram += features.T @ features / len(own)
        crossed += features.T @ (taken[own[some]] - mean) / len(own)
    ridges = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    tried = [np.linalg.solve(gram + ridge * np.eye(size), crossed) + constant for ridge in ridges]
    found = basis.projections(rows.observation[held], *tried)
    errors = [np.square(taken[held] - each).mean() for each in found]
    best = int(np.argmin(errors))
    good = errors[best] < 0.99 * np.square(taken[held] - mean).mean()
    weights = tried[best] if good else constant
    return EstimatedBehaviour(basis, weights.astype(np.float32), actions.num_actions)


@dataclasses.dataclass(frozen=True, eq=False)
class GivenBehaviour:
    """Action probabilities [m, A] of a user's function of observations, which are checked."""

    function: Callable[[Any], Any]
    num_actions: int

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        found = np.asarray(self.function(observations), np.float32)
        shape = (len(observations), self.num_actions)
        require(found.shape == shape, f"probabilities of shape {shape}", found.shape)
        sums = found.sum(axis=1)
        normal = bool((found >= 0).all()) and bool(np.allclose(sums, 1.0, atol=1e-4))
        require(normal, "probabilities that sum to 1", sums.tolist()[:3])
        return found


def to_probabilities(found: ArrayT, num_actions: int | None) -> ArrayT:
    """Turn estimates of E[b(a) | s], [m, m_b], into probabilities if actions are discrete."""
    if num_actions is None:
        return found
    xp: Any = found.__array_namespace__()  # NumPy or JAX.
    positive = xp.maximum(found, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    some = total > 0.0
    shares: ArrayT = xp.where(
        some, positive / xp.where(some, total, 1.0), np.float32(1.0 / num_actions)
    )
    return shares
