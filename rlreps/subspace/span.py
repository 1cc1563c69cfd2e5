"""The span of a set of features: orthonormal basis and numerical rank."""

import jax
import jax.numpy as jnp

from rlreps.errors import InputError
from rlreps.subspace.principal import relative_tolerance


@jax.jit
def numerical_rank(features: jax.Array) -> jax.Array:
    """Number of linearly independent features, as far as the dtype can tell.

    The number of singular values of the column-normalised features above `relative_tolerance` times
    the largest.

    Args:
      features: [n, d] float32 or float64 array.

    Returns:
      Scalar int32.
    """
    rank: jax.Array
    _, rank = orthonormal_basis(features)
    return rank


@jax.jit
def orthonormal_basis(features: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Orthonormal basis of the features' span.

    Columns are scaled to unit length, which brings the condition number within sqrt(d) of the best
    that any column scaling reaches (van der Sluis 1969); then Householder QR and the singular value
    decomposition of the triangle, never the Gram matrix, which would square the condition number.

    Args:
      features: [n, d] float32 or float64 array.

    Returns:
      The basis [n, d], whose columns beyond the numerical rank are zero, and the rank, int32.

    Raises:
      InputError: if the features are not a non-empty float32 or float64 matrix.
    """
    require_features(features)
    num_states, num_features = features.shape
    panel, triangle = jnp.linalg.qr(normalise_columns(features))
    rotation, values, _ = jnp.linalg.svd(triangle, full_matrices=False)
    # Stated as "not below", so that NaN features give a NaN basis rather than an empty one.
    kept = ~(values <= relative_tolerance(features.shape, features.dtype) * values[0])
    basis = jnp.where(
        kept[None, :], jnp.matmul(panel, rotation, precision=jax.lax.Precision.HIGHEST), 0.0
    )
    missing_columns = num_features - min(num_states, num_features)
    padded = jnp.pad(basis, ((0, 0), (0, missing_columns)))
    return padded, jnp.sum(kept, dtype=jnp.int32)


def normalise_columns(features: jax.Array) -> jax.Array:
    """Scales columns to unit length in two steps, so that squares neither over- nor underflow."""
    largest = jnp.max(jnp.abs(features), axis=0, keepdims=True)
    scaled = features / jnp.where(largest == 0.0, 1.0, largest)
    lengths = jnp.linalg.norm(scaled, axis=0, keepdims=True)
    return scaled / jnp.where(lengths == 0.0, 1.0, lengths)


def require_features(features: jax.Array) -> None:
    """Checks that the features are a non-empty float32 or float64 matrix."""
    is_float = features.dtype in (jnp.float32, jnp.float64)
    if features.ndim != 2 or features.size == 0 or not is_float:
        raise InputError(
            "expected non-empty float32 or float64 features [states, features], "
            f"got {features.dtype} of shape {features.shape}"
        )


def require_pair(features: jax.Array, other: jax.Array) -> jax.Array:
    """Checks that both are matrices over the same states; gives the other the features' dtype."""
    require_features(features)
    if other.ndim != 2 or other.shape[0] != features.shape[0] or other.size == 0:
        raise InputError(
            f"expected a matrix over the features' {features.shape[0]} states, "
            f"got shape {other.shape}"
        )
    return jnp.asarray(other, features.dtype)
