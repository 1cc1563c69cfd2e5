"""The successor measure of a chain with sparse transitions, exactly, and its principal subspace."""

import functools
import numbers
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jax import Array

from rlreps.errors import require, require_choice, require_interval, require_memory
from rlreps.runs.progress import progress_bar
from rlreps.subspace import Centring, PrincipalSubspace, centre_in_place
from rlreps.subspace.products import Products, orthonormalise
from rlreps.subspace.svd import Decomposition, ExactSVD, RandomizedSVD
from rlreps.successor.measure.methods import CENTRED_ON_READING
from rlreps.typing import DoubleArray

MOST_DENSE = 1_000
"""Largest number of states whose subspace LAPACK decomposes by default."""

MOST_HELD = 4_000
"""Largest number of states whose Ψ a truth holds as a matrix."""

_BLOCK_COLUMNS = 256

_TOLD = ("world", "name", "package", "seed", "view", "values", "restarted")
"""Keys of a world's ``about`` that the settings of a truth repeat."""


def checked_discount(discount: Any) -> float:
    """Return a discount in [0, 1), a number or an array of no axes."""
    number = discount.item() if getattr(discount, "ndim", None) == 0 else discount
    require(isinstance(number, numbers.Real), "discount to be a number", discount)
    require_interval("discount", number, "[0, 1)")
    return float(number)


def describe_truth(
    world: Any, policy: Any, discount: float, terminal: str, centring: Centring
) -> dict[str, Any]:
    """Check and describe a truth of a world, as JSON values."""
    require(world.num_states > 1, "a world of several states, which a truth tells apart", 1)
    require_choice("centring", centring, get_args(Centring))
    told = {name: world.about[name] for name in _TOLD if world.about.get(name) is not None}
    estimated = world.about.get("estimated")
    return {
        **told,
        "quantity": "successor measure of a world",
        "method": f"estimated: {estimated}" if estimated else "exact",
        "world_digest": world.digest,
        "policy": "uniform" if policy is None else "given",
        "discount": checked_discount(discount),
        "terminal": terminal,
        CENTRED_ON_READING: centring,
    }


class SuccessorSolver:
    """Ψ = (I − γP)⁻¹ of a chain P [n, n] by a sparse LU, in double precision.

    Attributes:
        chain: P, whose rows sum to at most 1.
        discount: γ.
    """

    def __init__(self, chain: scipy.sparse.csr_array, discount: float) -> None:
        self.chain, self.discount = chain, discount
        kernel = scipy.sparse.eye_array(chain.shape[0]) - discount * chain
        self._lu = scipy.sparse.linalg.splu(scipy.sparse.csc_array(kernel))

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return int(self.chain.shape[0])

    def multiply(self, panel: DoubleArray) -> DoubleArray:
        """Return Ψ times a panel [n, m]."""
        found: DoubleArray = self._lu.solve(np.asarray(panel, np.float64))
        return found

    def multiply_transposed(self, panel: DoubleArray) -> DoubleArray:
        """Return Ψ' times a panel [n, m]."""
        solve: Any = self._lu.solve  # The stubs lack ``trans``.
        found: DoubleArray = solve(np.asarray(panel, np.float64), trans="T")
        return found

    @functools.cached_property
    def matrix(self) -> DoubleArray:
        """Ψ, [n, n]."""
        require_memory(f"a matrix of {self.num_states:,} states", 16 * self.num_states**2)
        return self.multiply(np.eye(self.num_states))


class SolvedProducts(Products):
    """Products with Ψ less its means, from two triangular solves for each column of a panel."""

    def __init__(self, solver: SuccessorSolver, centring: Centring) -> None:
        self._solver, self._centring = solver, centring
        self.shape = (solver.num_states, solver.num_states)
        self.dtype = np.dtype(np.float64)

    @functools.cached_property
    def total_energy(self) -> float:
        """Squared Frobenius norm, from every column."""
        states, energy = self.shape[0], 0.0
        with progress_bar("norm of Ψ", total=states, unit="columns", after=2.0) as advance:
            for first in range(0, states, _BLOCK_COLUMNS):
                count = min(_BLOCK_COLUMNS, states - first)
                unit = np.zeros((states, count))
                unit[np.arange(first, first + count), np.arange(count)] = 1.0
                energy += float(np.square(self.multiply(unit)).sum())
                advance(count)
        return energy

    def multiply(self, panel: np.ndarray) -> np.ndarray:
        return self._left(self._solver.multiply(self._right(panel)))

    def multiply_transposed(self, panel: np.ndarray) -> np.ndarray:
        return self._right(self._solver.multiply_transposed(self._left(panel)))

    def sharpen(self, panel: np.ndarray) -> np.ndarray:
        return orthonormalise(self.multiply_transposed(orthonormalise(self.multiply(panel))))

    def multiply_and_normal(
        self, panel: np.ndarray, probes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        width = panel.shape[1]
        images = self.multiply(np.concatenate([panel, probes], axis=1))
        return images[:, :width], self.multiply_transposed(images[:, width:])

    def _left(self, panel: np.ndarray) -> np.ndarray:
        """Subtract means over states, which are those of Ψ's columns."""
        return panel if self._centring == "rows" else _less_means(panel)

    def _right(self, panel: np.ndarray) -> np.ndarray:
        """Subtract means over tasks, which are those of Ψ's rows."""
        return panel if self._centring == "columns" else _less_means(panel)


def _less_means(panel: DoubleArray) -> DoubleArray:
    """Subtract means over rows twice: large means leave a rounding behind."""
    panel = panel - panel.mean(axis=0)
    found: DoubleArray = panel - panel.mean(axis=0)
    return found


def solve_truth(
    solver: SuccessorSolver,
    centring: Centring = "columns",
    decomposition: Decomposition | None = None,
) -> tuple[Array | None, PrincipalSubspace]:
    """Centre and decompose a successor measure.

    Args:
        solver: The measure.
        centring: Which means are subtracted.
        decomposition: How to compute the subspace; None is exact up to ``MOST_DENSE`` states.

    Returns:
        The centred matrix, None beyond ``MOST_HELD`` states, and its principal subspace.
    """
    states = solver.num_states
    if decomposition is None:
        decomposition = ExactSVD() if states <= MOST_DENSE else RandomizedSVD()
    matrix = None
    if states <= MOST_HELD or isinstance(decomposition, ExactSVD):
        matrix = solver.matrix.copy()
        for _ in range(2):  # Means near 1 / (1 − γ) leave a rounding behind.
            centre_in_place(matrix, centring)
    if matrix is not None and isinstance(decomposition, ExactSVD):
        principal = decomposition.decompose(matrix)
    else:
        principal = decomposition.decompose(SolvedProducts(solver, centring))
    held = None if matrix is None or states > MOST_HELD else jnp.asarray(matrix, jnp.float32)
    return held, principal
