import numpy as np
import pytest
import scipy.special

from rlreps.errors import InputError
from rlreps.subspace import PrincipalSubspace, exact_svd, randomized_svd
from rlreps.subspace import error_bound as module
from rlreps.subspace.products import products_of

_INDEX = np.arange(200.0)
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


@pytest.mark.parametrize("power_iterations", [0, 1, 3, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_true_distance_is_never_above_the_bound(name, dtype, power_iterations):
    for seed in range(3):
        matrix, exact = _planted(SPECTRA[name], seed)
        found = randomized_svd(
            matrix.astype(dtype),
            RANK,
            oversampling=(2, 10, 30)[seed],
            power_iterations=power_iterations,
            seed=seed,
        )
        bound = found.distance_bound
        assert bound.shape == (RANK,)
        assert bound.dtype == np.float64
        assert np.all(bound <= 1.0)
        assert np.all(_true_distances(found.basis, exact[:, :RANK]) <= bound)


@pytest.mark.parametrize("shape", [(240, 210), (210, 240)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECTRA)
def test_rounding_moves_the_exact_decomposition_by_no_more_than_its_bound(name, dtype, shape):
    matrix, exact = _planted(SPECTRA[name], 0, shape)
    found = exact_svd(matrix.astype(dtype), RANK)
    assert np.all(_true_distances(found.basis, exact[:, :RANK]) <= found.distance_bound)


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
def test_converged_float32_subspaces_are_bounded_at_the_level_of_rounding(method):
    matrix, exact = _planted(0.85 ** np.arange(60.0), 3)
    found = method(matrix.astype(np.float32), RANK)
    true = _true_distances(found.basis, exact[:, :RANK])
    rounding = module.rounding_level(matrix.shape, np.float32, 1.0)
    gaps = 0.15 * 0.85 ** np.arange(RANK)
    assert np.all(true <= found.distance_bound)
    assert np.all(found.distance_bound < 100.0 * (rounding / gaps) ** 2)


@pytest.mark.parametrize("method", [exact_svd, randomized_svd])
def test_equal_singular_values_leave_nothing_certain_between_them(method):
    matrix, exact = _planted(np.array([5.0, 3.0, 3.0, 1.0]), 4, (50, 40))
    found = method(matrix.astype(np.float32), 4)
    assert found.distance_bound[1] == 1.0
    true = _true_distances(found.basis, exact)
    assert np.all(true <= found.distance_bound)
    assert np.all(found.distance_bound[[0, 2, 3]] < 1e-8)


@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_a_panel_as_wide_as_the_matrix_leaves_only_rounding(shape):
    matrix = np.random.default_rng(5).standard_normal(shape)
    found = randomized_svd(matrix, 12, oversampling=3, power_iterations=0)
    exact = np.linalg.svd(matrix)[0][:, :12]
    assert np.all(_true_distances(found.basis, exact) <= found.distance_bound)
    assert np.all(found.distance_bound < 1e-20)


def test_a_matrix_of_low_rank_is_bounded_at_the_level_of_rounding():
    matrix, exact = _planted(np.array([4.0, 2.0, 1.0]), 6, (80, 70))
    found = randomized_svd(matrix, 3, oversampling=10, power_iterations=1)
    assert np.all(_true_distances(found.basis, exact) <= found.distance_bound)
    assert np.all(found.distance_bound < 1e-22)


def test_a_panel_that_missed_a_leading_direction_is_found_out():
    matrix, exact = _planted(SPECTRA["geometric"], 12)
    kept = np.delete(exact, 2, axis=1)[:, :30]
    turn, values, right = np.linalg.svd(kept.T @ matrix, full_matrices=False)
    triplets = module.RitzTriplets(kept @ turn, values, right.T)
    bound = module.distance_bounds(products_of(matrix), triplets, 10, seed=0)
    # By their own residuals these vectors are exact; they only are not the leading ones.
    np.testing.assert_array_equal(bound[2:], 1.0)
    assert np.all(bound[:2] < 1e-20)


@pytest.mark.parametrize("name", SPECTRA)
def test_the_norm_of_the_rest_is_bounded_closely(name):
    matrix, _ = _planted(SPECTRA[name], 7)
    # A panel that has not converged, so that what it leaves is more than the exact tail.
    right = np.linalg.qr(matrix.T @ np.random.default_rng(8).standard_normal((240, 20)))[0]
    norm = np.linalg.norm(matrix - matrix @ right @ right.T, 2)
    for seed in range(5):
        images, bound = module._images_and_rest_norm(
            products_of(matrix), right, rounding=1e-14, seed=seed
        )
        np.testing.assert_allclose(images, matrix @ right, atol=1e-12)
        assert norm <= bound < 1.12 * norm


def test_the_largest_point_of_mass_is_where_the_christoffel_function_crosses():
    # A measure of masses 1, 2, 3 at -1, 0, 2, and its orthonormal polynomials up to degree two.
    nodes, weights = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 2.0, 3.0])
    basis = np.linalg.qr(np.sqrt(weights)[:, None] * np.vander(nodes, increasing=True))[0]
    jacobi = basis.T @ np.diag(nodes) @ basis
    diagonal = list(np.diag(jacobi)[:2])
    off_diagonal = list(np.abs(np.diag(jacobi, 1)))
    for least in (0.5, 1.5, 2.9):
        point = module._largest_point_of_mass(diagonal, off_diagonal, 6.0, least)
        # The least f(x)^2-normalised integral over quadratic f, by its own definition.
        powers = np.vander(nodes, increasing=True)
        gram = powers.T @ (weights[:, None] * powers)
        at_point = point ** np.arange(3)
        assert 1.0 / (at_point @ np.linalg.solve(gram, at_point)) == pytest.approx(least, rel=1e-6)
        assert point >= 2.0


def test_probes_miss_the_leading_direction_with_the_stated_probability():
    probability = 0.01  # one that sampling can see; the code's own quantile is the same function
    quantile = 2.0 * scipy.special.gammaincinv(module._PROBES / 2, probability)
    rng = np.random.default_rng(9)
    lengths = np.sum(rng.standard_normal((40_000, module._PROBES)) ** 2, axis=1)
    standard_error = np.sqrt(probability * (1 - probability) / 40_000)
    assert abs(np.mean(lengths < quantile) - probability) < 4.0 * standard_error


def test_the_norm_beyond_a_cut_covers_every_rest_of_the_stated_norm():
    rng = np.random.default_rng(10)
    values, coupling = np.array([2.0, 1.5, 1.0]), 0.3 * rng.standard_normal((6, 3))
    triangle = np.linalg.qr(coupling, mode="r")
    bound = module._norm_beyond(values, triangle, 0.8)
    for _ in range(50):
        rest = rng.standard_normal((6, 7))
        rest *= 0.8 / np.linalg.norm(rest, 2)
        block = np.block([[np.diag(values), np.zeros((3, 7))], [coupling, rest]])
        assert np.linalg.norm(block, 2) <= bound * (1 + 1e-12)
    reached = np.block([[np.diag(values), np.zeros((3, 6))], [coupling, 0.8 * np.eye(6)]])
    assert np.linalg.norm(reached, 2) == pytest.approx(bound)


def test_truncation_keeps_the_bounds_of_the_leading_components():
    matrix, _ = _planted(SPECTRA["geometric"], 11)
    whole = randomized_svd(matrix, 6)
    np.testing.assert_array_equal(whole.truncated(2).distance_bound, whole.distance_bound[:2])


def test_a_subspace_without_a_bound_is_one_too():
    parts = {"basis": np.eye(3)[:, :2], "singular_values": np.ones(2)}
    rest = {"total_energy": 3.0, "method": "exact", "settings": {}}
    assert PrincipalSubspace(**parts, **rest).truncated(1).distance_bound is None
    with pytest.raises(InputError, match="expected a distance bound for each of 2 components"):
        PrincipalSubspace(**parts, **rest, distance_bound=np.ones(3))
