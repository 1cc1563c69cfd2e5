"""Principal subspaces: centring, singular value decomposition, metrics, inverse covariances."""

from rlreps.subspace.centring import centre_columns as centre_columns
from rlreps.subspace.centring import centre_in_place as centre_in_place
from rlreps.subspace.inverse_covariance import chunked_lissa as chunked_lissa
from rlreps.subspace.inverse_covariance import (
    empirical_inverse_covariance as empirical_inverse_covariance,
)
from rlreps.subspace.inverse_covariance import lissa as lissa
from rlreps.subspace.linalg import largest_eigenvalue_bound as largest_eigenvalue_bound
from rlreps.subspace.linalg import newton_schulz_step as newton_schulz_step
from rlreps.subspace.metrics import align as align
from rlreps.subspace.metrics import grassmann_distance as grassmann_distance
from rlreps.subspace.metrics import leading_combinations as leading_combinations
from rlreps.subspace.metrics import longest_eigenvector_streak as longest_eigenvector_streak
from rlreps.subspace.metrics import matched_cosines as matched_cosines
from rlreps.subspace.metrics import nested_distances as nested_distances
from rlreps.subspace.metrics import noise_floor as noise_floor
from rlreps.subspace.metrics import numerical_rank as numerical_rank
from rlreps.subspace.metrics import orthonormal_basis as orthonormal_basis
from rlreps.subspace.metrics import principal_angles as principal_angles
from rlreps.subspace.metrics import relative_excess as relative_excess
from rlreps.subspace.metrics import representation_loss as representation_loss
from rlreps.subspace.metrics import subspace_distance as subspace_distance
from rlreps.subspace.row_blocks import ArrayBlocks as ArrayBlocks
from rlreps.subspace.row_blocks import CentredBlocks as CentredBlocks
from rlreps.subspace.row_blocks import Centring as Centring
from rlreps.subspace.row_blocks import RowBlocks as RowBlocks
from rlreps.subspace.row_blocks import centring_means as centring_means
from rlreps.subspace.row_blocks import column_means as column_means
from rlreps.subspace.row_blocks import project_rows as project_rows
from rlreps.subspace.svd import DECOMPOSITIONS as DECOMPOSITIONS
from rlreps.subspace.svd import ExactSVD as ExactSVD
from rlreps.subspace.svd import PrincipalSubspace as PrincipalSubspace
from rlreps.subspace.svd import RandomizedSVD as RandomizedSVD
from rlreps.subspace.svd import exact_svd as exact_svd
from rlreps.subspace.svd import fix_signs as fix_signs
from rlreps.subspace.svd import relative_tolerance as relative_tolerance
