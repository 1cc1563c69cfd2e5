"""Regressions that test records: how well columns of rows predict other columns."""

import numpy as np

FEWEST_TESTED_ROWS = 1_000
"""With fewer rows, a regression tests nothing."""
MOST_TESTED_ROWS = 10_000
"""Largest number of rows on which a regression is solved, or tested."""


def share_left(targets: np.ndarray, found: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the share of the variance of targets that a regression leaves, [k].

    The variance is the larger of those of the tested ``targets`` [n, k] and of the targets
    ``before`` of the regression [m, k], since a target may vary in rows of one kind alone.
    """
    scale = np.maximum(targets.var(axis=0), before.var(axis=0))
    return np.asarray(np.square(targets - found).mean(axis=0) / np.maximum(scale, 1e-12))


def interactions(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply each column of [n, p] by each column of [n, c], [n, p · c]."""
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), -1))


def unexplained(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Regress on every other row; return the share of variance left on the others, [k]."""
    weights = regress(features[::2], targets[::2])
    return share_left(targets[1::2], features[1::2].astype(np.float64) @ weights, targets[::2])


def regress(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the weights of a regression with hardly any penalty."""
    own = features.astype(np.float64)
    gram = own.T @ own / len(own)
    gram[np.diag_indices(len(gram))] += 1e-6
    return np.linalg.solve(gram, own.T @ targets / len(own))


def means_of_others(targets: np.ndarray, prior: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    """Return the mean over the other rows that agree in all columns; the prior counts as a row."""
    kinds = np.zeros(len(targets), np.int64)
    for column in columns:
        kinds = kinds * (int(column.max()) + 1) + column
    _, kind, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(kind, each) for each in targets.T], axis=1)
    return np.asarray((sums[kind] - targets + prior) / counts[kind, None])


def random_signs(places: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Give each index of ``places`` [n] as many random signs as ``count``, [n, count]."""
    signs = np.sign(generator.normal(size=(int(places.max()) + 1, count)))
    return np.asarray(signs[places])


def mean_share_left(targets: np.ndarray, found: np.ndarray) -> float:
    """Return the share of the variance of targets [n, k] that predictions leave, over all k."""
    variance = max(float(targets.var(axis=0).mean()), 1e-12)
    return float(np.square(targets - found).mean() / variance)
