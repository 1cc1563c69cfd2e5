"""Estimates of the *inverse* covariance of features, (E[phi phi^T])^{-1}, from sampled rows."""

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.errors import InputError
from rlreps.numerics import jit, matmul, require_array


@jit
def lissa(features: jax.Array, right_hand_side: jax.Array, kappa: jax.Array | float) -> jax.Array:
    """Apply the LISSA estimate of the inverse covariance to a right-hand side.

    Delta_0 = kappa I and Delta_j = kappa I + (I - kappa phi_j phi_j^T) Delta_{j-1}; Le Lan et al.
    (2023), after Agarwal, Bullins & Hazan (2017). If rows are independent and kappa does not depend
    on them, the expectation is the truncated Neumann series kappa sum_{i<=J} (I - kappa C)^i, which
    tends to the inverse of C = E phi phi^T as J grows if kappa lies in (0, 2 / lambda_max) and C is
    invertible. For a singular C the series grows without bound; the limit in Eq. 13 of Le Lan et
    al. (2023), the pseudo-inverse, holds only on the range of C. Weights are unaffected, since
    E phi psi lies in that range. If kappa comes from the same rows, the expectation is not the
    series. In vector form, a term costs O(d t).

    Args:
      features: [j, d] rows phi_1, ..., phi_J, the first row entering first.
      right_hand_side: [d, t] columns to apply the estimate to, of the features' dtype.
      kappa: scalar step size, at most 2 / ||phi||^2 for every row, or terms grow. Lemma 2 of Le Lan
        et al. (2023) prints the sup of these bounds instead of the smallest.

    Returns:
      [d, t] array Delta_J right_hand_side.

    Raises:
      InputError: if the shapes do not fit together, or arrays are of integers.
    """
    for each in (features, right_hand_side):
        require_array("arrays [j, d] and [d, t]", each)
    kappa = jnp.asarray(kappa)
    fit = features.ndim == right_hand_side.ndim == 2 and kappa.ndim == 0
    _require_fit(
        fit and features.shape[1] == right_hand_side.shape[0],
        "floating-point features [j, d], a right-hand side [d, t] and a scalar step",
        (features, right_hand_side),
        kappa,
    )
    step = kappa.astype(features.dtype)
    first = step * right_hand_side

    def add_term(estimate: jax.Array, phi: jax.Array) -> tuple[jax.Array, None]:
        overlap = matmul(phi, estimate)
        return first + estimate - (step * phi)[:, None] * overlap[None, :], None

    estimate, _ = jax.lax.scan(add_term, first, features)
    return estimate


@jit
def chunked_lissa(
    covariances: jax.Array, right_hand_sides: jax.Array, kappa: jax.Array | float
) -> jax.Array:
    """Run LISSA in chunks of rows, each term with a right-hand side of its own.

    w_0 = 0 and w_j = w_{j-1} + kappa (b_j - C_j w_{j-1}), an extension of rlreps. For independent
    chunks with mean covariance C and mean right-hand side b, the expectation is that of LISSA: the
    truncated Neumann series kappa sum_{i<J} (I - kappa C)^i b. If b_j and C_j come from the same
    rows, the noise is that of the residual phi^T w - psi, not of psi: far smaller near the
    solution. With one row per chunk and equal b_j, w_J is the result of `lissa` without the first
    row.

    Args:
      covariances: C_j, [J, d, d] mean phi phi^T of each chunk.
      right_hand_sides: b_j, [J, d, t] mean phi psi of each chunk.
      kappa: scalar step size in (0, 2 / lambda_max).

    Returns:
      [d, t] array w_J.

    Raises:
      InputError: if the shapes do not fit together, or arrays are of integers.
    """
    for each in (covariances, right_hand_sides):
        require_array("arrays [J, d, d] and [J, d, t]", each)
    kappa = jnp.asarray(kappa)
    fit = covariances.ndim == right_hand_sides.ndim == 3 and kappa.ndim == 0
    _require_fit(
        fit
        and covariances.shape == (*right_hand_sides.shape[:2], covariances.shape[1])
        and len(covariances) >= 1,
        "floating-point covariances [J, d, d], right-hand sides [J, d, t] and a scalar step",
        (covariances, right_hand_sides),
        kappa,
    )
    step = kappa.astype(right_hand_sides.dtype)

    def add_term(weights: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        covariance, right_hand_side = chunk
        missing = right_hand_side - matmul(covariance, weights)
        return weights + step * missing, None

    start = jnp.zeros_like(right_hand_sides[0])
    weights, _ = jax.lax.scan(add_term, start, (covariances, right_hand_sides))
    return weights


@jit
def empirical_inverse_covariance(features: jax.Array) -> jax.Array:
    """Compute the pseudo-inverse of the empirical covariance, (Phi^T Phi / J)^+.

    Eigenvalues below 10 d eps times the largest count as zero, so fewer rows than features, dead
    features and duplicates are allowed. Use the result as a constant: the derivative of an
    eigendecomposition is not defined where eigenvalues coincide.

    Args:
      features: Phi, [J, d].

    Returns:
      [d, d] symmetric positive semi-definite array.

    Raises:
      InputError: if the array of features is empty or holds integers.
    """
    require_array("features as an array [J, d]", features)
    fit = features.ndim == 2 and features.size > 0
    _require_fit(fit, "non-empty floating-point features [J, d]", (features,))
    num_rows, num_features = features.shape
    covariance = matmul(features.T, features) / float(num_rows)
    eigenvalues, vectors = jnp.linalg.eigh(covariance)
    cutoff = 10.0 * num_features * float(np.finfo(features.dtype).eps) * eigenvalues[-1]
    # Stated as "not below", so that NaN features give NaN rather than a zero inverse.
    kept = ~(eigenvalues <= cutoff)
    reciprocals = jnp.where(kept, 1.0 / jnp.where(kept, eigenvalues, 1.0), 0.0)
    return matmul(vectors * reciprocals[None, :], vectors.T)


def _require_fit(
    fit: bool, expected: str, arrays: tuple[jax.Array, ...], *others: jax.Array
) -> None:
    """Raise an ``InputError`` with all types and shapes unless they fit and arrays are floating."""
    floating = all(jnp.issubdtype(each.dtype, jnp.floating) for each in arrays)
    if not (fit and floating):
        got = ", ".join(f"{each.dtype}{list(each.shape)}" for each in (*arrays, *others))
        raise InputError(f"expected {expected}, got {got}")
