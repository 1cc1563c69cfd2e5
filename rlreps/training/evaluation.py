"""Measures of an encoder against a ground truth."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlreps import subspace
from rlreps.encoders import Encoder, Params
from rlreps.errors import require
from rlreps.subspace import RowBlocks
from rlreps.successor.truth.ground_truth import GroundTruth


def evaluate_features(features: Array, truth: GroundTruth) -> dict[str, Any]:
    """Compute every measure of a representation that the library knows.

    Args:
        features: Φ, [n, d].
        truth: The ground truth.

    Returns:
        JSON values: ``d``, ``feature_rank``, ``subspace_distance``, ``grassmann_distance``
        (radians), ``principal_angles`` (radians, rising), ``matched_cosines`` (per true component),
        ``longest_eigenvector_streak``, ``representation_loss`` (None if the ground truth has no
        matrix) and ``relative_excess_loss`` (None without a matrix, or if the best d features leave
        no loss to compare with). Cosines and streak compare the features' own
        ``principal_components``.

    Raises:
        InputError: If the features do not fit the ground truth.
    """
    d = features.shape[1]
    truth.require_dimension(d)
    require(features.shape[0] == truth.num_states, f"{truth.num_states} states", features.shape[0])
    target = truth.principal.truncated(d)
    basis = jnp.asarray(target.basis)
    if truth.matrix is None:
        # F Σ has the same leading left singular vectors as Ψ.
        leading = jnp.asarray(truth.principal.basis * truth.principal.singular_values)
        components, loss, excess = principal_components(features, leading), None, math.nan
    else:
        components = principal_components(features, truth.matrix)
        loss = float(subspace.representation_loss(features, truth.matrix))
        excess = float(subspace.relative_excess(jnp.float32(loss), target, d))
    return {
        "d": d,
        "feature_rank": int(subspace.numerical_rank(features)),
        "subspace_distance": float(subspace.subspace_distance(features, basis)),
        "grassmann_distance": float(subspace.grassmann_distance(features, basis)),
        "principal_angles": np.asarray(subspace.principal_angles(features, basis)).tolist(),
        "matched_cosines": subspace.matched_cosines(components, basis).tolist(),
        "longest_eigenvector_streak": int(subspace.longest_eigenvector_streak(components, basis)),
        "representation_loss": loss,
        "relative_excess_loss": None if math.isnan(excess) else excess,
    }


def principal_components(features: Array, matrix: Array | RowBlocks) -> Array:
    """Compute the representation's own principal components, the left singular vectors of P_Φ Ψ.

    The components depend on the span alone, so they can be compared with the true components one by
    one. Raw features cannot, since they are defined only up to rotation.

    Args:
        features: Φ, [n, d].
        matrix: Ψ, [n, tasks], centred; row blocks are read once.

    Returns:
        Orthonormal columns [n, d], by falling energy; zero beyond the rank of the features.
    """
    orthonormal, _ = subspace.orthonormal_basis(features)
    source = matrix if isinstance(matrix, RowBlocks) else subspace.ArrayBlocks(np.asarray(matrix))
    projected = subspace.project_rows(np.asarray(orthonormal), source)
    left, _, _ = jnp.linalg.svd(jnp.asarray(projected), full_matrices=False)
    components: Array = jnp.matmul(orthonormal, left, precision=lax.Precision.HIGHEST)
    return components


def evaluate_encoder(
    encoder: Encoder, params: Params, inputs: Array, truth: GroundTruth
) -> dict[str, Any]:
    """Compute ``evaluate_features`` at all inputs [n, ...], in the ground truth's order."""
    return evaluate_features(jax.jit(encoder.apply)(params, inputs), truth)


def summarise(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average the scalar measures over seeds, and keep those of every seed.

    Returns:
        JSON values: the mean of every scalar measure (None if a seed has none; an integer that all
        seeds share stays one) and ``per_seed``.
    """
    summary: dict[str, Any] = {}
    for name, first in evaluations[0].items():
        if not isinstance(first, list):
            values = [evaluation[name] for evaluation in evaluations]
            shared = type(first) is int and len({*values}) == 1
            summary[name] = first if shared else None if None in values else float(np.mean(values))
    summary["per_seed"] = [dict(evaluation) for evaluation in evaluations]
    return summary
