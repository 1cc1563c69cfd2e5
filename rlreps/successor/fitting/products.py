"""Features of state and action: which products there are, and where they lie in their sequence."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from rlreps.successor.fitting.basis import BLOCK, ActionBasis

MOST_UNKNOWNS = 2_400
"""Largest number of unknowns of a solution for continuous actions."""

_BLOCK_NUMBERS = 2**22
"""Largest number of features in a product, which Ctrl-C cannot interrupt."""


def products(num_features: int, actions: ActionBasis) -> list[int]:
    """Return how many features of the state each feature of the action multiplies, [m_b].

    Features of discrete actions multiply all p. For a box, b_0 = 1 multiplies all p; the others
    multiply the same last ones, so many that there are at most ``MOST_UNKNOWNS`` products. The last
    feature of the state is the constant.
    """
    sizes = [num_features] * actions.size
    if actions.num_actions is None:
        rest = max(1, (MOST_UNKNOWNS - num_features) // (actions.size - 1))
        sizes[1:] = [min(num_features, rest)] * (actions.size - 1)
    return sizes


def take_last(features: Any, count: int) -> Any:
    """Return the last columns of features [N, p], which stay as they are if these are all."""
    return features if count == features.shape[1] else features[:, -count:]


def slices_of(sizes: list[int]) -> list[slice]:
    """Return where each of several blocks of these sizes lies in their sequence."""
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def counts_of(states: np.ndarray, weights: np.ndarray, num_states: int) -> Any:
    """Return w ⊗ φ(s) of indices of states [N] and weights [N, m], [N, m n], sparse."""
    count, m = weights.shape
    columns = states[:, None].astype(np.int64) + np.arange(m) * num_states
    found = scipy.sparse.csr_array(
        (weights.ravel().astype(np.float64), columns.ravel(), np.arange(count + 1) * m),
        shape=(count, m * num_states),
    )
    found.eliminate_zeros()
    return found


def blocks_of(count: int, num_features: int) -> Iterator[slice]:
    """Cut rows into blocks whose features are in memory at once."""
    size = max(1, min(BLOCK, _BLOCK_NUMBERS // num_features))
    return (slice(start, start + size) for start in range(0, count, size))
