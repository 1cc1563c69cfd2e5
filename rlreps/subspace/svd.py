"""Principal subspaces of centred matrices, and two methods to compute them.

``ExactSVD`` and ``RandomizedSVD`` are the methods with their options; ``exact_svd`` is a shorthand.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import scipy

from rlreps.config import configurable, interval, positive
from rlreps.errors import InputError, require, require_positive, warn_user
from rlreps.numerics import require_array
from rlreps.subspace.error_bound import RitzTriplets, distance_bounds, refined, rounding_level
from rlreps.subspace.products import (
    Matrix,
    Products,
    orthonormalise,
    products_of,
    scaling_exponent,
)
from rlreps.subspace.row_blocks import ArrayBlocks, RowBlocks

DEFAULT_RANK = 100
"""Default number of components, if the matrix has as many."""

_LARGEST_BOUND = 0.05
"""Bound on the subspace distance from the exact components, above which a warning says so."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PrincipalSubspace:
    """The top-k left singular subspace of a centred matrix, and how it was computed.

    Attributes:
      basis: [n, k] orthonormal left singular vectors F_k, by falling singular value, in the
        matrix's dtype; the entry of largest magnitude of each column is positive.
      singular_values: [k] singular values, falling, in the matrix's dtype.
      total_energy: squared Frobenius norm of the centred matrix, summed in float64.
      method: "exact" or "randomized".
      settings: the arguments of the computation (rank, and for "randomized" oversampling,
        power_iterations and seed).
      distance_bound: [k] float64, for d = 1, ..., k an upper bound on the subspace distance between
        the first d columns of the basis and the exact top-d left singular subspace of the matrix
        (see `rlreps.subspace.error_bound`); 1 if nothing is known, None if it was not computed.
    """

    basis: np.ndarray
    singular_values: np.ndarray
    total_energy: float
    method: str
    settings: Mapping[str, int]
    distance_bound: np.ndarray | None = None

    def truncated(self, d: int) -> "PrincipalSubspace":
        """Keep the first d components; settings stay those of the original computation."""
        require_positive("d", d)
        num_components = self.basis.shape[1]
        require(d <= num_components, f"1 <= d <= {num_components} components", d)
        bound = self.distance_bound
        return dataclasses.replace(
            self,
            basis=self.basis[:, :d],
            singular_values=self.singular_values[:d],
            distance_bound=None if bound is None else bound[:d],
        )

    def energy_captured(self) -> np.ndarray:
        """Return [k] float64: the share of the total energy in the first 1, ..., k components."""
        energies = np.square(self.singular_values.astype(np.float64))
        return np.minimum(np.cumsum(energies) / self.total_energy, 1.0)


MOST_POWER_ITERATIONS = 1000
"""Largest number of power iterations: further ones would change no digit, since each divides the
error by a ratio of squared singular values."""


def fix_signs(basis: np.ndarray) -> np.ndarray:
    """Flip columns so that each one's entry of largest magnitude is positive.

    Args:
      basis: [n, k] columns; if several entries have the same magnitude, the first decides.

    Returns:
      [n, k] contiguous copy.
    """
    require_array("a basis as an array [n, k]", basis)
    rows = np.argmax(np.abs(basis), axis=0)
    deciding = np.take_along_axis(basis, rows[None, :], axis=0)
    return np.ascontiguousarray(np.where(deciding < 0, -basis, basis))


def relative_tolerance(shape: tuple[int, ...], dtype: np.dtype | type) -> float:
    """Return the relative size at which a singular value counts as zero, 10 eps sqrt(max(shape)).

    Rounding errors of a long sum grow like the square root of its length (Higham & Mary 2019), and
    the margin is ten. The worst-case bound eps max(shape) of `numpy.linalg.matrix_rank` would
    discard float32 components at 1e-3 of the largest for 10,000 states, although they are well
    determined; the two agree at 100 states.
    """
    return 10.0 * float(np.finfo(dtype).eps) * math.sqrt(max(shape))


def _require_matrix_and_rank(matrix: Matrix, rank: int) -> None:
    require_array("a matrix as an array [states, tasks]", matrix)
    if len(matrix.shape) != 2 or matrix.dtype not in (np.float32, np.float64):
        raise InputError(
            "expected a float32 or float64 matrix [states, tasks], "
            f"got {matrix.dtype} of shape {matrix.shape}"
        )
    rows, columns = matrix.shape
    most = min(rows, columns)
    require(1 <= rank <= most, f"1 <= rank <= {most} for a {rows} x {columns} matrix", rank)


def components_kept(values: np.ndarray, shape: tuple[int, ...], rank: int, *, at_most: bool) -> int:
    """Return the given rank or, with `at_most`, the numerical rank if that is lower."""
    cutoff = relative_tolerance(shape, values.dtype) * float(values[0])
    numerical_rank = int(np.count_nonzero(values > cutoff))
    require(numerical_rank > 0, "a matrix that is not zero after centring", "zeros")
    if rank > numerical_rank and not at_most:
        raise InputError(
            f"expected a rank of at most {numerical_rank}, the numerical rank of the "
            f"{shape[0]} x {shape[1]} matrix, got {rank}"
        )
    return min(rank, numerical_rank)


def exact_svd(matrix: Matrix, rank: int, *, at_most: bool = False) -> PrincipalSubspace:
    """Compute top left singular vectors by LAPACK's dense decomposition.

    It takes O(n t min(n, t)) time and the memory of several matrices. Use it for up to a few
    thousand rows or columns, and `RandomizedSVD` beyond.

    Args:
      matrix: [n, t] float32 or float64 matrix, already centred, in memory.
      rank: number of components kept.
      at_most: keep fewer components if the matrix's numerical rank is lower, instead of raising.

    Returns:
      The subspace, in the matrix's dtype, as host arrays, with the bound due to rounding.

    Raises:
      InputError: if the rank exceeds min(n, t) or the matrix's numerical rank (see
        `relative_tolerance`), or the matrix is not finite, in memory or of a floating dtype, or
        its norm is zero or beyond 1e-140 to 1e140, or its singular values beyond its dtype.
    """
    require_positive("rank", rank)
    if isinstance(matrix, RowBlocks | Products):
        raise InputError("expected a matrix in memory for the exact decomposition, got row blocks")
    _require_matrix_and_rank(matrix, rank)
    total_energy = products_of(matrix).total_energy
    exponent, scaled = scaling_exponent(total_energy), np.asarray(matrix)
    if exponent:
        scaled = np.ldexp(scaled, exponent)
    left, values, _ = scipy.linalg.svd(scaled, full_matrices=False, check_finite=False)
    kept = components_kept(values, matrix.shape, rank, at_most=at_most)
    return PrincipalSubspace(
        basis=fix_signs(left[:, :kept]),
        singular_values=_unscaled(values[:kept], exponent),
        total_energy=total_energy,
        method="exact",
        settings={"rank": rank},
        distance_bound=_rounding_bounds(values, matrix.shape, kept),
    )


def _unscaled(values: np.ndarray, exponent: int) -> np.ndarray:
    """Return the singular values of a matrix from those of the matrix times 2^exponent."""
    with np.errstate(over="ignore"):
        found = np.asarray(np.ldexp(values, -exponent))
    if not np.isfinite(found[0]):
        largest = math.ldexp(float(values[0]), -exponent)
        raise InputError(f"expected singular values within {values.dtype}, got {largest:.3g}")
    return found


def _rounding_bounds(values: np.ndarray, shape: tuple[int, ...], count: int) -> np.ndarray:
    """Bound subspace distances if the decomposition is exact for the matrix up to rounding.

    The bound is the smaller of two. Every sine is at most
    rounding / (sigma_d - sigma_{d+1} - rounding) by Wedin's theorem. All gaps together also bound
    the sum of the squared sines, as in `rlreps.subspace.error_bound` without residuals.

    Args:
      values: [min(n, t)] all singular values, falling, in the dtype of the computation.
      shape: (n, t).
      count: number of bounds.
    """
    following = np.append(values, 0.0).astype(np.float64)
    rounding = rounding_level(shape, values.dtype, following[0])
    gaps = following[:count] - following[1 : count + 1] - rounding
    sines = rounding / np.maximum(gaps, rounding) + rounding / following[0]
    residuals, everywhere = np.zeros((1, len(values))), np.full(len(values), rounding)
    all_sines = distance_bounds(following[:-1], residuals, 2.0 * rounding, everywhere, count)
    return np.asarray(np.minimum(np.square(sines), all_sines))


def _ritz_triplets(products: Products, panel: np.ndarray, power_iterations: int) -> RitzTriplets:
    """Iterate on a panel [t, m] and decompose the projected matrix."""
    for _ in range(power_iterations):
        panel = products.sharpen(panel)
    # The last panels are orthonormal to float64, so that only products round (see `error_bound`).
    dtype = products.dtype
    range_basis = orthonormalise(products.multiply(panel).astype(np.float64))
    # With A'Q = Z R and R = W S P', the projected matrix is Q'A = P S (Z W)'.
    row_basis, triangle = scipy.linalg.qr(
        products.multiply_transposed(range_basis.astype(dtype)).astype(np.float64),
        mode="economic",
        overwrite_a=True,
        check_finite=False,
    )
    turn, values, rotation = scipy.linalg.svd(triangle, check_finite=False)
    found = RitzTriplets(left=range_basis @ rotation.T, values=values, right=row_basis @ turn)
    return RitzTriplets(*(each.astype(dtype) for each in found))


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactSVD:
    """LAPACK's dense decomposition of a matrix in memory, `exact_svd`.

    Attributes:
      rank: leading singular vectors kept; None is 100, or all that the matrix has if fewer.
    """

    rank: int | None = positive(None)

    @property
    def num_reads(self) -> int:
        """Reads of row blocks: none, as the matrix is in memory."""
        return 0

    def decompose(self, matrix: Matrix) -> PrincipalSubspace:
        """Return the principal subspace of a centred matrix [n, t] in memory."""
        if isinstance(matrix, ArrayBlocks):
            matrix = matrix.matrix
        return exact_svd(matrix, _rank(self.rank, matrix), at_most=self.rank is None)

    def settings(self) -> dict[str, Any]:
        """Return everything that determines the result, as JSON values."""
        return {"method": "exact", "rank": self.rank}


@configurable
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomizedSVD:
    """Randomised subspace iteration of a matrix of any size.

    Halko, Martinsson & Tropp (2011), Algorithms 4.4 (range finder, QR after every product) and 5.1
    (decomposition of the projected matrix). The matrix is multiplied by panels of
    rank + oversampling columns, in groups of rows, by NumPy's BLAS; a JAX array on a CPU is read in
    place. Row blocks are read `num_reads` times: each power iteration takes both products from one
    read (see `Products.sharpen`), two reads decompose, and six refine the result and bound its
    error. One read more scales a matrix whose norm lies beyond 1e-9 to 1e9.

    Attributes:
      rank: number of leading singular vectors; None is 100, or all that the matrix has if fewer.
      oversampling: extra columns of the Gaussian test panel; fewer if the panel would have more
        than min(n, t) columns.
      power_iterations: passes with the matrix and its transpose that sharpen the spectrum.
      seed: seed of the test panel and of the error bound's probes.
    """

    rank: int | None = positive(None)
    oversampling: int = positive(40, least=0)
    power_iterations: int = positive(10, least=0, most=MOST_POWER_ITERATIONS)
    seed: int = interval("[0, inf)", 0)

    @property
    def num_reads(self) -> int:
        """Largest number of reads of row blocks, less the one that scales a matrix."""
        return self.power_iterations + 8

    def decompose(self, matrix: Matrix) -> PrincipalSubspace:
        """Return the principal subspace of a centred matrix [n, t], in its dtype, as host arrays.

        The result includes a bound on the distance from the exact subspace (`error_bound`).

        Raises:
          InputError: as `exact_svd` does.

        Warns:
          FitWarning: if the bound for all components of a rank that is given exceeds 0.05, for
            example because the singular values hardly fall.
        """
        rank = _rank(self.rank, matrix)
        _require_matrix_and_rank(matrix, rank)
        products = products_of(matrix)
        panel_width = min(rank + self.oversampling, *products.shape)
        panel = np.random.default_rng(self.seed).standard_normal((products.shape[1], panel_width))
        triplets = _ritz_triplets(products, panel.astype(products.dtype), self.power_iterations)
        left, values, bounds = refined(products, triplets, rank, seed=self.seed)
        kept = components_kept(values, products.shape, rank, at_most=self.rank is None)
        # The last of a default number of components may be sampling noise.
        if self.rank is not None and bounds[kept - 1] > _LARGEST_BOUND:
            warn_user(
                f"the {kept} leading components are known to a subspace distance of "
                f"{bounds[kept - 1]:.2g} alone: raise power_iterations, or take fewer components"
            )
        return PrincipalSubspace(
            basis=fix_signs(left[:, :kept]),
            singular_values=_unscaled(values[:kept], products.exponent),
            total_energy=math.ldexp(products.total_energy, -2 * products.exponent),
            method="randomized",
            settings={**dataclasses.asdict(self), "rank": rank},
            distance_bound=bounds[:kept],
        )

    def settings(self) -> dict[str, Any]:
        """Return everything that determines the result, as JSON values."""
        return {"method": "randomized", **dataclasses.asdict(self)}


Decomposition: TypeAlias = ExactSVD | RandomizedSVD

DECOMPOSITIONS: dict[str, type[Decomposition]] = {"randomized": RandomizedSVD, "exact": ExactSVD}
"""Name on the command line → class."""


def _rank(rank: int | None, matrix: Matrix) -> int:
    return min(DEFAULT_RANK, *matrix.shape) if rank is None else rank
