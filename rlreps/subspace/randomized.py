"""The principal subspace of a centred matrix of any size by randomised subspace iteration."""

import jax
import numpy as np
import scipy.linalg

from rlreps.errors import InputError
from rlreps.subspace.error_bound import RitzTriplets, distance_bounds
from rlreps.subspace.principal import (
    PrincipalSubspace,
    components_kept,
    fix_signs,
    require_matrix_and_rank,
)
from rlreps.subspace.products import Products, orthonormalise, products_of
from rlreps.subspace.row_blocks import RowBlocks


def randomized_svd(
    matrix: np.ndarray | jax.Array | RowBlocks,
    rank: int,
    *,
    oversampling: int = 40,
    power_iterations: int = 10,
    seed: int = 0,
    at_most: bool = False,
) -> PrincipalSubspace:
    """Top left singular vectors by randomised subspace iteration.

    Halko, Martinsson & Tropp (2011), Algorithms 4.4 (range finder, QR after every product) and 5.1
    (decomposition of the projected matrix). The matrix is only multiplied by panels of
    rank + oversampling columns, never copied: on the host by NumPy's BLAS (a JAX array on a CPU is
    read in place), on an accelerator where it lies, with only the panels travelling, and from row
    blocks group by group. Row blocks are read `num_reads` times: each power iteration takes both
    products from one read (see `StreamedProducts.sharpen`), two reads decompose, and six bound the
    error.

    Args:
      matrix: [n, t] float32 or float64 matrix, already centred.
      rank: number of components kept.
      oversampling: extra columns of the panel; capped where the panel would exceed min(n, t).
      power_iterations: passes with the matrix and its transpose that sharpen the spectrum.
      seed: seed of the Gaussian test panel, and of the error bound's own.
      at_most: as for `exact_svd`.

    Returns:
      The subspace, in the matrix's dtype, as host arrays, with a bound on its distance from the
      exact one for each d (`distance_bounds`).

    Raises:
      InputError: as `exact_svd`, and if oversampling, power_iterations or seed is negative, or
        row blocks do not make up their matrix.
    """
    require_matrix_and_rank(matrix, rank)
    settings = {
        "rank": rank,
        "oversampling": oversampling,
        "power_iterations": power_iterations,
        "seed": seed,
    }
    for name, value in settings.items():
        if value < 0:
            raise InputError(f"expected {name} >= 0, got {value}")
    products = products_of(matrix)
    panel_width = min(rank + oversampling, *products.shape)
    panel = np.random.default_rng(seed).standard_normal((products.shape[1], panel_width))
    triplets = _ritz_triplets(products, panel.astype(products.dtype), power_iterations)
    kept = components_kept(triplets.values, products.shape, rank, at_most=at_most)
    return PrincipalSubspace(
        basis=fix_signs(triplets.left[:, :kept]),
        singular_values=triplets.values[:kept].copy(),
        total_energy=products.total_energy,
        method="randomized",
        settings=settings,
        distance_bound=distance_bounds(products, triplets, kept, seed=seed),
    )


def num_reads(power_iterations: int) -> int:
    """Times that `randomized_svd` reads row blocks, at most."""
    return power_iterations + 8


def _ritz_triplets(products: Products, panel: np.ndarray, power_iterations: int) -> RitzTriplets:
    """Subspace iteration from a panel [t, m], and the decomposition of the projected matrix."""
    for _ in range(power_iterations):
        panel = products.sharpen(panel)
    range_basis = orthonormalise(products.multiply(panel))
    # With A'Q = Z R and R = W S P', the projected matrix is Q'A = P S (Z W)'.
    row_basis, triangle = scipy.linalg.qr(
        products.multiply_transposed(range_basis),
        mode="economic",
        overwrite_a=True,
        check_finite=False,
    )
    turn, values, rotation = scipy.linalg.svd(triangle, check_finite=False)
    return RitzTriplets(left=range_basis @ rotation.T, values=values, right=row_basis @ turn)
