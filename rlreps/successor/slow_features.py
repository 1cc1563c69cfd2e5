"""Slow features of PuddleWorld's random walk: exact ones, and the distance of learned ones.

The chain is that of the random policy between the cells of a grid, as it continues from cells that
were entered. States are drawn uniformly over the cells (ξ), like the rollouts' starts and the
weights in the subspace of the successor measure. Slow features are the generalised eigenfunctions
L u = λ Σ u of the chain's graph Laplacian with the smallest eigenvalues, without the constant. (ξ
need not be stationary: a stationary one would make ξ and ν equal and weigh slow puddles more.)

Learned features come with the constant before them, in the order of learning: the k-th function is
the part of the k-th feature that is new.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from jax import Array

from rlreps.encoders import Encoder, Params
from rlreps.errors import require
from rlreps.numerics import matmul
from rlreps.operators import GraphLaplacian, graph_laplacian
from rlreps.subspace import matched_cosines, subspace_distance
from rlreps.subspace.svd import fix_signs
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.kernels.matrix import one_step
from rlreps.successor.measure import Transition

DoubleArray = npt.NDArray[np.float64]

LARGEST = 4.0
"""Upper bound on the eigenvalues of slowness."""

_SHIFT = -1e-3
"""A shift below the smallest eigenvalue, zero, at which L itself is singular."""
_DENSE = 400
"""Largest number of states for which a dense solver is used."""


class Learned(NamedTuple):
    """Measures of learned features, in the order of learning.

    Attributes:
        functions: Orthonormal in the measure, with the signs of the true ones, [n, d]; zeros if
            features collapsed.
        eigenvalues: uᵀLu of each function, exact, [d]; 4 if features collapsed.
        cosines: |cosine| of the function matched to each true one, [d].
        distances: Distance of the first d functions from the first d true ones, for d from 1, [d].
    """

    functions: DoubleArray
    eigenvalues: DoubleArray
    cosines: DoubleArray
    distances: DoubleArray


class SlowFeatures(NamedTuple):
    """A chain and its slowest functions after the constant.

    Attributes:
        chain: P, [n, n], sparse.
        graph: L and the measure on the diagonal of Σ, which sums to 1.
        centres: The states' centres in [0, 1]², [n, 2] (float32).
        eigenvalues: λ, rising, [k].
        eigenfunctions: Orthonormal in the measure, [n, k].
    """

    chain: scipy.sparse.csr_array
    graph: GraphLaplacian
    centres: npt.NDArray[np.float32]
    eigenvalues: DoubleArray
    eigenfunctions: DoubleArray

    @property
    def roots(self) -> DoubleArray:
        """Square roots of the measure, [n, 1]: functions times them are orthonormal vectors."""
        return np.asarray(np.sqrt(self.graph.measure)[:, None], np.float64)

    def followed(
        self, encoder: Encoder, dimensions: Sequence[int]
    ) -> Callable[[Params], dict[str, Array]]:
        """Return a function for ``evaluate`` of training.

        Args:
            encoder: Gives the constant and d features of cell centres.
            dimensions: Numbers of functions for which to compute distances.

        Returns:
            Parameters → ``distance_d`` between the first d functions and the first d true ones for
            every dimension, ``subspace_distance``, that of the largest dimension, and ``cosine_k``,
            |cosine| of the k-th function with the k-th true one, each [].
        """
        truth = jnp.asarray(self.roots * self.eigenfunctions, jnp.float32)
        centres, weights = jnp.asarray(self.centres), jnp.asarray(self.roots, jnp.float32)

        def evaluate(params: Params) -> dict[str, Array]:
            basis = ordered_basis(encoder.apply(params, centres) * weights)
            overlaps = matmul(basis.T, truth[:, : basis.shape[1]])

            def distance(d: int) -> Array:
                # As ``subspace_distance``, for a basis that is orthonormal already.
                shared = matmul(basis[:, :d], overlaps[:d, :d])
                return jnp.minimum(jnp.sum(jnp.square(truth[:, :d] - shared)) / d, 1.0)

            distances = {f"distance_{d}": distance(d) for d in dimensions}
            cosines = {
                f"cosine_{k}": jnp.abs(value)
                for k, value in enumerate(jnp.diagonal(overlaps), start=1)
            }
            largest = distances[f"distance_{dimensions[-1]}"]
            return {"subspace_distance": largest, **distances, **cosines}

        return evaluate

    def measured(self, features: npt.ArrayLike) -> Learned:
        """Measure the constant and d features of all states, [n, 1 + d], in float64."""
        # In the host's precision: eigenvalues are small differences of features.
        with jax.enable_x64(True):
            weighed = jnp.asarray(np.asarray(features, np.float64) * self.roots)
            basis = np.asarray(ordered_basis(weighed))
            truth = self.roots * self.eigenfunctions[:, : basis.shape[1]]
            cosines = matched_cosines(jnp.asarray(basis), jnp.asarray(truth))
        basis = basis * np.where(np.sum(basis * truth, axis=0) < 0.0, -1.0, 1.0)
        functions = basis / self.roots
        rates = np.sum(functions * (self.graph.laplacian @ functions), axis=0)
        return Learned(
            functions=functions,
            eigenvalues=np.where(basis.any(axis=0), rates, LARGEST),
            cosines=np.asarray(cosines, np.float64),
            distances=_distances(basis, truth),
        )


def slow_features(measure: Transition, count: int) -> SlowFeatures:
    """Compute the slowest functions of the random walk between the cells of a successor measure.

    Args:
        measure: Gives the chain's arena, cells, quadrature points and seed.
        count: Number of functions, without the constant.

    Raises:
        ArenaError: For an unknown or invalid arena.
        InputError: If some cell is never visited, the chain is disconnected, or there are fewer
            than ``count`` + 2 states.
    """
    grid = measure.grid
    chain = one_step(measure.environment(), grid, points=measure.points, seed=measure.seed).chain
    if grid.walls:
        chain = scipy.sparse.csr_array(chain[grid.states][:, grid.states])
    graph = graph_laplacian(chain, np.full(grid.num_states, 1.0 / grid.num_states))
    eigenvalues, eigenfunctions = slowest_eigenfunctions(graph, 1 + count)
    require(eigenvalues[1] > 1e-9, "a chain that connects all cells", f"{eigenvalues[1]:g}")
    return SlowFeatures(chain, graph, grid.centres(), eigenvalues[1:], eigenfunctions[:, 1:])


def slowest_eigenfunctions(graph: GraphLaplacian, count: int) -> tuple[DoubleArray, DoubleArray]:
    """Find the smallest eigenvalues of L u = λ Σ u, the constant's among them.

    Shift-invert Lanczos on Σ^(-1/2) L Σ^(-1/2), and a dense solver for a few hundred states.

    Args:
        graph: L and the diagonal of Σ.
        count: Number of eigenvalues.

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
        # A fixed start makes the result reproducible.
        start = np.random.default_rng(0).normal(size=states)
        values, vectors = scipy.sparse.linalg.eigsh(symmetric, k=count, sigma=_SHIFT, v0=start)
    order = np.argsort(values)
    return values[order], fix_signs(scale[:, None] * vectors[:, order])


def ordered_basis(features: Array) -> Array:
    """Make features orthonormal one after the other: the k-th mixes only the first k.

    Args:
        features: [n, 1 + d]; the first is the constant, all weighed by the root of the measure.

    Returns:
        The new parts of the later features, [n, d]; zeros if earlier features determine one.
    """
    lengths = jnp.linalg.norm(features, axis=0)
    scaled = features / jnp.where(lengths > 0.0, lengths, 1.0)[None, :]
    basis, triangle = jnp.linalg.qr(scaled)
    smallest = 10.0 * float(np.finfo(features.dtype).eps) * len(features) ** 0.5
    kept = jnp.abs(jnp.diagonal(triangle)) > smallest
    # QR leaves every sign undetermined.
    signs = jnp.where(jnp.diagonal(triangle) < 0.0, -1.0, 1.0).astype(features.dtype)
    ordered: Array = (basis * jnp.where(kept, signs, 0.0)[None, :])[:, 1:]
    return ordered


def successor_distances(functions: DoubleArray, truth: GroundTruth) -> DoubleArray:
    """Compute the first d functions' distance to a successor measure's top d, for every d, [d].

    The matrix has its columns' means over states subtracted, so its left singular vectors have no
    constant part; the functions' means are therefore subtracted too. All states weigh the same.
    """
    centred = functions - functions.mean(axis=0, keepdims=True)
    return _distances(centred, np.asarray(truth.principal.basis, np.float64))


def _distances(functions: DoubleArray, basis: DoubleArray) -> DoubleArray:
    """Compute the distance between the first d of both, for every d; zero columns span nothing."""
    with jax.enable_x64(True):
        left, right = jnp.asarray(functions), jnp.asarray(basis, jnp.float64)
        numbers = range(1, functions.shape[1] + 1)
        return np.asarray([float(subspace_distance(left[:, :d], right[:, :d])) for d in numbers])
