"""Decompositions of matrices in memory and in row blocks, and the noise floor of halves."""

import tracemalloc

import numpy as np
import pytest

from rlreps.errors import FitWarning, InputError
from rlreps.subspace import (
    RandomizedSVD,
    exact_svd,
    fix_signs,
    nested_distances,
    noise_floor,
    products,
)


def randomized_svd(matrix, rank, **options):
    return RandomizedSVD(rank=rank, **options).decompose(matrix)


METHODS = pytest.mark.parametrize("method", [exact_svd, randomized_svd])


def _factors(rows: int, columns: int, spectrum: np.ndarray, dtype=np.float32):
    """Left singular vectors times singular values, and right singular vectors."""
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((rows, len(spectrum))))[0]
    right = np.linalg.qr(rng.standard_normal((columns, len(spectrum))))[0]
    return (left * spectrum).astype(dtype), right.astype(dtype)


def _planted(rows: int, columns: int, spectrum: np.ndarray, dtype=np.float32):
    """A matrix with the given singular values; returns it and its left singular vectors."""
    scaled, right = _factors(rows, columns, spectrum, np.float64)
    return (scaled @ right.T).astype(dtype), scaled / spectrum


@METHODS
@pytest.mark.parametrize("shape", [(120, 60), (60, 120)])
def test_a_planted_spectrum_is_recovered(method, shape):
    spectrum = 0.8 ** np.arange(40.0)
    matrix, left = _planted(*shape, spectrum)
    found = method(matrix, 10)
    np.testing.assert_allclose(found.singular_values, spectrum[:10], rtol=1e-5)
    cosines = np.abs(np.sum(found.basis * left[:, :10], axis=0))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-5)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(10), atol=2e-6)
    np.testing.assert_allclose(found.total_energy, np.sum(spectrum**2), rtol=1e-6)
    energies = np.cumsum(spectrum[:10] ** 2) / np.sum(spectrum**2)
    np.testing.assert_allclose(found.energy_captured(), energies, rtol=1e-5)
    np.testing.assert_allclose(method(-matrix, 10).basis, found.basis, atol=1e-4)


def test_sign_fixing_breaks_ties_by_the_first_index():
    basis = np.array([[0.1, -0.7, 0.0], [-0.9, 0.7, 0.0], [0.4, 0.1, 0.0]])
    expected = np.array([[-0.1, 0.7, 0.0], [0.9, -0.7, 0.0], [-0.4, -0.1, 0.0]])
    np.testing.assert_array_equal(fix_signs(basis), expected)


@METHODS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 7), (300, 200)])
def test_a_rank_above_the_numerical_rank_is_refused_and_named(method, dtype, shape):
    matrix, _ = _planted(*shape, np.array([5.0, 2.0, 1.0, 0.1]), dtype=dtype)
    assert method(matrix, 4).basis.shape == (shape[0], 4)
    with pytest.raises(InputError, match="expected a rank of at most 4, the numerical rank"):
        method(matrix, 5)


class _Counted:
    """Row blocks that count how often they are read and can compute their rows on the fly."""

    def __init__(self, left: np.ndarray, right: np.ndarray, block_rows: int):
        self.left, self.right, self.block_rows = left, right, block_rows
        self.shape, self.dtype = (len(left), len(right)), left.dtype
        self.reads = 0

    def blocks(self):
        self.reads += 1
        for start in range(0, len(self.left), self.block_rows):
            yield start, self.left[start : start + self.block_rows] @ self.right.T


@pytest.mark.parametrize("power_iterations", [0, 4])
@pytest.mark.parametrize("shape", [(150, 90), (90, 150)])
def test_a_streamed_matrix_gives_what_the_array_gives(monkeypatch, shape, power_iterations):
    for name in ("_GROUP_BYTES", "_LARGEST_GROUP_BYTES"):
        monkeypatch.setattr(products, name, 8 * 150 * 20)  # several groups
    left, right = _factors(*shape, 0.9 ** np.arange(90.0), np.float64)
    matrix = left @ right.T
    arguments = {"oversampling": 10, "power_iterations": power_iterations, "seed": 5}
    array = randomized_svd(matrix, 8, **arguments)
    source = _Counted(left, right, 33)
    streamed = randomized_svd(source, 8, **arguments)
    assert source.reads == RandomizedSVD(power_iterations=power_iterations).num_reads
    np.testing.assert_allclose(streamed.basis, array.basis, atol=1e-9)
    np.testing.assert_allclose(streamed.singular_values, array.singular_values, rtol=1e-11)
    np.testing.assert_allclose(streamed.distance_bound, array.distance_bound, rtol=1e-6)
    assert streamed.total_energy == pytest.approx(array.total_energy, rel=1e-14)


@pytest.mark.filterwarnings("ignore:the .* leading components are known")
@METHODS
@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [(np.float32, -100), (np.float32, -60), (np.float32, 60), (np.float32, 120)]
    + [(np.float64, each) for each in (-460, -40, 40, 460)],
)
def test_the_scale_of_a_matrix_changes_that_of_the_values_alone(method, dtype, exponent):
    matrix, _ = _planted(80, 60, 1.0 - 1e-6 * np.arange(60), dtype=dtype)
    expected, found = (method(each, 10) for each in (matrix, np.ldexp(matrix, exponent)))
    np.testing.assert_array_equal(found.basis, expected.basis)
    values = np.ldexp(expected.singular_values, exponent)
    np.testing.assert_array_equal(found.singular_values, values)
    np.testing.assert_array_equal(found.distance_bound, expected.distance_bound)
    assert found.singular_values.dtype == dtype
    assert found.total_energy == np.ldexp(expected.total_energy, 2 * exponent)
    assert found.settings == expected.settings


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_a_streamed_matrix_far_from_one_is_read_once_more(scale):
    left, right = _factors(150, 90, scale * 0.9 ** np.arange(90.0))
    source = _Counted(left, right, 33)
    found = randomized_svd(source, 8)
    assert source.reads == RandomizedSVD().num_reads + 1
    values = np.linalg.svd(left.astype(np.float64) @ right.T, compute_uv=False)[:8]
    np.testing.assert_allclose(found.singular_values, values, rtol=1e-5)


@METHODS
@pytest.mark.parametrize(
    ("scale", "dtype", "message"),
    [
        (1e160, np.float64, r"norm 1e-140 to 1e140, got inf"),
        (1e145, np.float64, r"norm 1e-140 to 1e140, got 3\.87e\+145"),
        (1e-145, np.float64, r"norm 1e-140 to 1e140, got 3\.87e-145"),
        (1e-200, np.float64, r"norm 1e-140 to 1e140, got 0"),
        (3e38, np.float32, r"singular values within float32, got 1\.16e\+39"),
    ],
)
def test_a_matrix_beyond_the_range_of_its_squares_or_values_is_refused(
    method, scale, dtype, message
):
    with pytest.raises(InputError, match=message):
        method(np.full((5, 3), scale, dtype), 1)


@pytest.mark.integration
def test_a_streamed_matrix_is_never_held(monkeypatch):
    monkeypatch.setattr(products, "_GROUP_BYTES", 2**20)
    source = _Counted(*_factors(4000, 4000, 0.5 ** np.arange(12.0)), 64)
    tracemalloc.start()
    randomized_svd(source, 5, oversampling=5, power_iterations=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4000 * 4000 / 4


def _basis(rows: int, columns: int, seed: int) -> np.ndarray:
    panel = np.random.default_rng(seed).standard_normal((rows, columns))
    return np.linalg.qr(panel)[0]


def test_nested_distances_are_the_subspace_distance_of_every_leading_part():
    first, second = _basis(60, 8, 0), _basis(60, 8, 1)
    second = np.linalg.qr(first + 0.3 * second)[0]
    found = nested_distances(first, second)
    for d in range(1, 9):
        kept = np.trace(first[:, :d] @ first[:, :d].T @ second[:, :d] @ second[:, :d].T)
        assert found[d - 1] == pytest.approx(1.0 - kept / d, rel=1e-9)


def test_the_floor_is_on_average_the_distance_of_the_mean_from_the_truth():
    rank, seeds = 5, 300
    rng = np.random.default_rng(8)
    left, right = _basis(40, 20, 9), _basis(30, 20, 10)
    truth = (left * (10.0 * 0.8 ** np.arange(20.0))) @ right.T
    differences, actual = [], []
    for _ in range(seeds):
        # Noise whose size differs from column to column, as in a sampled successor measure.
        noise = 0.05 * rng.standard_normal((2, 40, 30)) * np.linspace(0.2, 2.0, 30)
        halves = [np.linalg.svd(truth + part)[0][:, :rank] for part in noise]
        mean = np.linalg.svd(truth + noise.mean(axis=0))[0][:, :rank]
        actual.append(nested_distances(mean, left[:, :rank]))
        differences.append(noise_floor(*halves) - actual[-1])
    average, expected = np.mean(differences, axis=0), np.mean(actual, axis=0)
    standard_error = np.std(differences, axis=0) / np.sqrt(seeds)
    # The comparison can tell the quarter from a half or an eighth, for every d.
    assert np.all(standard_error < 0.05 * expected)
    assert np.all(expected < 0.02)
    # Second-order terms are of the distance's own relative size.
    assert np.all(np.abs(average) < 4.0 * standard_error + 4.0 * expected**2)


@METHODS
@pytest.mark.parametrize(
    ("matrix", "rank", "message"),
    [
        *((np.ones((5, 3), np.float32), k, f"rank.*got {k}") for k in (0, 4, 2.5)),
        (np.full((4, 3), np.nan, np.float32), 1, "expected a matrix of finite entries"),
        (np.ones((4, 3), np.int64), 1, "expected a float32 or float64 matrix"),
    ],
)
def test_matrices_and_ranks_that_cannot_be_used_are_refused(method, matrix, rank, message):
    with pytest.raises(InputError, match=message):
        method(matrix, rank)


def test_components_of_a_flat_spectrum_are_warned_of():
    generator = np.random.default_rng(0)
    left, right = (np.linalg.qr(generator.standard_normal((400, 400)))[0] for _ in range(2))
    flat = (left * (1.0 + np.arange(400)) ** -0.25) @ right.T
    with pytest.warns(FitWarning, match="the 60 leading components are known to a subspace"):
        found = RandomizedSVD(rank=60, power_iterations=2).decompose(flat)
    distance = nested_distances(left[:, :60], found.basis)[-1]
    assert 0.001 < distance <= found.distance_bound[-1]
    RandomizedSVD(rank=60, power_iterations=100).decompose(flat)  # Without a warning.


def test_the_bound_is_near_zero_where_the_components_are_exact_without_iterations():
    matrix, left = _planted(60, 40, 0.8 ** np.arange(30))
    found = randomized_svd(matrix, 5, oversampling=10, power_iterations=0)
    distances = nested_distances(found.basis, left[:, :5].astype(np.float32))
    assert (distances <= found.distance_bound + 1e-6).all()
    assert found.distance_bound.max() < 1e-4
