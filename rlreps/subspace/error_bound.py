"""Bounds on the distance of a computed principal subspace from the exact one, from residuals alone.

Subspace iteration ends with m Ritz triplets (u_i, theta_i, v_i), m a little above the rank, that
satisfy A'U = V Theta exactly and A V = U Theta + R with U'R = 0. In orthonormal bases (U, U_rest)
and (V, V_rest) the matrix is

    A = [ Theta_1  0        0 ]    1: the first d Ritz vectors, whose span is bounded
        [ 0        Theta_2  0 ]    2: Ritz vectors d + 1, ..., m' for any m' from d to m
        [ E_1      E_2      C ]    everything else, with column norms |E e_i| = r_i

Let A Y = X S and A'X = Y S for the exact leading d triplets, X = U_1 p_1 + U_2 p_2 + U_rest p_3
and likewise Y with q. Their subspace distance is (|p_2|^2 + |p_3|^2) / d in Frobenius norms. Row by
row,

    p_3 S = E_1 q_1 + E_2 q_2 + C q_3,   q_3 S = C'p_3,
    p_2 S = Theta_2 q_2,                 q_2 S = Theta_2 p_2 + E_2'p_3.

The second line is a Sylvester equation with diagonal coefficients. With sigma_d >= theta_d
(interlacing), row i of q_2 is at most v_i r_i |p_3| and of p_2 at most w_i r_i |p_3|, where
v_i = theta_d / (theta_d^2 - theta_i^2) and w_i = theta_i / (theta_d^2 - theta_i^2). With c >= |C|
and |q_1| <= 1, the first line gives

    |p_3| (theta_d - c^2 / theta_d - sum_i v_i r_i^2) <= (sum_{i <= d} r_i^2)^(1/2).

This is Wedin's (1972) sin-theta theorem with the structure of the panel: the error of a Ritz vector
in the directions of the panel's other Ritz vectors is of second order only. A small gap behind
theta_d therefore costs little as long as theta_d is well above c. With m' = d the bound is Wedin's
own. Every m' gives a bound; the smallest is returned, or 1 if none applies.

Norm of the rest. |C| for m' = m is bounded with high probability from random probes; a smaller m'
adds known columns, and the norm of the result is at most the norm of [[Theta_3, 0], [E_3, c I]].

Rounding. Each product of the matrix with an orthonormal panel is taken to be the exact product of
another matrix. The two matrices differ by at most `rounding_level` in spectral norm, 2 eps
sqrt(max(n, t)) theta_1. This is the size of random rounding errors (Higham & Mary 2019), not of the
worst case. It enters every term to first order: rows of p_2 and q_2 grow by
rounding / (theta_d - theta_i), columns of R by rounding.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from rlreps.subspace.products import Products

FAILURE_PROBABILITY = 1e-9
"""Probability, over the seeds, that `distance_bounds` returns a bound that does not hold."""

# Gaussian probes and reads of the matrix for the norm of the rest. With these the bound on that
# norm is 2 to 12 % too large for tails from geometric to flat, of up to 10,000 singular values.
_PROBES = 32
_PROBE_STEPS = 6
# Values of m' tried, evenly spaced: more would tighten the bounds by a few per cent.
_MOST_CUTS = 40


class RitzTriplets(NamedTuple):
    """Singular triplets of a projected matrix, by falling value.

    Attributes:
      left: U, [n, m] orthonormal columns.
      values: theta, [m].
      right: V, [t, m] orthonormal columns.
    """

    left: np.ndarray
    values: np.ndarray
    right: np.ndarray


def distance_bounds(
    products: Products, triplets: RitzTriplets, count: int, *, seed: int
) -> np.ndarray:
    """Bound the subspace distances of leading Ritz vectors from the exact singular vectors.

    See the module's docstring for the derivation. The bounds hold together with probability
    1 - FAILURE_PROBABILITY over the probes, for rounding errors of the stated size.

    Args:
      products: products of the matrix A [n, t]; called six times (once if m = min(n, t)).
      triplets: m Ritz triplets with A'U = V Theta.
      count: number of bounds, at most m.
      seed: seed of the probes.

    Returns:
      [count] float64: for d = 1, ..., count, a bound on the distance between the spans of the first
      d columns of U and of the exact leading d left singular vectors; 1 if nothing is known.
    """
    values = triplets.values.astype(np.float64)
    rounding = rounding_level(products.shape, products.dtype, values[0])
    images, rest_norm = _images_and_rest_norm(products, triplets.right, rounding, seed)
    (triangle,) = scipy.linalg.qr(
        images - triplets.left * triplets.values, mode="r", overwrite_a=True, check_finite=False
    )
    # The triangle has the residuals' norms and inner products.
    triangle = triangle[: len(values)].astype(np.float64)
    residuals = np.linalg.norm(triangle, axis=0)
    bounds = np.ones(count)
    num_cuts = min(len(values), _MOST_CUTS)
    for cut in np.unique(np.linspace(1, len(values), num_cuts).round().astype(int)):
        norm = _norm_beyond(values[cut:], triangle[:, cut:], rest_norm) + 2.0 * rounding
        found = bounds_at_cut(values[:cut], residuals[:cut], norm, rounding, min(cut, count))
        bounds[: len(found)] = np.minimum(bounds[: len(found)], found)
    return bounds


def rounding_level(shape: tuple[int, ...], dtype: np.dtype | type, largest: float) -> float:
    """Return the norm of the perturbation by rounding, 2 eps sqrt(max(shape)) sigma_1."""
    return 2.0 * float(np.finfo(dtype).eps) * math.sqrt(max(shape)) * float(largest)


def bounds_at_cut(
    values: np.ndarray, residuals: np.ndarray, rest_norm: float, rounding: float, count: int
) -> np.ndarray:
    """Return the bounds for d = 1, ..., count where block 2 ends with Ritz vector m'.

    Args:
      values: theta_1, ..., theta_m', [m'].
      residuals: r_1, ..., r_m', [m'].
      rest_norm: bound on the norm of everything beyond.
      rounding: perturbation that every product carries.
      count: at most m'.

    Returns:
      [count], 1 where the bound does not apply.
    """
    lowest = values[:count] - rounding
    residuals = residuals + rounding
    dimensions = np.arange(1, count + 1)
    in_block_2 = np.arange(len(values))[None, :] >= dimensions[:, None]
    gaps = np.where(in_block_2, lowest[:, None] - (values + rounding)[None, :], np.inf)
    applies = (lowest > rest_norm) & np.all(gaps > 0.0, axis=1)
    lowest, gaps = np.where(applies, lowest, np.inf), np.where(applies[:, None], gaps, np.inf)
    differences = gaps * (lowest[:, None] + (values + rounding)[None, :])
    # Infinite differences (pairs that do not count) give infinity / infinity here.
    counted = np.isfinite(differences)
    v = np.divide(lowest[:, None], differences, out=np.zeros_like(gaps), where=counted)
    w = np.divide((values + rounding)[None, :], differences, out=np.zeros_like(gaps), where=counted)
    turned = rounding / gaps
    separation = lowest - rest_norm**2 / lowest - np.sum(v * np.square(residuals)[None, :], axis=1)
    drive = np.sqrt(np.cumsum(np.square(residuals))[:count])
    drive += rounding * np.sqrt(dimensions) * rest_norm / lowest
    drive += np.sum(residuals[None, :] * turned, axis=1)
    applies &= separation > 0.0
    outside = drive / np.where(applies, separation, 1.0)
    inside = np.linalg.norm(w * residuals[None, :] * outside[:, None] + turned, axis=1)
    # The returned basis is itself rounded.
    root = np.sqrt((np.square(outside) + np.square(inside)) / dimensions) + rounding / values[0]
    return np.where(applies, np.minimum(np.square(root), 1.0), 1.0)


def _norm_beyond(values: np.ndarray, triangle: np.ndarray, rest_norm: float) -> float:
    """Return the largest possible norm of [[Theta_3, 0], [E_3, C]] with |C| <= rest_norm.

    The maximum is reached if C is rest_norm times a matrix that keeps the lengths of E_3's columns.
    The triangle [m, k] has the inner products of these columns, and Theta_3 the values [k].
    """
    count = len(values)
    if count == 0:
        return rest_norm
    coupling = np.linalg.qr(triangle, mode="r")
    width = len(coupling)
    block = np.block(
        [[np.diag(values), np.zeros((count, width))], [coupling, rest_norm * np.eye(width)]]
    )
    return float(np.linalg.norm(block, 2))


def _images_and_rest_norm(
    products: Products, right: np.ndarray, rounding: float, seed: int
) -> tuple[np.ndarray, float]:
    """Return A V [n, m] and an upper bound on c = |C|, C = A (I - VV'), from s Gaussian probes.

    The probes' component along the leading right singular vector of C has a squared length that is
    chi-squared with s degrees of freedom. It exceeds the quantile of FAILURE_PROBABILITY with
    probability 1 - FAILURE_PROBABILITY. The probes P define a measure on the eigenvalues of C'C,
    with |f(C'C) P|_F^2 = int f^2 for every polynomial f. In this measure, c^2 carries at least that
    quantile as mass. No point x carries more than 1 / sum_j f_j(x)^2 (the Christoffel function),
    where f_0, ..., f_q are the orthonormal polynomials. These come from q Lanczos steps with the
    Frobenius inner product. Hochstenbach (2013) bounds norms in this way from one vector and the
    last polynomial.
    """
    num_columns, width = right.shape
    if width == min(products.shape):
        return products.multiply(right), 0.0

    def project(panel: np.ndarray) -> np.ndarray:
        return np.asarray(panel - right @ (right.T @ panel))

    # Use another random stream than the test panel's: the probes must be independent of V.
    rng = np.random.default_rng([seed, 1])
    probes = rng.standard_normal((num_columns, _PROBES), dtype=products.dtype.type)
    current = project(probes).astype(np.float64)
    mass = float(np.sum(np.square(current)))
    current /= math.sqrt(mass)
    previous = np.zeros_like(current)
    diagonal, off_diagonal = [], [0.0]
    images: list[np.ndarray] = []
    for _ in range(_PROBE_STEPS):
        panel = right[:, :0] if images else right
        image, normal = products.multiply_and_normal(panel, current.astype(products.dtype))
        images.append(image)
        following = project(normal).astype(np.float64)
        diagonal.append(float(np.vdot(current, following)))
        following -= diagonal[-1] * current + off_diagonal[-1] * previous
        # A divisor larger than the norm keeps the bound valid; nothing is known below rounding.
        off_diagonal.append(max(float(np.linalg.norm(following)), rounding**2))
        previous, current = current, following / off_diagonal[-1]
    quantile = 2.0 * float(scipy.special.gammaincinv(_PROBES / 2, FAILURE_PROBABILITY))
    largest = _largest_point_of_mass(diagonal, off_diagonal[1:], mass, quantile)
    return images[0], math.sqrt(largest) + rounding


def _largest_point_of_mass(
    diagonal: list[float], off_diagonal: list[float], mass: float, least: float
) -> float:
    """Return the largest x that can carry `least` of a measure's mass.

    Args:
      diagonal: recurrence coefficients a_0, ..., a_{q-1}.
      off_diagonal: b_1, ..., b_q, positive: b_{j+1} f_{j+1} = (x - a_j) f_j - b_j f_{j-1}.
      mass: the measure's total mass, 1 / f_0^2.
      least: the mass.

    Returns:
      The x >= 0 beyond the largest zero of f_q where sum_j f_j(x)^2 = 1 / least.
    """

    def carries(x: float) -> bool:
        before, here, total, factor = 0.0, 1.0 / math.sqrt(mass), 1.0 / mass, 0.0
        for a, b in zip(diagonal, off_diagonal, strict=True):
            before, here, factor = here, ((x - a) * here - factor * before) / b, b
            total += here * here
        return total < 1.0 / least

    inner = off_diagonal[:-1]
    # Beyond the largest zero every polynomial rises, so bisection works there.
    largest_zero = scipy.linalg.eigh_tridiagonal(diagonal, inner, eigvals_only=True)[-1]
    low = max(float(largest_zero), 0.0)
    width = max(low, off_diagonal[-1])
    while carries(low + width):
        width *= 2.0
    for _ in range(50):
        width /= 2.0
        if carries(low + width):
            low += width
    return low + width
