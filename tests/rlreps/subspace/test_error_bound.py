"""The bound on a computed subspace, against planted matrices whose exact one is known."""

import numpy as np
import pytest

from rlreps.subspace import RandomizedSVD, exact_svd
from rlreps.subspace import error_bound as module
from rlreps.subspace.products import products_of

# Bounds after few iterations are large.
pytestmark = pytest.mark.filterwarnings("ignore:the .* leading components are known")

_INDEX = np.arange(200.0)


SPECTRA = {
    "geometric": 0.95**_INDEX,
    "power law": (1.0 + _INDEX) ** -0.6,
    "clusters": 0.9 ** (_INDEX // 5) * (1.0 - 1e-3 * (_INDEX % 5)),
    "flat tail": np.concatenate([np.linspace(10.0, 5.0, 12), np.full(188, 0.9)]),
    "close pair": np.concatenate([[1.0, 0.9999], 0.8 ** np.arange(1.0, 60.0)]),
    "wide gaps": np.concatenate([np.full(3, 100.0) - np.arange(3), np.linspace(3.0, 1.0, 100)]),
}
RANK = 15


def _planted(spectrum: np.ndarray, seed: int):
    """A float64 matrix with the given singular values, and its left singular vectors."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((240, len(spectrum))))[0]
    right = np.linalg.qr(rng.standard_normal((210, len(spectrum))))[0]
    return (left * spectrum) @ right.T, left


def _true_distances(basis: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distances for every d, formed from residuals: right far below the resolution of 1 - cos^2."""
    basis = np.linalg.qr(basis.astype(np.float64))[0]
    distances = []
    for d in range(1, basis.shape[1] + 1):
        residual = exact[:, :d] - basis[:, :d] @ (basis[:, :d].T @ exact[:, :d])
        residual -= basis[:, :d] @ (basis[:, :d].T @ residual)
        distances.append(np.sum(residual**2) / d)
    return np.array(distances)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_true_distance_is_never_above_the_bound(name, dtype):
    power_iterations = 0 if dtype == np.float32 else 3
    for seed, oversampling in enumerate((2, 10)):
        matrix, exact = _planted(SPECTRA[name], seed)
        matrix = matrix.astype(dtype)
        options = {"oversampling": oversampling, "power_iterations": power_iterations}
        randomized = RandomizedSVD(rank=RANK, seed=seed, **options).decompose(matrix)
        # Rounding moves the exact decomposition, too.
        for found in (exact_svd(matrix, RANK), randomized):
            bound = found.distance_bound
            assert np.all(bound <= 1.0)
            assert np.all(_true_distances(found.basis, exact[:, :RANK]) <= bound)


@pytest.mark.parametrize("scale", [1e-36, 1e-24, 1e-19, 1e19, 1e36])
def test_the_true_distance_is_never_above_the_bound_of_tiny_or_huge_matrices(scale):
    planted, _ = _planted(scale * (1.0 - 1e-6 * _INDEX), 0)
    matrix = planted.astype(np.float32)
    # Entries near the smallest float32 are rounded, so the exact vectors are those of the entries.
    exact = np.linalg.svd(matrix.astype(np.float64) / scale)[0]
    found = RandomizedSVD(rank=RANK, power_iterations=3).decompose(matrix)
    assert np.all(_true_distances(found.basis, exact[:, :RANK]) <= found.distance_bound)


@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_is_near_the_true_distance_after_a_few_iterations(name):
    matrix, exact = _planted(SPECTRA[name], 0)
    found = RandomizedSVD(rank=RANK, oversampling=10, power_iterations=3).decompose(
        np.float32(matrix)
    )
    true = _true_distances(found.basis, exact[:, :RANK])
    # Rounded entries turn directions by some ten roundings, which cancel by chance in the distance.
    rounding = 10.0 * np.finfo(np.float32).eps
    assert np.all(found.distance_bound <= 1e3 * (true + rounding**2))


def test_a_panel_that_missed_a_leading_direction_is_found_out():
    matrix, exact = _planted(SPECTRA["geometric"], 12)
    kept = np.delete(exact, 2, axis=1)[:, :30]
    turn, values, right = np.linalg.svd(kept.T @ matrix, full_matrices=False)
    triplets = module.RitzTriplets(kept @ turn, values, right.T)
    left, _, bound = module.refined(products_of(matrix), triplets, 10, seed=0)
    # By their own residuals these vectors are exact; they only are not the leading ones.
    assert np.all(_true_distances(left[:, :10], exact[:, :10]) <= bound + 1e-12)
    np.testing.assert_allclose(bound[2:], np.arange(1, 9) / np.arange(3, 11))
    assert np.all(bound[:2] < 1e-20)
