"""The policy that made the data, as E[b(a) | s]: counted, regressed or given."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rlreps.errors import require
from rlreps.successor.basis import ActionBasis, Basis, UnitVectors
from rlreps.successor.least_squares import Rows
from rlreps.successor.observed import Observed


def estimated_behaviour(
    basis: Basis, actions: ActionBasis, rows: Rows, held: np.ndarray
) -> np.ndarray:
    """Regress b(a) on φ(s): the weights [p, m_b] of E[b(a) | s].

    For unit vectors the regression counts; states in which no row starts take the mean over all
    rows. For dense features the held-out rows choose the ridge. A policy that does not depend on
    the state is kept unless the regression has at least 1 % less squared error there.

    Args:
        basis: φ.
        actions: b.
        rows: The transitions.
        held: Which rows are held out, [N].
    """
    taken = actions.weights(rows.action).astype(np.float64)
    mean = taken.mean(axis=0)
    if isinstance(basis, UnitVectors):
        counts = np.zeros((basis.num_states, taken.shape[1]))
        np.add.at(counts, rows.observation, taken)
        total = np.bincount(rows.observation, minlength=basis.num_states)[:, None]
        return np.where(total > 0, counts / np.maximum(total, 1), mean)
    features = np.asarray(basis.apply(rows.observation), np.float32)
    own, other = features[~held], features[held]
    gram = (own.T @ own).astype(np.float64) / len(own)
    crossed = own.T @ (taken[~held] - mean) / len(own)
    constant = np.zeros((features.shape[1], taken.shape[1]))
    constant[-1] = mean
    best, least = constant, 0.99 * np.square(taken[held] - mean).mean()
    for ridge in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), crossed) + constant
        error = np.square(taken[held] - other @ weights).mean()
        if error < least:
            best, least = weights, error
    return best


def behaviour_of(
    basis: Basis,
    observed: Observed,
    weights: np.ndarray | None,
    own: Callable[[Any], Any] | None,
) -> Callable[[np.ndarray], np.ndarray]:
    """Return E[b(a) | s] of the data's policy, from weights of φ or from a user's function."""
    if own is not None:
        return lambda observations: checked_policy(own, observations, observed.num_actions)

    assert weights is not None

    return lambda observations: shares(basis.project(observations, weights), observed.num_actions)


def shares(found: np.ndarray, num_actions: int | None) -> np.ndarray:
    """Turn estimates of E[b(a) | s], [m, m_b], into probabilities if actions are discrete."""
    if num_actions is None:
        return found
    positive = np.maximum(found, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    some = total > 0.0
    return np.where(some, positive / np.where(some, total, 1.0), np.float32(1.0 / num_actions))


def checked_policy(
    behaviour: Callable[[Any], Any], observations: Any, num_actions: int | None
) -> np.ndarray:
    """Evaluate a user's own behaviour policy; check that it gives probabilities [m, A]."""
    weights = np.asarray(behaviour(observations), np.float32)
    shape = (len(observations), num_actions)
    require(weights.shape == shape, f"probabilities of shape {shape}", weights.shape)
    normal = bool((weights >= 0).all()) and bool(np.allclose(weights.sum(axis=1), 1.0, atol=1e-4))
    require(normal, "probabilities that sum to 1", weights.sum(axis=1).tolist()[:3])
    return weights
