"""Products w ⊗ φ(s) of features of state and action, and their moments over rows."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from rlreps.runs.progress import progress_bar
from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.basis import Basis, UnitVectors, blocks_of

MOST_UNKNOWNS = 2_400
"""Largest number of unknowns of a solution for continuous actions."""


def product_sizes(num_features: int, actions: ActionBasis) -> list[int]:
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


class RowProducts(NamedTuple):
    """The products w ⊗ φ(s) of N rows.

    Attributes:
        states: s, [N, ...].
        weights: w, [N, m].
        sizes: How many of the last features φ each of the m weights multiplies.
    """

    states: np.ndarray
    weights: np.ndarray
    sizes: list[int]

    @property
    def places(self) -> list[slice]:
        """Slices of the sequence that hold the products of each weight."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def counted(self, num_states: int) -> Any:
        """Return the products of unit vectors, [N, m n], sparse."""
        count, m = self.weights.shape
        columns = self.states[:, None].astype(np.int64) + np.arange(m) * num_states
        found = scipy.sparse.csr_array(
            (
                self.weights.ravel().astype(np.float64),
                columns.ravel(),
                np.arange(count + 1) * m,
            ),
            shape=(count, m * num_states),
        )
        found.eliminate_zeros()
        return found


def mean_cumulant_product(basis: Basis, products: RowProducts, cumulants: np.ndarray) -> np.ndarray:
    """Compute the mean of (w ⊗ φ(s)) cᵀ over the rows for cumulants c [N, k], [q, k]."""
    states, weights, sizes = products
    if isinstance(basis, UnitVectors):
        counts = products.counted(basis.num_features)
        return np.asarray(counts.T @ cumulants / len(weights))
    total = np.zeros((sum(sizes), cumulants.shape[1]))
    for some in blocks_of(len(weights), basis.num_features):
        features = basis.apply(states[some])
        for place, own, column in zip(products.places, sizes, weights[some].T, strict=True):
            total[place] += features[:, -own:].T @ (column[:, None] * cumulants[some])
    return total / len(weights)


def moment(basis: Basis, left: RowProducts, right: RowProducts) -> Any:
    """Compute the mean of (w ⊗ φ(s)) (w' ⊗ φ(s'))ᵀ over the rows, [q, q'], and show a bar.

    The result is sparse if the features are. Dense products use double precision, without which
    small eigenvalues would become negative.
    """
    count = len(left.weights)
    if isinstance(basis, UnitVectors):
        first, second = (side.counted(basis.num_features) for side in (left, right))
        return (first.T @ second / count).tocsc()
    symmetric = left is right
    total = np.zeros((sum(left.sizes), sum(right.sizes)))
    pairs = [
        (c, e, rows, columns)
        for c, rows in enumerate(left.places)
        for e, columns in enumerate(right.places)
        if c <= e or not symmetric
    ]
    # Rows of one action follow each other: a block then has few actions, and large products.
    order = np.argsort(left.weights.argmax(axis=1), kind="stable")
    with progress_bar("least squares", total=count, unit="rows", after=2.0) as advance:
        for block in blocks_of(count, basis.num_features):
            some = order[block]
            one = basis.apply(left.states[some])
            other = one if left.states is right.states else basis.apply(right.states[some])
            for c, e, rows, columns in pairs:
                scale = left.weights[some, c] * right.weights[some, e]
                own = np.flatnonzero(scale)
                if len(own):
                    first = one[:, -left.sizes[c] :][own].astype(np.float64)
                    if symmetric and c == e:  # NumPy computes half of XᵀX.
                        first *= left.weights[some, c][own, None]
                        weighted = first
                    else:
                        weighted = other[:, -right.sizes[e] :][own].astype(np.float64)
                        weighted *= scale[own, None]
                    total[rows, columns] += first.T @ weighted
            advance(len(some))
    for c, e, rows, columns in pairs:
        if symmetric and c < e:
            total[columns, rows] = total[rows, columns].T
    return total / count
