"""Rows of a successor measure on the page of ``rlreps explore``, and their errors.

The page holds the rows of a small matrix. Of a larger matrix it computes rows in the browser: steps
of the chain, then the rest of the sum at rank K; or at rank K alone, if the chain is unknown.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse

from rlreps.explore.page import MapGrid
from rlreps.explore.shown_states import POINTS
from rlreps.subspace import centring_means
from rlreps.subspace.svd import PrincipalSubspace
from rlreps.successor.truth.store import MatrixStore
from rlreps.successor.truth.store.blocks import StoreBlocks
from rlreps.successor.truth.stored_subspace import centring_of

STEPS = 20
"""Number of exact steps; the rest of the sum is then smooth enough for the rank-K matrix."""

_ROWS_MEASURED = 100
"""Number of rows with which the page's own rows are compared."""


class RowSource(NamedTuple):
    """Where a page's rows come from, and their errors; see ``Source`` in ``data.js``.

    Attributes:
        kind: Stored rows, rows computed from the chain or at rank K, or none.
        difference: Root mean square difference from the reference.
        steps: Number of exact steps of the chain.
        reference: What the rows were compared with.
        sampling_error: Root mean square standard error of the matrix, if known.
    """

    kind: Literal["rows", "chain", "rank", "none"]
    difference: float = 0.0
    steps: int = 0
    reference: str = "the store"
    sampling_error: float | None = None


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


def choose_rows(n: int) -> np.ndarray:
    """Choose the rows with which computed ones are compared."""
    return np.sort(np.random.default_rng(0).choice(n, min(n, _ROWS_MEASURED), replace=False))


def read_rows(
    store: MatrixStore, basis: np.ndarray, chosen: np.ndarray
) -> tuple[LowRank, np.ndarray, np.ndarray]:
    """Read a matrix once.

    Args:
        store: Ψ, [n, tasks].
        basis: U, [n, K].
        chosen: Rows to return, [m].

    Returns:
        Ψ at rank K; squared norms of its centred rows, [n]; and the chosen rows, [m, tasks].
    """
    (n, tasks), blocks = store.shape, StoreBlocks(store)
    left = basis.astype(np.float64)
    task_means, state_means = centring_means(blocks, centring_of(store.settings))
    rows_mean = np.zeros(n) if state_means is None else state_means
    right, energies = np.zeros((tasks, left.shape[1])), np.zeros(n)
    found = np.empty((len(chosen), tasks), np.float32)
    for start, rows in blocks.blocks():
        here = slice(start, start + len(rows))
        centred = rows.astype(np.float64) - task_means - rows_mean[here, None]
        right += centred.T @ left[here]
        energies[here] = np.einsum("ij,ij->i", centred, centred)
        inside = (chosen >= start) & (chosen < here.stop)
        found[inside] = rows[chosen[inside] - start]
    return LowRank(left, right, task_means, rows_mean), energies, found


def measure_stored_rows(rows: np.ndarray) -> RowSource:
    """Describe rows [m, n] that the page holds, with 16 bits per entry."""
    largest = np.abs(rows).max(axis=1, keepdims=True) / (2**15 - 1)
    rounded = np.rint(rows / np.where(largest > 0.0, largest, 1.0)) * largest
    return RowSource("rows", _root_mean_square(rounded - rows))


def measure_rank_rows(kept: PrincipalSubspace) -> RowSource:
    """Describe rows at the rank of a subspace."""
    energy = np.sum(np.square(kept.singular_values.astype(np.float64)))
    left_out = max(kept.total_energy - energy, 0.0)
    return RowSource("rank", float(np.sqrt(left_out) / len(kept.basis)))


def measure_chain_rows(
    cells: MapGrid,
    moves: Sequence[Any],
    low_rank: LowRank,
    settings: Mapping[str, Any],
    chosen: np.ndarray,
    rows: np.ndarray,
) -> RowSource:
    """Compute chosen rows as the page does, and measure their distance from the given rows."""
    chain: Any = scipy.sparse.csr_array(sum(moves)) / (len(moves) * POINTS)
    between = scipy.sparse.csr_array(chain[cells.states][:, cells.states])
    differences = solve_rows(between, low_rank, chosen, settings) - rows
    return RowSource("chain", _root_mean_square(differences), STEPS)


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


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
