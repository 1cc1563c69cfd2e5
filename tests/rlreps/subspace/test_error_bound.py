"""The bound on a computed subspace, against planted matrices whose exact one is known."""

import numpy as np
import pytest

from rlreps.subspace import RandomizedSVD, exact_svd
from rlreps.subspace import error_bound as module
from rlreps.subspace.products import products_of

_INDEX = np.arange(200.0)


def randomized_svd(matrix, rank, **options):
    return RandomizedSVD(rank=rank, **options).decompose(matrix)


SPECTRA = {
    "geometric": 0.95**_INDEX,
    "fast": 0.8 ** _INDEX[:100],
    "power law": (1.0 + _INDEX) ** -0.6,
    "clusters": 0.9 ** (_INDEX // 5) * (1.0 - 1e-3 * (_INDEX % 5)),
    "flat tail": np.concatenate([np.linspace(10.0, 5.0, 12), np.full(188, 0.9)]),
    "close pair": np.concatenate([[1.0, 0.9999], 0.8 ** np.arange(1.0, 60.0)]),
    "wide gaps": np.concatenate([np.full(3, 100.0) - np.arange(3), np.linspace(3.0, 1.0, 100)]),
}


RANK = 15


def _planted(spectrum: np.ndarray, seed: int, shape=(240, 210)):
    """A float64 matrix with the given singular values, and its left singular vectors."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((shape[0], len(spectrum))))[0]
    right = np.linalg.qr(rng.standard_normal((shape[1], len(spectrum))))[0]
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
        # Rounding moves the exact decomposition, too.
        for found in (exact_svd(matrix, RANK), randomized_svd(matrix, RANK, seed=seed, **options)):
            bound = found.distance_bound
            assert (bound.shape, bound.dtype) == ((RANK,), np.float64)
            assert np.all(bound <= 1.0)
            assert np.all(_true_distances(found.basis, exact[:, :RANK]) <= bound)


@pytest.mark.parametrize(
    ("name", "power_iterations"),
    [("geometric", 2), ("power law", 4), ("flat tail", 1), ("wide gaps", 1), ("clusters", 5)],
)
def test_the_bound_is_within_a_small_factor_of_the_truth_once_it_converges(name, power_iterations):
    matrix, exact = _planted(SPECTRA[name], 1)
    found = randomized_svd(matrix, 12, oversampling=40, power_iterations=power_iterations)
    true = _true_distances(found.basis, exact[:, :12])
    dimensions = np.arange(12) if name in ("geometric", "power law") else [2]
    if name == "clusters":
        dimensions = [4, 9]
    # Far above rounding, or the comparison would say nothing.
    assert np.all(true[dimensions] > 1e-20)
    assert np.all(found.distance_bound[dimensions] < 10.0 * true[dimensions])


def test_a_small_gap_behind_the_last_component_costs_little_where_the_panel_resolves_it():
    spectrum = np.concatenate([[1.0, 0.9, 0.8, 0.7999], 0.3 * 0.9 ** np.arange(80.0)])
    matrix, exact = _planted(spectrum, 2)
    found = randomized_svd(matrix, 3, oversampling=10, power_iterations=6)
    assert _true_distances(found.basis, exact[:, :3])[2] < found.distance_bound[2] < 1e-10
    # The plain theorem: the whole residual over the gap behind sigma_3.
    residual = matrix.T @ found.basis
    residual = matrix @ (residual / np.linalg.norm(residual, axis=0))
    residual -= found.basis @ (found.basis.T @ residual)
    plain = np.sum(residual**2) / (3 * 1e-4**2)
    assert found.distance_bound[2] < plain / 100.0


@pytest.mark.parametrize("method", [exact_svd, randomized_svd])
def test_equal_singular_values_leave_nothing_certain_between_them(method):
    matrix, exact = _planted(np.array([5.0, 3.0, 3.0, 1.0]), 4, (50, 40))
    found = method(matrix.astype(np.float32), 4)
    assert found.distance_bound[1] == 1.0
    true = _true_distances(found.basis, exact)
    assert np.all(true <= found.distance_bound)
    assert np.all(found.distance_bound[[0, 2, 3]] < 1e-8)


def test_a_panel_that_missed_a_leading_direction_is_found_out():
    matrix, exact = _planted(SPECTRA["geometric"], 12)
    kept = np.delete(exact, 2, axis=1)[:, :30]
    turn, values, right = np.linalg.svd(kept.T @ matrix, full_matrices=False)
    triplets = module.RitzTriplets(kept @ turn, values, right.T)
    bound = module.distance_bounds(products_of(matrix), triplets, 10, seed=0)
    # By their own residuals these vectors are exact; they only are not the leading ones.
    np.testing.assert_array_equal(bound[2:], 1.0)
    assert np.all(bound[:2] < 1e-20)
