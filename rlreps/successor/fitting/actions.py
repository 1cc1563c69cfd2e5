"""Features of actions, and the actions from which a policy chooses.

State-action features are products ψ(s, a) = φ(s) ⊗ b(a): every feature of the action has its own
weights for the features of the state. For discrete actions b(a) is a unit vector.
"""

import dataclasses
import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.

_LIKELY = 0.1
"""Share of the largest probability in a state that an action has if the data support it."""
_LEAST_VARIANCE = 1e-3
"""Smallest variance of a number of an action, in squares of half its range in the data."""
_MOST_CROSSED = 3
"""Largest size of a box whose features include products of different numbers."""


class Candidates(NamedTuple):
    """Actions from which a greedy policy chooses: sums of one part from each of g groups.

    Features b of an action are the sum of the features of its parts, so a linear function of b is
    largest where each group's part is best.

    Attributes:
        actions: Parts, [g, c] or [g, c, k].
        weights: Their features, [g, c, m].
    """

    actions: np.ndarray
    weights: np.ndarray

    def best(self, values: np.ndarray) -> np.ndarray:
        """Return the actions of largest values, [n] or [n, k], from values of parts, [n, g, c]."""
        parts = self.actions[np.arange(len(self.actions)), values.argmax(axis=2)]
        return np.asarray(parts.sum(axis=1))


@dataclasses.dataclass(frozen=True, eq=False)
class ActionBasis:
    """Features b of actions: one-hot for discrete actions, quadratic polynomials for a box.

    Attributes:
        num_actions: A; None for boxes.
        low: Lower bounds, [k], for boxes.
        high: Upper bounds, [k].
    """

    num_actions: int | None
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of features, m."""
        if self.num_actions is not None:
            return self.num_actions
        assert self.low is not None
        return 1 + len(self.low) + len(_products(len(self.low)))

    def weights(self, actions: np.ndarray) -> np.ndarray:
        """Compute b of actions [n] or [n, k], [n, m]."""
        if self.num_actions is not None:
            return np.asarray(np.eye(self.num_actions, dtype=np.float32)[actions])
        assert self.low is not None
        assert self.high is not None
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        unit = (2.0 * (actions - self.low) / width - 1.0).astype(np.float32)
        products = [unit[:, i] * unit[:, j] for i, j in _products(unit.shape[1])]
        return np.column_stack([np.ones(len(unit), np.float32), unit, *products])

    def find_likely(self, candidates: Candidates, expected: np.ndarray) -> np.ndarray:
        """Tell which parts of actions have a tenth of the largest probability or more, [m, g, c].

        This is the constraint of discrete BCQ (Fujimoto, Conti, Ghavamzadeh & Pineau 2019), whose
        threshold was 0.3. The numbers of a box count as independent and normal.

        Args:
            candidates: Actions to choose from.
            expected: E[b(a) | s] of the data's policy, [m, m_b].
        """
        if self.num_actions is not None:
            found = expected[:, candidates.actions]
            return np.asarray(found >= _LIKELY * found.max(axis=2, keepdims=True))
        assert self.low is not None
        k = len(self.low)
        numbers = slice(1, 1 + k)
        squares = [1 + k + at for at, (i, j) in enumerate(_products(k)) if i == j]
        mean = expected[:, numbers].astype(np.float64)
        width = np.ptp(candidates.weights[..., numbers], axis=1).max(axis=0) / 2.0
        least = _LEAST_VARIANCE * np.square(np.maximum(width, 1e-3))
        precision = 1.0 / np.maximum(expected[:, squares] - np.square(mean), least)
        # Σ (a − mean)² / variance, less what all actions have in common.
        far = np.tensordot(precision, candidates.weights[..., squares], ([1], [2]))
        far -= 2.0 * np.tensordot(precision * mean, candidates.weights[..., numbers], ([1], [2]))
        return np.asarray(far <= far.min(axis=2, keepdims=True) - 2.0 * math.log(_LIKELY))

    def candidates(self, taken: np.ndarray) -> Candidates:
        """Return actions to choose from: the discrete actions taken, or points in a box's range.

        The range of each number is its range in the data. One number has 17 even levels. Two or
        three have all corners, the centre and 64 Sobol points. From four numbers on, b has no
        products of different numbers, and each is a group with nine even levels.
        """
        if self.num_actions is not None:
            actions = np.unique(taken)
            return Candidates(actions[None], self.weights(actions)[None])
        low, high = (bound(axis=0).astype(np.float64) for bound in (taken.min, taken.max))
        k = len(low)
        if k > _MOST_CROSSED:
            levels = np.linspace(low, high, 9, dtype=np.float32)
            own = np.eye(k, dtype=np.float32)
            # The features are 1, the numbers, their squares; the constant is the first group's.
            owned = np.column_stack([own[0], own, own])
            return Candidates(own[:, None] * levels, owned[:, None] * self.weights(levels))
        if k == 1:
            places = np.linspace(0.0, 1.0, 17)[:, None]
        else:
            inner = scipy.stats.qmc.Sobol(k, rng=np.random.default_rng(0)).random(64)
            corners = np.array(list(itertools.product((0.0, 1.0), repeat=k)))
            places = np.concatenate([corners, np.full((1, k), 0.5), inner])
        actions = (low + places * (high - low)).astype(np.float32)
        return Candidates(actions[None], self.weights(actions)[None])


def _products(k: int) -> list[tuple[int, int]]:
    """List the pairs of coordinates to multiply: all pairs for small boxes, else squares."""
    return [(i, j) for i in range(k) for j in range(i, k) if i == j or k <= _MOST_CROSSED]
