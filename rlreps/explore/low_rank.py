"""Rows of a successor measure from steps of its chain and its leading singular vectors.

The page of ``rlreps explore`` computes the same rows in the browser.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

STEPS = 20
"""Number of exact steps; the rest of the sum is then smooth enough for the rank-K matrix."""


class LowRank(NamedTuple):
    """The matrix at rank K, with its means: 1 c' + r 1' + U (V Σ)'.

    Attributes:
        components: U, [n, K].
        factors: V Σ, [n, K].
        task_means: c, [n].
        state_means: r, [n].
    """

    components: np.ndarray
    factors: np.ndarray
    task_means: np.ndarray
    state_means: np.ndarray

    @property
    def left(self) -> np.ndarray:
        """Left factor with the means, [n, K + 2]."""
        return np.column_stack([self.components, np.ones(len(self.components)), self.state_means])

    @property
    def right(self) -> np.ndarray:
        """Right factor with the means, [n, K + 2]."""
        return np.column_stack([self.factors, self.task_means, np.ones(len(self.factors))])


def solve_rows(
    chain: scipy.sparse.csr_array,
    low_rank: LowRank,
    states: np.ndarray,
    settings: Mapping[str, Any],
) -> np.ndarray:
    """Compute rows as the page does: steps of the chain, then the rest of the sum at rank K.

    Ψ = Σ_{t<T} γᵗ Pᵗ + γᵀ Pᵀ Ψ'. T is an exponent; Ψ' has T terms fewer than Ψ. Ψ at rank K, scaled
    to the row sums of Ψ', approximates Ψ'. Both errors are small: Pᵀ smooths the error of rank K,
    and the T terms that Ψ' lacks have weights of about γʰ.

    Args:
        chain: P [n, n] between states.
        low_rank: Ψ at rank K.
        states: Rows to compute, [m].
        settings: Discount, horizon and count_start.

    Returns:
        Rows [m, n] (float64).
    """
    discount, horizon = float(settings["discount"]), int(settings["horizon"])
    reached = np.zeros((chain.shape[0], len(states)))
    reached[states, np.arange(len(states))] = 1.0
    backward = scipy.sparse.csr_array(chain.T)
    rows = np.zeros_like(reached)
    for term in range(min(STEPS, horizon)):
        following = backward @ reached
        rows += discount**term * (reached if settings["count_start"] else following)
        reached = following
    if horizon > STEPS:
        # Ψ' has T terms fewer than Ψ, and so have its row sums.
        share = (1.0 - discount ** (horizon - STEPS)) / (1.0 - discount**horizon)
        rows += share * discount**STEPS * (low_rank.right @ (low_rank.left.T @ reached))
    return np.asarray(rows.T)
