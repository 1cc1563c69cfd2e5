"""The noise floor: distance of an averaged matrix's subspaces from the truth, from two halves."""

import numpy as np

from rlreps.errors import InputError


def nested_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compute subspace distances between the leading d columns of two bases for every d.

    1 - ||F_d^T G_d||_F^2 / d, all from one overlap matrix, O(n k^2). Both bases are orthonormalised
    once more in float64 (QR keeps the leading spans), so that distances of float32 bases are right
    to about 1e-13.

    Args:
      first: F, [n, k] columns that are linearly independent, orthonormal up to rounding.
      second: G, [n, k] likewise.

    Returns:
      [k] float64 in [0, 1], for d = 1, ..., k.

    Raises:
      InputError: if the bases do not have the same shape [n, k] with 1 <= k <= n.
    """
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

    The average M = (A + B) / 2 of two independent, unbiased, equally noisy halves A = T + E_A and
    B = T + E_B. To first order in the noise, the left singular vectors of T + E turn by an angle
    linear in E, so the subspace distance, a mean of squared sines, is quadratic: q(E) for some
    quadratic form q. Let v be the expectation of q(E_A). By independence, the expectation of q is
    v / 2 for the error of M, (E_A + E_B) / 2, and 2 v for the halves' difference, E_A - E_B.
    So the expected distance of M from the truth is a quarter of the distance between the halves.

    The result estimates an expectation, which is smooth over d; one pair of halves scatters about
    it. First order holds while the floor is small. The distance between the halves cannot exceed
    1 - d/n, so a floor near 1/4 only says that the halves have nothing in common.

    Args:
      first_half: [n, k] leading left singular vectors of A, by falling singular value.
      second_half: [n, k] those of B.

    Returns:
      [k] float64 in [0, 1/4], for d = 1, ..., k.
    """
    return nested_distances(first_half, second_half) / 4.0
