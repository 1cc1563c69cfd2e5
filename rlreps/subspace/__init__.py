"""Principal subspaces: centring, singular value decomposition, metrics, inverse covariances."""

from rlreps.subspace.centring import centre_columns, centre_columns_in_place
from rlreps.subspace.svd import exact_svd
from rlreps.subspace.inverse_covariance import (
    chunked_lissa,
    empirical_inverse_covariance,
    lissa,
    lissa_inverse_covariance,
    lissa_kappa,
    neumann_series,
    validate_kappa0,
)
from rlreps.subspace.metrics import (
    align,
    grassmann_distance,
    longest_eigenvector_streak,
    matched_cosines,
    optimal_loss,
    principal_angles,
    relative_excess,
    relative_excess_loss,
    representation_loss,
    subspace_distance,
)
from rlreps.subspace.linalg import largest_eigenvalue_bound, newton_schulz_step
from rlreps.subspace.noise_floor import nested_distances, noise_floor
from rlreps.subspace.svd import DECOMPOSITIONS, DEFAULT_RANK, Decomposition, ExactSVD, PrincipalSubspace, RandomizedSVD, fix_signs, relative_tolerance
from rlreps.subspace.row_blocks import project_rows
from rlreps.subspace.svd import randomized_svd
from rlreps.subspace.row_blocks import ArrayBlocks, CentredBlocks, RowBlocks, column_means
from rlreps.subspace.metrics import numerical_rank, orthonormal_basis

__all__ = [
    "DECOMPOSITIONS",
    "DEFAULT_RANK",
    "Decomposition",
    "ExactSVD",
    "RandomizedSVD",
    "ArrayBlocks",
    "CentredBlocks",
    "PrincipalSubspace",
    "RowBlocks",
    "align",
    "centre_columns",
    "centre_columns_in_place",
    "chunked_lissa",
    "column_means",
    "empirical_inverse_covariance",
    "exact_svd",
    "fix_signs",
    "grassmann_distance",
    "largest_eigenvalue_bound",
    "lissa",
    "lissa_inverse_covariance",
    "lissa_kappa",
    "longest_eigenvector_streak",
    "matched_cosines",
    "nested_distances",
    "neumann_series",
    "newton_schulz_step",
    "noise_floor",
    "numerical_rank",
    "optimal_loss",
    "orthonormal_basis",
    "principal_angles",
    "project_rows",
    "randomized_svd",
    "relative_excess",
    "relative_excess_loss",
    "relative_tolerance",
    "representation_loss",
    "subspace_distance",
    "validate_kappa0",
]
