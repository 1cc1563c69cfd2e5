import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import sklearn.decomposition
import sklearn.utils.extmath

from rlreps.errors import InputError
from rlreps.subspace import (
    PrincipalSubspace,
    exact_svd,
    fix_signs,
    products,
    randomized_svd,
    relative_tolerance,
)

METHODS = pytest.mark.parametrize("method", [exact_svd, randomized_svd])


def _planted(rows: int, columns: int, spectrum: np.ndarray, seed: int = 0, dtype=np.float32):
    """A matrix with the given singular values; returns it and its left singular vectors."""
    rng = np.random.default_rng(seed)
    count = len(spectrum)
    left = np.linalg.qr(rng.standard_normal((rows, count)))[0]
    right = np.linalg.qr(rng.standard_normal((columns, count)))[0]
    return ((left * spectrum) @ right.T).astype(dtype), left


def _largest_angle(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.max(scipy.linalg.subspace_angles(first, second)))


@METHODS
@pytest.mark.parametrize("shape", [(120, 60), (60, 120), (80, 80)])
def test_a_planted_spectrum_is_recovered(method, shape):
    spectrum = 0.8 ** np.arange(40.0)
    matrix, left = _planted(*shape, spectrum)
    found = method(matrix, 10)
    np.testing.assert_allclose(found.singular_values, spectrum[:10], rtol=1e-5)
    cosines = np.abs(np.sum(found.basis * left[:, :10], axis=0))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-5)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(10), atol=2e-6)
    np.testing.assert_allclose(found.total_energy, np.sum(spectrum**2), rtol=1e-6)


def test_the_randomised_path_equals_the_exact_path_in_values_vectors_and_signs():
    matrix, _ = _planted(150, 90, 0.9 ** np.arange(90.0), dtype=np.float64)
    exact = exact_svd(matrix, 12)
    randomised = randomized_svd(matrix, 12, oversampling=20, power_iterations=20)
    np.testing.assert_allclose(randomised.singular_values, exact.singular_values, rtol=1e-10)
    np.testing.assert_allclose(randomised.basis, exact.basis, atol=1e-8)
    assert randomised.total_energy == exact.total_energy


def test_power_iterations_bring_the_randomised_subspace_closer():
    matrix, _ = _planted(200, 150, 1.0 / np.arange(1.0, 101.0) ** 0.5)
    exact = exact_svd(matrix, 5).basis
    angles = [
        _largest_angle(randomized_svd(matrix, 5, oversampling=5, power_iterations=p).basis, exact)
        for p in (0, 2, 30)
    ]
    assert angles[0] > 3 * angles[1] > 9 * angles[2]
    assert angles[2] < 1e-3


def test_the_randomised_path_agrees_with_scikit_learn():
    matrix, _ = _planted(200, 150, 0.85 ** np.arange(60.0))
    left, values, _ = sklearn.utils.extmath.randomized_svd(
        matrix, 8, n_oversamples=30, n_iter=8, random_state=3
    )
    found = randomized_svd(matrix, 8)
    np.testing.assert_allclose(found.singular_values, values, rtol=1e-5)
    assert _largest_angle(found.basis, left) < 1e-4


@METHODS
def test_energy_captured_is_scikit_learns_cumulative_explained_variance(method):
    rng = np.random.default_rng(4)
    matrix = rng.standard_normal((90, 30)) * np.linspace(3.0, 0.1, 30)
    matrix -= matrix.mean(axis=0)
    pca = sklearn.decomposition.PCA(n_components=12, svd_solver="full").fit(matrix)
    found = method(matrix, 12)
    np.testing.assert_allclose(
        found.energy_captured(), np.cumsum(pca.explained_variance_ratio_), rtol=1e-10
    )
    assert _largest_angle(found.basis, pca.transform(matrix)) < 1e-7


@METHODS
def test_all_components_capture_all_energy(method):
    matrix = np.random.default_rng(5).standard_normal((20, 8)).astype(np.float32)
    captured = method(matrix, 8).energy_captured()
    assert np.all(np.diff(captured) > 0)
    np.testing.assert_allclose(captured[-1], 1.0, atol=1e-6)


@METHODS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_is_kept_and_the_matrix_left_as_it_was(method, dtype):
    matrix = np.random.default_rng(6).standard_normal((30, 20)).astype(dtype)
    before = matrix.copy()
    found = method(matrix, 3)
    assert found.basis.dtype == found.singular_values.dtype == dtype
    np.testing.assert_array_equal(matrix, before)


@METHODS
def test_a_device_matrix_gives_what_its_host_copy_gives(method):
    matrix = np.random.default_rng(7).standard_normal((40, 30)).astype(np.float32)
    host, device = method(matrix, 4), method(jnp.asarray(matrix), 4)
    np.testing.assert_array_equal(device.basis, host.basis)
    np.testing.assert_array_equal(device.singular_values, host.singular_values)


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_layout_does_not_matter(order):
    matrix, left = _planted(70, 50, 0.7 ** np.arange(20.0))
    found = randomized_svd(np.array(matrix, order=order), 4)
    assert _largest_angle(found.basis, left[:, :4]) < 1e-5


def test_a_matrix_on_an_accelerator_is_decomposed_through_products_taken_there(monkeypatch):
    # No accelerator is needed: a CPU array is treated as one, which takes the same code path.
    matrix = np.random.default_rng(8).standard_normal((60, 40)).astype(np.float32)
    expected = randomized_svd(matrix, 5)
    monkeypatch.setattr(products, "_on_accelerator", lambda _: True)
    found = randomized_svd(jnp.asarray(matrix), 5)
    np.testing.assert_allclose(found.basis, expected.basis, atol=1e-5)
    np.testing.assert_allclose(found.singular_values, expected.singular_values, rtol=1e-5)
    np.testing.assert_allclose(found.total_energy, expected.total_energy, rtol=1e-6)


def test_the_seed_decides_the_result():
    matrix = np.random.default_rng(9).standard_normal((80, 60)).astype(np.float32)
    first, again, other = (
        randomized_svd(matrix, 3, oversampling=2, power_iterations=1, seed=seed).basis
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.max(np.abs(first - other)) > 1e-3


def test_the_randomised_path_needs_only_panels_beside_the_matrix(monkeypatch):
    # The scratch block of the norm would otherwise hide a copy of so small a matrix.
    monkeypatch.setattr(products, "_SCRATCH_BYTES", 2**18)
    matrix = np.random.default_rng(10).standard_normal((2500, 2500)).astype(np.float32)
    tracemalloc.start()
    randomized_svd(matrix, 4, oversampling=4, power_iterations=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < matrix.nbytes / 4


@METHODS
def test_the_largest_entry_of_every_component_is_positive(method):
    matrix = np.random.default_rng(11).standard_normal((50, 40)).astype(np.float32)
    basis = method(matrix, 10).basis
    assert np.all(np.max(basis, axis=0) == np.max(np.abs(basis), axis=0))
    np.testing.assert_allclose(method(-matrix, 10).basis, basis, atol=1e-4)


def test_sign_fixing_breaks_ties_by_the_first_index():
    basis = np.array([[0.1, -0.7, 0.0], [-0.9, 0.7, 0.0], [0.4, 0.1, 0.0]])
    expected = np.array([[-0.1, 0.7, 0.0], [0.9, -0.7, 0.0], [-0.4, -0.1, 0.0]])
    np.testing.assert_array_equal(fix_signs(basis), expected)
    np.testing.assert_array_equal(fix_signs(fix_signs(basis)), expected)


def test_truncation_keeps_the_leading_components_and_the_energy():
    matrix = np.random.default_rng(12).standard_normal((30, 20)).astype(np.float32)
    whole = randomized_svd(matrix, 6, seed=3)
    part = whole.truncated(2)
    np.testing.assert_array_equal(part.basis, whole.basis[:, :2])
    np.testing.assert_array_equal(part.energy_captured(), whole.energy_captured()[:2])
    assert (part.total_energy, part.method, part.settings) == (
        whole.total_energy,
        "randomized",
        {"rank": 6, "oversampling": 40, "power_iterations": 10, "seed": 3},
    )
    for d in (0, 7):
        with pytest.raises(InputError, match=f"expected 1 <= d <= 6 components, got {d}"):
            whole.truncated(d)


@METHODS
def test_a_rank_outside_the_shape_is_refused(method):
    matrix = np.ones((5, 3), np.float32)
    for rank in (-1, 0, 4):
        with pytest.raises(InputError, match=f"expected 1 <= rank <= 3 .*got {rank}"):
            method(matrix, rank)


@METHODS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 7), (300, 200)])
def test_a_rank_above_the_numerical_rank_is_refused_and_named(method, dtype, shape):
    matrix, _ = _planted(*shape, np.array([5.0, 2.0, 1.0, 0.1]), dtype=dtype)
    assert method(matrix, 4).basis.shape == (shape[0], 4)
    with pytest.raises(InputError, match="expected a rank of at most 4, the numerical rank"):
        method(matrix, 5)


@METHODS
def test_small_components_above_rounding_are_kept(method):
    # The squared ratio of the two is below float32's resolution.
    matrix, left = _planted(400, 300, np.array([1.0, 1e-4]))
    found = method(matrix, 2)
    np.testing.assert_allclose(found.singular_values, [1.0, 1e-4], rtol=1e-2)
    assert _largest_angle(found.basis, left) < 1e-2


@METHODS
def test_a_zero_matrix_has_numerical_rank_zero(method):
    with pytest.raises(InputError, match="expected a rank of at most 0"):
        method(np.zeros((4, 3), np.float32), 1)


@METHODS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_matrices_that_are_not_finite_are_refused(method, bad):
    matrix = np.ones((4, 3), np.float32)
    matrix[2, 1] = bad
    with pytest.raises(InputError, match="expected a matrix of finite entries"):
        method(matrix, 1)


@METHODS
def test_other_dtypes_and_ranks_of_array_are_refused(method):
    for matrix in (np.ones((4, 3), np.int64), np.ones((4, 3), np.float16), np.ones(4, np.float32)):
        with pytest.raises(InputError, match="expected a float32 or float64 matrix"):
            method(matrix, 1)


@pytest.mark.parametrize("name", ["oversampling", "power_iterations", "seed"])
def test_negative_settings_are_refused(name):
    with pytest.raises(InputError, match=f"expected {name} >= 0, got -1"):
        randomized_svd(np.ones((4, 3), np.float32), 1, **{name: -1})


def test_a_subspace_whose_parts_do_not_fit_is_refused():
    with pytest.raises(InputError, match="expected a basis"):
        PrincipalSubspace(
            basis=np.eye(3),
            singular_values=np.ones(2),
            total_energy=1.0,
            method="exact",
            settings={},
        )


def test_the_tolerance_meets_numpys_at_one_hundred_states():
    matrix_rank_tolerance = 100 * np.finfo(np.float32).eps
    assert relative_tolerance((100, 5), np.float32) == pytest.approx(matrix_rank_tolerance)


def test_x64_device_matrices_stay_in_float64():
    with jax.enable_x64(True):
        matrix = jnp.asarray(np.random.default_rng(13).standard_normal((20, 10)))
        assert randomized_svd(matrix, 2).basis.dtype == np.float64
