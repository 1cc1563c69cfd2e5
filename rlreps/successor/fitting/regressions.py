"""How well columns of rows predict others: the regressions that test records.

A column holds an index [n], or features [n, p] (floats). Indices predict by means over other rows,
features by a linear regression.
"""

import dataclasses

import numpy as np

from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, FourierBasis

FEWEST_TESTED_ROWS = 1_000
"""With fewer rows, a regression tests nothing."""
MOST_TESTED_ROWS = 10_000
"""Largest number of rows on which a regression is solved, or tested."""
PERMUTATIONS = 19
"""Number of permutations, or of other random choices, that what is found has to exceed."""
SIGNS = 16
"""Number of random signs that stand for an index where it is predicted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """The columns of states and actions that predict: features of vectors, or indices.

    Attributes:
        actions: Features of actions.
        few: Random Fourier features of vectors, whose kernel is wide; None for indices.
    """

    actions: ActionBasis
    few: FourierBasis | None = None

    @classmethod
    def of(
        cls, basis: Basis, actions: ActionBasis, observation: np.ndarray, count: int, seed: int
    ) -> "Columns":
        """Draw features for observations [n, ...], ``count`` of them, along the axes of a basis."""
        if not isinstance(basis, FourierBasis):
            return cls(actions)
        axes = basis.axes.astype(np.float64)
        along = observation.reshape(len(observation), -1) @ axes
        axes /= along.std(axis=0).max() * np.sqrt(axes.shape[1])
        return cls(actions, FourierBasis.of(observation, count, 1.0, seed, axes))

    @property
    def vectors(self) -> bool:
        """Whether observations are vectors."""
        return self.few is not None

    def coordinates(self, states: np.ndarray) -> np.ndarray:
        """Return observations [n, ...] in units of the kernel, [n, k]; for vectors."""
        assert self.few is not None
        return np.asarray(states.reshape(len(states), -1) @ self.few.axes)

    def of_state(self, states: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the columns of observations."""
        return (states,) if self.few is None else (self.few.apply(states), self.coordinates(states))

    def of_pair(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the columns of states and actions together; actions multiply the features."""
        features, *coordinates = self.of_state(states)
        if self.few is None:
            return features, actions
        return (interactions(features, self.actions.weights(actions)), *coordinates)


def interactions(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply each column of [n, p] by each column of [n, c], [n, p · c]."""
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), -1))


def apart(columns: tuple[np.ndarray, ...], some: np.ndarray) -> tuple[np.ndarray, ...]:
    """Give some rows, [n] (bool), columns of their own."""
    if columns and columns[0].ndim == 1:
        return *columns, some
    halves = (some[:, None], ~some[:, None])
    return tuple(np.column_stack([each * half for half in halves]) for each in columns)


def predict(targets: np.ndarray, *columns: np.ndarray) -> tuple[slice, np.ndarray]:
    """Predict targets [n, k] from columns; return which rows are predicted, and the predictions.

    Indices predict all rows, by the mean over the other rows that agree in all columns; the mean of
    those that agree in all but the last counts as a row. Features predict every other row, by a
    regression on the rest.
    """
    if columns[0].ndim > 1:
        features = np.column_stack(columns).astype(np.float64)
        return slice(1, None, 2), features[1::2] @ regress(features[::2], targets[::2])
    found, kinds = targets.mean(axis=0), np.zeros(len(targets), np.int64)
    for column in columns:
        kinds = kinds * (int(column.max()) + 1) + column
        _, kinds, counts = np.unique(kinds, return_inverse=True, return_counts=True)
        sums = np.stack([np.bincount(kinds, each) for each in targets.T], axis=1)
        found = (sums[kinds] - targets + found) / counts[kinds, None]
    return slice(None), found


def regress(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the weights of a regression with hardly any penalty."""
    own = features.astype(np.float64)
    gram = own.T @ own / len(own)
    gram[np.diag_indices(len(gram))] += 1e-6
    return np.linalg.solve(gram, own.T @ targets / len(own))


def errors(targets: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    """Return the shares of the variance of targets [n, k] that predictions leave, [k]."""
    if targets.size == 0:
        return np.zeros(0)
    rows, found = predict(targets, *columns)
    return share_left(targets[rows], found, targets)


def share_left(targets: np.ndarray, found: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the share of the variance of targets that a regression leaves, [k].

    The variance is the larger of those of the tested ``targets`` [n, k] and of the targets
    ``before`` of the regression [m, k], since a target may vary in rows of one kind alone.
    """
    scale = np.maximum(targets.var(axis=0), before.var(axis=0))
    return np.asarray(np.square(targets - found).mean(axis=0) / np.maximum(scale, 1e-12))


def random_signs(indices: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Give each index of [n] random signs that vary over the rows, [n, k]."""
    _, places = np.unique(indices, return_inverse=True)
    signs = np.sign(generator.normal(size=(int(places.max()) + 1, SIGNS)))[places]
    return np.asarray(signs[:, np.ptp(signs, axis=0) > 0.0])
