"""Distances between a representation's span and a principal subspace.

Features Phi are [n, d] (states by features) of float32 or float64, the basis F_k is [n, k] with
orthonormal columns; arrays that do not fit together raise an `InputError`. Every function that
compares spans orthonormalises the features first, so it is unchanged under invertible linear maps
of them; `matched_cosines` and `longest_eigenvector_streak` compare single columns and are unchanged
under scalings and signs only. Numbers below the smallest normal one (1.2e-38 in float32) may count
as zero, as in all compiled code. NaN or infinite features give NaN.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax
from jax.core import Tracer

from rlreps.errors import InputError, require, require_positive
from rlreps.numerics import jit, matmul, require_array
from rlreps.subspace.row_blocks import ArrayBlocks, RowBlocks, residual_energy
from rlreps.subspace.svd import PrincipalSubspace, relative_tolerance

_ORTHONORMAL = 0.01
"""Largest difference between the Gram matrix of a basis and the identity."""


@jit
def numerical_rank(features: jax.Array) -> jax.Array:
    """Count the linearly independent features, as far as the dtype can tell.

    Return the number [] (int32) of singular values of the column-normalised features that exceed
    `relative_tolerance` times the largest singular value.
    """
    return orthonormal_basis(features)[1]


@functools.partial(jit, static_argnames="d")
def leading_combinations(features: jax.Array, matrix: jax.Array, d: int) -> jax.Array:
    """Compute the d combinations of features that explain most of a matrix (Rayleigh-Ritz).

    Features times the combinations span the leading left singular subspace of P_Phi Psi, the
    matrix projected onto the features' span. To learn d components sooner, train more than d
    features and keep these combinations: the last of the trained components converge slowest.

    Args:
      features: Phi, [n, m], m >= d.
      matrix: Psi, [n, t].
      d: number of combinations.

    Returns:
      [m, d] combinations, which give orthonormal features in the order of their singular values;
      columns beyond the features' numerical rank are zero.

    Raises:
      InputError: if d is not in 1 to m, features and matrix differ in rows, or t < d.
    """
    require_positive("d", d)
    _require_features(features)
    require_array("a matrix as an array [states, columns]", matrix)
    require(d <= features.shape[1], f"d in 1 to {features.shape[1]} features", d)
    require(len(matrix) == len(features), f"a matrix of {len(features)} rows", matrix.shape)
    require(matrix.shape[1] >= d, f"a matrix of at least {d} columns", matrix.shape)
    # Normalise columns first, as ``numerical_rank`` does, so that none of small scale is dropped.
    # The result does not depend on the lengths, and their gradient at zero columns would be NaN.
    lengths = lax.stop_gradient(jnp.sum(_normalise_columns(features) * features, axis=0))
    lengths = jnp.where(lengths == 0.0, 1.0, lengths)
    units = features / lengths[None, :]
    panel, values, turn = jnp.linalg.svd(units, full_matrices=False)
    kept = values > relative_tolerance(features.shape, features.dtype) * values[0]
    panel = jnp.where(kept[None, :], panel, 0.0)
    rotation, _, _ = jnp.linalg.svd(matmul(panel.T, matrix), full_matrices=False)
    scales = jnp.where(kept, values, 1.0)
    found = matmul(turn.T, jnp.where(kept[:, None], rotation[:, :d] / scales[:, None], 0.0))
    return found / lengths[:, None]


@jit
def orthonormal_basis(features: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute an orthonormal basis of the features' span.

    Columns are first scaled to unit length, which brings the condition number within a factor
    sqrt(d) of the best that any column scaling reaches (van der Sluis 1969). Householder QR and the
    singular value decomposition of the triangle follow. The Gram matrix, which would square the
    condition number, is never formed.

    Returns:
      The basis [n, d], whose columns beyond the numerical rank are zero, and the rank, int32.
    """
    _require_features(features)
    num_states, num_features = features.shape
    panel, triangle = jnp.linalg.qr(_normalise_columns(features))
    rotation, values, _ = jnp.linalg.svd(triangle, full_matrices=False)
    # Stated as "not below", so that NaN features give a NaN basis rather than an empty one.
    kept = ~(values <= relative_tolerance(features.shape, features.dtype) * values[0])
    basis = jnp.where(kept[None, :], matmul(panel, rotation), 0.0)
    missing_columns = num_features - min(num_states, num_features)
    padded = jnp.pad(basis, ((0, 0), (0, missing_columns)))
    return padded, jnp.sum(kept, dtype=jnp.int32)


def _normalise_columns(features: jax.Array) -> jax.Array:
    """Scale columns to unit length in steps, so that squares neither over- nor underflow."""
    largest = jnp.max(jnp.abs(features), axis=0, keepdims=True)
    # A compiled division may multiply by the reciprocal, which is zero of the largest numbers.
    step = jnp.where(largest > 1.0, 2.0**-32, 2.0**32).astype(features.dtype)
    largest = largest * step
    scaled = features * step / jnp.where(largest == 0.0, 1.0, largest)
    lengths = jnp.linalg.norm(scaled, axis=0, keepdims=True)
    return scaled / jnp.where(lengths == 0.0, 1.0, lengths)


def _require_features(features: jax.Array) -> None:
    require_array("features as an array [states, features]", features)
    is_float = features.dtype in (jnp.float32, jnp.float64)
    if features.ndim != 2 or features.size == 0 or not is_float:
        raise InputError(
            "expected non-empty float32 or float64 features [states, features], "
            f"got {features.dtype} of shape {features.shape}"
        )


def _require_states(features: jax.Array, other: jax.Array) -> None:
    _require_features(features)
    require_array("a matrix as an array [states, columns]", other)
    if other.ndim != 2 or other.shape[0] != features.shape[0] or other.size == 0:
        raise InputError(
            f"expected a matrix over the features' {features.shape[0]} states, "
            f"got shape {other.shape}"
        )


def _require_pair(features: jax.Array, other: jax.Array) -> jax.Array:
    """Check that both are matrices over the same states; return the other in their dtype."""
    _require_states(features, other)
    return jnp.asarray(other, features.dtype)


def _of_orthonormal(
    function: Callable[[jax.Array, jax.Array], jax.Array],
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Compile a function of features and a basis; outside compiled functions, check the basis."""
    compiled = jit(function)

    @functools.wraps(function)
    def checked(features: jax.Array, basis: jax.Array) -> jax.Array:
        found = compiled(features, basis)  # Checks shapes and types.
        if not isinstance(basis, Tracer):
            columns = np.asarray(basis, np.float64)
            apart = np.abs(columns.T @ columns - np.eye(columns.shape[1])).max()
            expected = "a basis of orthonormal columns (see orthonormal_basis)"
            got = f"a Gram matrix that differs from the identity by {apart:.2g}"
            require(not apart > _ORTHONORMAL, expected, got)
        return found

    return checked


@_of_orthonormal
def subspace_distance(features: jax.Array, basis: jax.Array) -> jax.Array:
    """Compute the share of the basis outside the features' span, 1 - tr(F F^T P_Phi) / k.

    Le Lan et al. (2023). Computed as ||F - P_Phi F||_F^2 / k, which is the same number without the
    cancellation, and so keeps its relative precision near zero.

    Args:
      features: Phi, [n, d].
      basis: F_k, [n, k]; its columns must be orthonormal. This function and the two functions
        below check them, except inside compiled functions.

    Returns:
      Scalar in [0, 1]: zero if the span holds the basis, one if they are orthogonal. Its gradient
      is NaN where a feature is zero in all states.
    """
    _, residual = _project(features, basis)
    return jnp.minimum(jnp.sum(jnp.square(residual)) / basis.shape[1], 1.0)


@_of_orthonormal
def principal_angles(features: jax.Array, basis: jax.Array) -> jax.Array:
    """Compute the principal angles between the basis and the features' span.

    Cosines are the singular values of Q^T F; sines are the singular values of F - Q Q^T F. Both are
    used, so that angles near zero and near pi/2 keep their digits (Björck & Golub 1973).

    Returns:
      [k] angles in radians, rising, in [0, pi/2]; if the features' rank is below k, the directions
      that they miss count as pi/2.
    """
    overlap, residual = _project(features, basis)
    num_components = basis.shape[1]
    cosines = jnp.linalg.svd(overlap, compute_uv=False)[:num_components]
    cosines = jnp.pad(cosines, (0, num_components - cosines.shape[0]))
    sines = jnp.linalg.svd(jnp.linalg.qr(residual, mode="r"), compute_uv=False)
    return jnp.arctan2(sines[::-1], cosines)


@_of_orthonormal
def grassmann_distance(features: jax.Array, basis: jax.Array) -> jax.Array:
    """Compute the norm of the principal angles, a geodesic length in [0, sqrt(k) pi/2]."""
    return jnp.sqrt(jnp.sum(jnp.square(principal_angles(features, basis))))


def matched_cosines(features: jax.Array, basis: jax.Array) -> np.ndarray:
    """Compute |cosine| between each component and the feature matched to it.

    Features are matched one to one to components so that the sum of |cosine| is largest (Hungarian
    algorithm, scipy.optimize.linear_sum_assignment). It runs on the host and cannot be jitted.

    Returns:
      [k] array in [0, 1], by component; zero for components left over where d < k.

    Raises:
      InputError: if the features are not finite.
    """
    cosines = np.asarray(_column_cosines(features, basis))
    if not np.all(np.isfinite(cosines)):
        raise InputError("expected finite features, got NaN or infinity")
    columns, components = scipy.optimize.linear_sum_assignment(cosines, maximize=True)
    matched = np.zeros(basis.shape[1], dtype=cosines.dtype)
    matched[components] = cosines[columns, components]
    return matched


@jit
def longest_eigenvector_streak(features: jax.Array, basis: jax.Array) -> jax.Array:
    """Count the leading components that the features match in order.

    Count components from the first until the feature of the same index is more than pi/8 away
    (Gemp et al. 2021, EigenGame).

    Args:
      features: column i is the estimate of component i, of any length and sign.
      basis: the components.

    Returns:
      Scalar int32 between 0 and min(d, k).
    """
    basis = _require_pair(features, basis)
    shared = min(features.shape[1], basis.shape[1])
    estimates, components = _normalise_columns(features[:, :shared]), basis[:, :shared]
    cosines = jnp.sum(estimates * components, axis=0)
    sines = jnp.linalg.norm(estimates - components * cosines[None, :], axis=0)
    # A zero feature has no direction: sine and cosine are both zero, and the angle would read zero.
    pointless = (cosines == 0.0) & (sines == 0.0)
    angles = jnp.where(pointless, jnp.inf, jnp.arctan2(sines, jnp.abs(cosines)))
    matches = angles <= np.pi / 8
    return jnp.sum(jnp.cumprod(matches.astype(jnp.int32)))


@jit
def align(features: jax.Array | np.ndarray, basis: jax.Array | np.ndarray) -> jax.Array:
    """Rotate an orthonormal basis of the features' span as close as possible to the components.

    Orthogonal Procrustes: Q U V^T with Q^T F = U S V^T. Use it to plot learned components beside
    true ones.

    Returns:
      [n, k] array; its columns are orthonormal if the features' rank is at least k, and otherwise
      the image of a partial isometry onto their span.
    """
    features = jnp.asarray(features)
    basis = _require_pair(features, jnp.asarray(basis))
    span, _ = orthonormal_basis(features)
    overlap = matmul(span.T, basis)
    left, _, right = jnp.linalg.svd(overlap, full_matrices=False)
    return matmul(matmul(span, left), right)


def representation_loss(features: jax.Array, matrix: jax.Array | RowBlocks) -> jax.Array:
    """Compute the error of the best linear prediction, L(Phi) = ||(I - P_Phi) Psi||_F^2.

    The matrix is read twice, in blocks of rows, on the host, with sums in float64
    (`residual_energy`); the loss cannot be jitted.

    Args:
      features: Phi.
      matrix: Psi, [n, t] states by tasks, in memory or as row blocks.

    Returns:
      Scalar of the features' dtype.
    """
    if not isinstance(matrix, RowBlocks):
        _require_states(features, matrix)
        matrix = ArrayBlocks(np.asarray(matrix, features.dtype))
    span, _ = orthonormal_basis(features)
    return jnp.asarray(residual_energy(np.asarray(span), matrix), features.dtype)


def relative_excess(loss: jax.Array, subspace: PrincipalSubspace, d: int) -> jax.Array:
    """Compute the excess of representation losses over the optimum of d features, L / L(F_d) - 1.

    It stays meaningful if sigma_d and sigma_{d+1} are close, so that F_d is ill determined. The
    optimum L(F_d) is the total energy - sum_{i<=d} sigma_i^2, summed in float64; the singular
    values' own rounding leaves an error of about 1e-6 of the total energy for a float32 matrix.

    Args:
      loss: L(Phi), of any shape.
      subspace: principal subspace of the same matrix with at least d components.
      d: number of features that the optimum may use.

    Returns:
      At least zero up to rounding; NaN where L(F_d) is zero to rounding, as the ratio has no
      meaning there.
    """
    require_positive("d", d)
    values = subspace.truncated(d).singular_values
    optimum = subspace.total_energy - float(np.sum(np.square(values.astype(np.float64))))
    rounding = 10.0 * float(np.finfo(values.dtype).eps) * subspace.total_energy
    return (loss - optimum) / (optimum if optimum > rounding else float("nan"))


@jit
def _column_cosines(features: jax.Array, basis: jax.Array) -> jax.Array:
    basis = _require_pair(features, basis)
    cosines = matmul(_normalise_columns(features).T, basis)
    return jnp.minimum(jnp.abs(cosines), 1.0)


def _project(features: jax.Array, basis: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return Q^T F [d, k] and F - Q Q^T F [n, k] for an orthonormal basis Q of the span."""
    basis = _require_pair(features, basis)
    span, _ = orthonormal_basis(features)
    overlap = matmul(span.T, basis)
    return overlap, basis - matmul(span, overlap)


def nested_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compute subspace distances between the leading d columns of two bases for every d.

    1 - ||F_d^T G_d||_F^2 / d, all from one overlap matrix, O(n k^2). Both bases are orthonormalised
    once more in float64 (QR keeps the leading spans), so that distances of float32 bases are right
    to about 1e-13.

    Args:
      first: F, [n, k] columns that are linearly independent, orthonormal up to rounding.
      second: G, [n, k], with the same properties.

    Returns:
      [k] float64 in [0, 1], for d = 1, ..., k.

    Raises:
      InputError: if the bases do not have the same shape [n, k] with 1 <= k <= n.
    """
    for basis in (first, second):
        require_array("bases as arrays [n, k]", basis)
    if first.ndim != 2 or first.shape != second.shape or not 1 <= first.shape[1] <= len(first):
        raise InputError(
            "expected two bases of one shape [n, k] with 1 <= k <= n, "
            f"got {first.shape} and {second.shape}"
        )
    left, _ = np.linalg.qr(first.astype(np.float64))
    right, _ = np.linalg.qr(second.astype(np.float64))
    overlaps = np.square(left.T @ right)
    # The sum over the leading d x d block, for every d.
    captured = np.diagonal(np.cumsum(np.cumsum(overlaps, axis=0), axis=1))
    dimensions = np.arange(1, first.shape[1] + 1)
    return np.asarray(np.clip((dimensions - captured) / dimensions, 0.0, 1.0))


def noise_floor(first_half: np.ndarray, second_half: np.ndarray) -> np.ndarray:
    """Estimate the subspace distance between an averaged matrix and the truth for every d.

    M = (A + B) / 2 is the mean of two independent, unbiased, equally noisy halves A = T + E_A and
    B = T + E_B. To first order in the noise, the left singular vectors of T + E turn by an angle
    linear in E, so the subspace distance, a mean of squared sines, is quadratic: q(E) for some
    quadratic form q. Let v be the expectation of q(E_A). By independence, the expectation of q is
    v / 2 for the error of M, (E_A + E_B) / 2, and 2 v for the halves' difference, E_A - E_B. So the
    expected distance of M from the truth is a quarter of the distance between the halves.

    The result estimates an expectation, which is smooth over d; one pair of halves scatters about
    it. The first-order estimate holds while the floor is small. The distance between the halves
    cannot exceed 1 - d/n, so a floor near 1/4 only says that the halves have nothing in common.

    Args:
      first_half: [n, k] leading left singular vectors of A, by falling singular value.
      second_half: [n, k] leading left singular vectors of B.

    Returns:
      [k] float64 in [0, 1/4], for d = 1, ..., k.
    """
    return nested_distances(first_half, second_half) / 4.0
