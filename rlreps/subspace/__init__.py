"""Principal subspaces: centring, singular value decomposition, metrics, inverse covariances."""

from rlreps.subspace.centring import (
    centre_columns,
    centre_in_place,
    second_moments,
)
from rlreps.subspace.inverse_covariance import (
    chunked_lissa,
    empirical_inverse_covariance,
    lissa,
)
from rlreps.subspace.linalg import (
    largest_eigenvalue_bound,
    newton_schulz_step,
)
from rlreps.subspace.metrics import (
    align,
    grassmann_distance,
    leading_combinations,
    longest_eigenvector_streak,
    matched_cosines,
    nested_distances,
    noise_floor,
    numerical_rank,
    orthonormal_basis,
    principal_angles,
    relative_excess,
    representation_loss,
    subspace_distance,
)
from rlreps.subspace.ordered import (
    Spectrum,
    ordered_spectrum,
    ritz_spectrum,
)
from rlreps.subspace.ridge import ridge_by_leave_one_out
from rlreps.subspace.row_blocks import (
    ArrayBlocks,
    CentredBlocks,
    Centring,
    RowBlocks,
    centring_means,
    column_means,
    project_rows,
)
from rlreps.subspace.spans import Spans, Standardised, spans_of, standardise
from rlreps.subspace.svd import (
    DECOMPOSITIONS,
    ExactSVD,
    PrincipalSubspace,
    RandomizedSVD,
    components_kept,
    exact_svd,
    fix_signs,
    relative_tolerance,
)

__all__ = [
    "DECOMPOSITIONS",
    "ArrayBlocks",
    "CentredBlocks",
    "Centring",
    "ExactSVD",
    "PrincipalSubspace",
    "RandomizedSVD",
    "RowBlocks",
    "Spans",
    "Spectrum",
    "Standardised",
    "align",
    "centre_columns",
    "centre_in_place",
    "centring_means",
    "chunked_lissa",
    "column_means",
    "components_kept",
    "empirical_inverse_covariance",
    "exact_svd",
    "fix_signs",
    "grassmann_distance",
    "largest_eigenvalue_bound",
    "leading_combinations",
    "lissa",
    "longest_eigenvector_streak",
    "matched_cosines",
    "nested_distances",
    "newton_schulz_step",
    "noise_floor",
    "numerical_rank",
    "ordered_spectrum",
    "orthonormal_basis",
    "principal_angles",
    "project_rows",
    "relative_excess",
    "relative_tolerance",
    "representation_loss",
    "ridge_by_leave_one_out",
    "ritz_spectrum",
    "second_moments",
    "spans_of",
    "standardise",
    "subspace_distance",
]
