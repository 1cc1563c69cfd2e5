"""How near learned features are to the slowest eigenfunctions, and to the successor measure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlreps.encoders import Encoder, Params
from rlreps.experiments.ours.slow_puddle.problem import DoubleArray, Problem
from rlreps.subspace import matched_cosines, subspace_distance
from rlreps.successor.ground_truth import GroundTruth

_HIGHEST = jax.lax.Precision.HIGHEST


def ordered_basis(features: Array) -> Array:
    """Features made orthonormal one after the other: the k-th mixes the first k only.

    Args:
        features: [n, 1 + d]; the first is the constant, all weighed by the root of the measure.

    Returns:
        The later ones' parts, [n, d]; a feature that those before it fix gives zeros.
    """
    lengths = jnp.linalg.norm(features, axis=0)
    scaled = features / jnp.where(lengths > 0.0, lengths, 1.0)[None, :]
    basis, triangle = jnp.linalg.qr(scaled)
    smallest = 10.0 * float(np.finfo(features.dtype).eps) * len(features) ** 0.5
    kept = jnp.abs(jnp.diagonal(triangle)) > smallest
    # A QR leaves the sign of each open.
    signs = jnp.where(jnp.diagonal(triangle) < 0.0, -1.0, 1.0).astype(features.dtype)
    ordered: Array = (basis * jnp.where(kept, signs, 0.0)[None, :])[:, 1:]
    return ordered


def training_measures(
    encoder: Encoder, problem: Problem, dimensions: Sequence[int]
) -> Callable[[Params], dict[str, Array]]:
    """The figures followed during training.

    Args:
        encoder: Gives the constant and d features of cell centres.
        problem: The ground truth.
        dimensions: Where distances are taken.

    Returns:
        Parameters → ``distance_d`` of the first d eigenfunctions' span, for every dimension,
        ``subspace_distance``, that of the largest, and ``cosine_k``, the k-th's |cosine| with the
        true k-th, each [].
    """
    root = jnp.asarray(np.sqrt(problem.measure)[:, None], jnp.float32)
    truth = jnp.asarray(np.sqrt(problem.measure)[:, None] * problem.eigenfunctions, jnp.float32)
    centres = jnp.asarray(problem.centres)

    def evaluate(params: Params) -> dict[str, Array]:
        basis = ordered_basis(encoder.apply(params, centres) * root)
        overlaps = jnp.matmul(basis.T, truth[:, : basis.shape[1]], precision=_HIGHEST)

        def distance(d: int) -> Array:
            # As ``subspace_distance``, of a basis that is orthonormal already.
            shared = jnp.matmul(basis[:, :d], overlaps[:d, :d], precision=_HIGHEST)
            return jnp.minimum(jnp.sum(jnp.square(truth[:, :d] - shared)) / d, 1.0)

        distances = {f"distance_{d}": distance(d) for d in dimensions}
        cosines = {
            f"cosine_{k + 1}": jnp.abs(value) for k, value in enumerate(jnp.diagonal(overlaps))
        }
        return {
            "subspace_distance": distances[f"distance_{dimensions[-1]}"],
            **distances,
            **cosines,
        }

    return evaluate


class Learned(NamedTuple):
    """One seed's eigenfunctions, in the order in which they were learned.

    Attributes:
        functions: Orthonormal in the measure, signs those of the true ones, [n, d]; zeros where
            features collapsed.
        eigenvalues: uᵀLu of each, exact, [d]; NaN where features collapsed.
        cosines: |cosine| of the eigenfunction matched to each true one, [d].
        distances: To the span of the first d true ones, for every d from 1, [d].
        successor_distances: To the successor measure's top-d subspace, for every d from 1, [d].
    """

    functions: DoubleArray
    eigenvalues: DoubleArray
    cosines: DoubleArray
    distances: DoubleArray
    successor_distances: DoubleArray


def measure_features(features: Array, problem: Problem, successor: GroundTruth) -> Learned:
    """Everything that is measured of a seed's features after training, in float64.

    Args:
        features: The constant and d features of all states, [n, 1 + d].
        problem: The ground truth.
        successor: The successor measure's.
    """
    root = np.sqrt(problem.measure)[:, None]
    # The host's precision: eigenvalues are small differences of features.
    with jax.enable_x64(True):
        weighed = jnp.asarray(np.asarray(features, np.float64) * root)
        basis = np.asarray(ordered_basis(weighed))
        count = basis.shape[1]
        truth = root * problem.eigenfunctions[:, :count]
        cosines = matched_cosines(jnp.asarray(basis), jnp.asarray(truth))
    signs = np.where(np.sum(basis * truth, axis=0) < 0.0, -1.0, 1.0)
    basis = basis * signs
    functions = basis / root
    rates = np.sum(functions * (problem.graph.laplacian @ functions), axis=0)
    collapsed = ~basis.any(axis=0)
    return Learned(
        functions=functions,
        eigenvalues=np.where(collapsed, np.nan, rates),
        cosines=np.asarray(cosines, np.float64),
        distances=nested_distances(basis, truth),
        successor_distances=successor_distances(functions, successor),
    )


def nested_distances(functions: DoubleArray, basis: DoubleArray) -> DoubleArray:
    """Distance between the spans of the first d of either, for d = 1 … all functions', [d]."""
    with jax.enable_x64(True):
        left, right = jnp.asarray(functions), jnp.asarray(basis, jnp.float64)
        found = [
            float(subspace_distance(left[:, :d], right[:, :d]))
            for d in range(1, functions.shape[1] + 1)
        ]
    return np.asarray(found)


def successor_distances(functions: DoubleArray, successor: GroundTruth) -> DoubleArray:
    """Distance of the first d functions to the successor measure's top-d subspace, every d, [d].

    That matrix has its columns' means over states removed, which leaves its left singular vectors
    without a constant part; so the functions' means are removed as well. All states count alike.
    """
    centred = functions - functions.mean(axis=0, keepdims=True)
    return nested_distances(centred, np.asarray(successor.principal.basis, np.float64))
