"""Refine a computed principal subspace by one product, and bound its distance from the exact one.

Subspace iteration ends with m Ritz triplets (u_i, theta_i, v_i), m a little above the rank, that
satisfy A'U = V Theta. One more product gives the images X = A V and the residuals E = X - U Theta,
U'E = 0. The refined basis W has the left singular vectors of X = W S Z': half a power iteration
closer to the exact vectors than U, at no cost beyond the product. Its distance is bounded as
follows.

Let A y = sigma x for one of the exact leading d triplets, q = Z'V'y the coordinates of y in the
panel, r the rest of y, and C = A (I - VV'). Then sigma x = W S q + C r, and

    (sigma^2 - C'C) r = C'E Z q,    (sigma^2 - s_i^2) q_i = (E z_i)'C r.

With s_d <= sigma (interlacing) and c >= |C|, let e = |E Z q| in the Frobenius norm over the d
triplets, and let block 1 be the first d coordinates and block 2 the others. Row by row,

    |r| <= c e / (s_d^2 - c^2),
    e <= |E Z_1| + |E Z_2 D^(-1/2)|^2 c |r|,    D = diag(s_d^2 - s_i^2),
    s_d sine <= |S_2 q_2| + c |r| <= (|E Z_2 S_2 D^(-1)| + 1) c |r|,

where |E Z_1| is a Frobenius norm and the norms of block 2 are spectral. The sine is the Frobenius
norm of the sines of the angles between the spans of the exact leading d left vectors and of the
first d columns of W. This is Wedin's (1972) theorem with the structure of the panel: panel vectors
that are close to one another couple only through the rest, in second order. Beside this bound, the
squared sines of d are at most those of d - 1, plus one.

Norm of the rest. c is bounded with high probability from random probes (`_images_and_rest_norm`).

Rounding. Orthonormal bases of the last panels and the singular values of X are computed in float64.
Column j of a product with an orthonormal panel is off by at most

    eps sqrt(max(n, t)) / 8 (theta_j^2 + |A|_F^2 / t)^(1/2),

of which BLAS was measured to reach 0.1 to 0.6, with 1,000 to 10,000 rows. This is the size of
random rounding errors (Higham & Mary 2019), not of the worst case. It enters every term to first
order.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from rlreps.subspace.products import Products

FAILURE_PROBABILITY = 1e-9
"""Probability, over the seeds, that `refined` returns a bound that does not hold."""

# Gaussian probes and reads of the matrix for the norm of the rest. With these the bound on that
# norm is 2 to 15 % too large for tails from geometric to flat, of up to 10,000 singular values.
_PROBES = 16
_PROBE_STEPS = 6


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


def refined(
    products: Products, triplets: RitzTriplets, count: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Refine the left vectors of Ritz triplets, and bound their subspace distances.

    See the module's docstring for the derivation. The bounds hold together with probability
    1 - FAILURE_PROBABILITY over the probes, for rounding errors of the stated size.

    Args:
      products: products of the matrix A [n, t]; called six times (once if m = min(n, t)).
      triplets: m Ritz triplets with A'U = V Theta.
      count: number of bounds, at most m.
      seed: seed of the probes.

    Returns:
      The refined left vectors W [n, m] and singular values s [m], in the matrix's dtype. For
      d = 1, ..., count, a bound on the distance between the spans of the first d columns of W and
      of the exact leading d left singular vectors, [count] float64; 1 if nothing is known.
    """
    shape, dtype = products.shape, products.dtype
    theta = triplets.values.astype(np.float64)
    level = rounding_level(shape, dtype, theta[0])
    images, rest_norm = _images_and_rest_norm(products, triplets.right, level, seed)
    (triangle,) = scipy.linalg.qr(
        images - triplets.left * triplets.values, mode="r", overwrite_a=True, check_finite=False
    )
    basis, upper = scipy.linalg.qr(
        images.astype(np.float64), mode="economic", overwrite_a=True, check_finite=False
    )
    turn, values, rotation = scipy.linalg.svd(upper, check_finite=False)
    left = (basis @ turn).astype(dtype)
    # The triangle has the residuals' norms and inner products.
    residuals = triangle[: len(theta)].astype(np.float64) @ rotation.T
    scale = np.sqrt(np.square(theta) + products.total_energy / shape[1])
    rounding = float(np.finfo(dtype).eps) * math.sqrt(max(shape)) / 8.0 * scale
    rounding = np.linalg.norm(rounding[:, None] * rotation.T, axis=0)
    bounds = distance_bounds(values, residuals, rest_norm, rounding, count)
    return left, values.astype(dtype), bounds


def rounding_level(shape: tuple[int, ...], dtype: np.dtype | type, largest: float) -> float:
    """Return a norm of all rounding errors, 2 eps sqrt(max(shape)) sigma_1."""
    return 2.0 * float(np.finfo(dtype).eps) * math.sqrt(max(shape)) * float(largest)


def distance_bounds(
    values: np.ndarray, residuals: np.ndarray, rest_norm: float, rounding: np.ndarray, count: int
) -> np.ndarray:
    """Return the bounds for d = 1, ..., count.

    Args:
      values: s, [m].
      residuals: E Z up to an isometry, [k, m].
      rest_norm: c.
      rounding: size of the rounding error of each column of a product, [m].
      count: at most m.

    Returns:
      [count], 1 where nothing is known.
    """
    sizes = np.linalg.norm(residuals, axis=0) + rounding
    squares, bounds = 0.0, np.ones(count)
    for d in range(1, count + 1):
        # Squared sines grow by at most one with each dimension.
        squares = min(
            squares + 1.0, _squared_sines(d, values, residuals, sizes, rest_norm, rounding)
        )
        bounds[d - 1] = min(squares / d, 1.0)
    return bounds


def _squared_sines(
    d: int,
    values: np.ndarray,
    residuals: np.ndarray,
    sizes: np.ndarray,
    rest_norm: float,
    rounding: np.ndarray,
) -> float:
    """Return a bound on the sum of squared sines for d, infinity if the theorem does not apply."""
    own, others = rounding[:d], rounding[d:]
    inside, beyond = values[:d] - own.max(), values[d:] + others
    lowest = float(inside.min())
    if lowest <= max(rest_norm, float(beyond.max(initial=0.0))):
        return math.inf
    gaps, rest_gap = lowest**2 - np.square(beyond), lowest**2 - rest_norm**2
    # What rounding alone turns within the panel, and out of it.
    turned = beyond * own[:, None] + inside[:, None] * others
    turned /= np.square(inside)[:, None] - np.square(beyond)
    turned = np.linalg.norm(turned, axis=0)
    leaked = float(np.linalg.norm(own * inside / (np.square(inside) - rest_norm**2)))

    def coupling(weights: np.ndarray) -> float:
        """Bound the spectral norm of E Z_2 times weights."""
        block = residuals[:, d:] * weights
        norm, errors = float(np.linalg.norm(block)), float(np.linalg.norm(others * weights))
        # The Frobenius norm is cheaper, and good enough where the coupling hardly matters.
        if (norm * rest_norm) ** 2 > 0.1 * rest_gap:
            norm = math.sqrt(max(0.0, float(np.linalg.eigvalsh(block.T @ block)[-1])))
        return norm + errors

    feedback = (coupling(1.0 / np.sqrt(gaps)) * rest_norm) ** 2 / rest_gap
    if feedback >= 1.0:
        return math.inf
    drive = float(np.linalg.norm(sizes[:d]) + np.sum(sizes[d:] * turned))
    rest = (rest_norm * drive / rest_gap + leaked) / (1.0 - feedback)
    sines = (coupling(beyond / gaps) + 1.0) * rest_norm * rest
    sines += float(np.linalg.norm(beyond * turned) + np.linalg.norm(own))
    # The returned basis is itself rounded, like the entries of its columns.
    return (sines / lowest + math.sqrt(d) * float(rounding[0] / values[0])) ** 2


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
        return products.multiply(right), rounding

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
