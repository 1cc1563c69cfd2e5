"""The problem: a random walk between cells, its slowest eigenfunctions, and batches of its steps.

The chain is that of PuddleWorld's random policy between the cells of a grid. States are drawn
uniformly over the cells, as the successor measure's rollouts start and as its subspace weighs them:
ξ is uniform. (The stationary distribution would make ξ and ν equal and weigh slow puddles more; the
eigenproblem is symmetric for either.)
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from jax import Array, lax

from rlreps.config import configurable, leaf
from rlreps.envs import load_arena
from rlreps.errors import require
from rlreps.losses.base import Batch
from rlreps.operators import GraphLaplacian, Operator, Sample, graph_laplacian
from rlreps.subspace.svd import fix_signs
from rlreps.successor.grids import Grid
from rlreps.successor.measure import Transition
from rlreps.successor.transition.matrix import one_step

DoubleArray = npt.NDArray[np.float64]

_SHIFT = -1e-3
"""Below the smallest eigenvalue, zero, where L itself is singular."""

_DENSE = 400
"""States up to which the eigenproblem is solved as a dense one."""


class Problem(NamedTuple):
    """The chain and what is exact about it.

    Attributes:
        chain: P, [n, n], sparse.
        graph: L and the measure on the diagonal of Σ.
        centres: The cells' centres in [0, 1]², [n, 2] (float32).
        eigenvalues: The smallest of L u = λ Σ u after the constant's, rising, [k].
        eigenfunctions: Orthonormal in the measure, [n, k].
    """

    chain: scipy.sparse.csr_array
    graph: GraphLaplacian
    centres: npt.NDArray[np.float32]
    eigenvalues: DoubleArray
    eigenfunctions: DoubleArray

    @property
    def measure(self) -> DoubleArray:
        """The diagonal of Σ, [n], sums to 1."""
        return np.asarray(self.graph.measure, np.float64)


def make_problem(config: Transition, count: int) -> Problem:
    """The random walk between the cells of a successor measure, and its slowest eigenfunctions.

    Args:
        config: The arena, the cells, the quadrature points and the seed.
        count: Eigenfunctions after the constant, k.

    Returns:
        The problem.

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: If some cell is never visited, or the chain falls apart.
    """
    environment, grid = load_arena(config.arena), Grid(config.bins)
    chain = one_step(environment, grid, points=config.points, seed=config.seed).chain
    graph = graph_laplacian(chain, np.full(grid.num_cells, 1.0 / grid.num_cells))
    eigenvalues, eigenfunctions = slowest_eigenfunctions(graph, 1 + count)
    require(eigenvalues[1] > 1e-9, "a chain that connects all cells", f"{eigenvalues[1]:g}")
    return Problem(chain, graph, grid.centres(), eigenvalues[1:], eigenfunctions[:, 1:])


def slowest_eigenfunctions(graph: GraphLaplacian, count: int) -> tuple[DoubleArray, DoubleArray]:
    """The smallest eigenvalues of L u = λ Σ u, the constant's among them.

    Shift-invert Lanczos on Σ^(-1/2) L Σ^(-1/2), and a dense solver for a few hundred states.

    Args:
        graph: L and the diagonal of Σ.
        count: How many.

    Returns:
        Eigenvalues [count], rising, and eigenfunctions [n, count], orthonormal in the measure, with
        the entry of largest magnitude positive.

    Raises:
        InputError: If a state has no measure, or there are fewer than ``count`` + 1 states.
    """
    never = np.count_nonzero(graph.measure <= 0.0)
    require(never == 0, "a measure of every state", f"{never} states without")
    states = len(graph.measure)
    require(count < states, f"fewer eigenfunctions than the {states} states", count)
    scale = 1.0 / np.sqrt(graph.measure)
    rescale = scipy.sparse.diags_array(scale)
    symmetric = scipy.sparse.csc_array(rescale @ graph.laplacian @ rescale)
    if states <= _DENSE:
        values, vectors = scipy.linalg.eigh(symmetric.toarray(), subset_by_index=(0, count - 1))
    else:
        # A start that is fixed makes the result the same every time.
        start = np.random.default_rng(0).normal(size=states)
        values, vectors = scipy.sparse.linalg.eigsh(symmetric, k=count, sigma=_SHIFT, v0=start)
    order = np.argsort(values)
    return values[order], fix_signs(scale[:, None] * vectors[:, order])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PairSource:
    """Pairs of consecutive states: s uniform, s' from its row of the chain.

    Attributes:
        inputs: Encoder input of each state, [n, ...].
        columns: Where each state can go, padded with repetitions, [n, k] (int32).
        cumulative: Probability of that one or one before it, padded with ones, [n, k].
    """

    inputs: Array
    columns: Array
    cumulative: Array

    @property
    def num_tasks(self) -> None:
        """There is no matrix of tasks."""
        return None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Inputs [num_rows, ...]; row i + num_rows/2 is the state after row i. Targets are empty.

        Args:
            key: Random key.
            num_rows: b, even.
            num_tasks: Without effect.
        """
        require(num_rows % 2 == 0, "an even number of rows, two for each pair", num_rows)
        states = self.sample_states(key, num_rows // 2).reshape(-1)
        return Batch(self.inputs[states], jnp.zeros((num_rows, 0), self.cumulative.dtype))

    def sample_states(self, key: Array, num_pairs: int) -> Array:
        """Indices of the states and of their successors, [2, num_pairs] (int32)."""
        state_key, step_key = jax.random.split(key)
        states = jax.random.randint(state_key, (num_pairs,), 0, len(self.columns), jnp.int32)
        levels = jax.random.uniform(step_key, (num_pairs,), self.cumulative.dtype)
        passed = jnp.sum(self.cumulative[states] <= levels[:, None], axis=1, dtype=jnp.int32)
        return jnp.stack([states, self.columns[states, passed]])


def pair_source(chain: scipy.sparse.csr_array, inputs: Array) -> PairSource:
    """The source of a chain's pairs of consecutive states.

    Args:
        chain: P, [n, n], rows sum to 1.
        inputs: Encoder input of each state, [n, ...].
    """
    columns, values = _rectangle(chain)
    cumulative = np.cumsum(values, axis=1)
    # Exactly one from the last entry on, where rounding would leave a gap.
    last = np.diff(chain.indptr) - 1
    cumulative[np.arange(columns.shape[1])[None, :] >= last[:, None]] = 1.0
    return PairSource(
        inputs, jnp.asarray(columns), jnp.asarray(cumulative.astype(jnp.result_type(float)))
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StateSource:
    """State indices drawn from a measure.

    Attributes:
        cumulative: Measure of each state and those before it, [n].
    """

    cumulative: Array

    @property
    def num_tasks(self) -> None:
        """There is no matrix of tasks."""
        return None

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """State indices [num_rows] (int32). Targets are empty; ``num_tasks`` has no effect."""
        levels = jax.random.uniform(key, (num_rows,), self.cumulative.dtype)
        states = jnp.searchsorted(self.cumulative, levels, side="right").astype(jnp.int32)
        states = jnp.minimum(states, len(self.cumulative) - 1)
        return Batch(states, jnp.zeros((num_rows, 0), self.cumulative.dtype))


def state_source(measure: DoubleArray) -> StateSource:
    """The source of states of a measure [n] that sums to 1."""
    return StateSource(jnp.asarray(np.cumsum(measure).astype(jnp.result_type(float))))


@configurable
@dataclasses.dataclass(frozen=True, eq=False)
class SparseGraphOperator(Operator):
    """``GraphLaplacian.operator`` from the entries of L that are not zero, on state indices [b].

    Images are sums over steps of probability times u(s) − u(s'), in which the constant vanishes
    without rounding; at all n states u is evaluated once a batch.

    Attributes:
        columns: States s' that each state's row has entries at, [n, k].
        values: The entries of Σ⁻¹L there, [n, k].
    """

    columns: Array = leaf()
    values: Array = leaf()

    def apply(self, sample: Sample) -> Array:
        """Compute Σ⁻¹Lu at a sample's states, [b, d]."""
        states = jnp.arange(len(self.values), dtype=jnp.int32)
        others = sample.function(states)[self.columns[sample.inputs]]  # [b, k, d]
        differences = others - sample.features[:, None, :]
        rates = self.values[sample.inputs].astype(differences.dtype)
        return jnp.einsum("bk,bkd->bd", rates, differences, precision=lax.Precision.HIGHEST)


def sparse_graph_operator(graph: GraphLaplacian) -> Operator:
    """Build the sparse operator of a graph Laplacian."""
    weights = scipy.sparse.diags_array(1.0 / graph.measure) @ graph.laplacian
    away = scipy.sparse.csr_array(weights - scipy.sparse.diags_array(weights.diagonal()))
    columns, values = (jnp.asarray(part) for part in _rectangle(away))
    return SparseGraphOperator(columns, values.astype(jnp.result_type(float)))


def _rectangle(matrix: scipy.sparse.csr_array) -> tuple[npt.NDArray[np.int32], DoubleArray]:
    """Columns and values of a sparse matrix's rows, [n, k] each: padded with the last, and zero."""
    per_row = np.diff(matrix.indptr)
    place = np.arange(per_row.max())[None, :]
    source = matrix.indptr[:-1, None] + np.minimum(place, per_row[:, None] - 1)
    columns = matrix.indices[source].astype(np.int32)
    values = np.where(place < per_row[:, None], matrix.data[source], 0.0)
    return columns, values
