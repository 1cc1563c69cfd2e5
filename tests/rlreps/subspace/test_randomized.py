"""The randomised decomposition of matrices in row blocks; test_principal.py has it in memory."""

import tracemalloc

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import (
    ArrayBlocks,
    RandomizedSVD,
    exact_svd,
    nested_distances,
    products,
    randomized_svd,
)


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


def _factors(rows: int, columns: int, spectrum: np.ndarray, dtype=np.float32):
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.standard_normal((rows, len(spectrum))))[0]
    right = np.linalg.qr(rng.standard_normal((columns, len(spectrum))))[0]
    return (left * spectrum).astype(dtype), right.astype(dtype)


@pytest.mark.parametrize("power_iterations", [0, 1, 4])
@pytest.mark.parametrize("shape", [(150, 90), (90, 150)])
def test_a_streamed_matrix_gives_what_the_array_gives(monkeypatch, shape, power_iterations):
    monkeypatch.setattr(products, "_GROUP_BYTES", 8 * 150 * 20)  # several groups
    left, right = _factors(*shape, 0.9 ** np.arange(90.0), np.float64)
    matrix = left @ right.T
    arguments = {"oversampling": 10, "power_iterations": power_iterations, "seed": 5}
    array = randomized_svd(matrix, 8, **arguments)
    streamed = randomized_svd(ArrayBlocks(matrix, 33), 8, **arguments)
    np.testing.assert_allclose(streamed.basis, array.basis, atol=1e-9)
    np.testing.assert_allclose(streamed.singular_values, array.singular_values, rtol=1e-11)
    np.testing.assert_allclose(streamed.distance_bound, array.distance_bound, rtol=1e-6)
    assert streamed.total_energy == pytest.approx(array.total_energy, rel=1e-14)
    assert (streamed.method, streamed.settings) == (array.method, array.settings)


def test_the_streamed_result_does_not_depend_on_the_blocks(monkeypatch):
    monkeypatch.setattr(products, "_GROUP_BYTES", 4 * 80 * 16)
    matrix = np.random.default_rng(1).standard_normal((120, 80)).astype(np.float32)
    results = [randomized_svd(ArrayBlocks(matrix, rows), 5) for rows in (1, 16, 50, 1000)]
    for result in results[1:]:
        np.testing.assert_array_equal(result.basis, results[0].basis)
        np.testing.assert_array_equal(result.distance_bound, results[0].distance_bound)
        assert result.total_energy == results[0].total_energy


def test_a_streamed_float32_matrix_keeps_components_whose_square_is_below_its_resolution():
    left, right = _factors(400, 300, np.array([1.0, 1e-4]))
    found = randomized_svd(_Counted(left, right, 64), 2)
    np.testing.assert_allclose(found.singular_values, [1.0, 1e-4], rtol=1e-2)
    assert nested_distances(found.basis, left)[1] < 1e-4


def test_squaring_the_spectrum_costs_a_float32_subspace_no_digits():
    left, right = _factors(500, 400, 0.9 ** np.arange(120.0))
    matrix = left @ right.T
    exact = exact_svd(matrix.astype(np.float64), 50).basis
    in_memory = nested_distances(randomized_svd(matrix, 50).basis, exact)
    streamed = nested_distances(randomized_svd(ArrayBlocks(matrix), 50).basis, exact)
    # sigma_50 is 0.006 of sigma_1, so A'A spans 3e-5: both end at rounding:
    # singular vectors turned by a few 1e-6.
    assert np.all(in_memory < 1e-11)
    assert np.all(streamed < 1e-11)


@pytest.mark.parametrize(("power_iterations", "reads"), [(0, 8), (3, 11), (10, 18)])
def test_the_matrix_is_read_as_often_as_documented(power_iterations, reads):
    source = _Counted(*_factors(60, 50, 0.9 ** np.arange(50.0)), 20)
    randomized_svd(source, 3, oversampling=5, power_iterations=power_iterations)
    assert source.reads == reads == RandomizedSVD(power_iterations=power_iterations).num_reads


def test_a_streamed_matrix_is_never_held(monkeypatch):
    monkeypatch.setattr(products, "_GROUP_BYTES", 2**20)
    source = _Counted(*_factors(4000, 4000, 0.5 ** np.arange(12.0)), 64)
    tracemalloc.start()
    randomized_svd(source, 5, oversampling=5, power_iterations=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4000 * 4000 / 4


def test_a_streamed_matrix_that_is_not_finite_is_refused_after_one_read():
    left, right = _factors(60, 50, 0.9 ** np.arange(50.0))
    left[40, 2] = np.nan
    source = _Counted(left, right, 20)
    with pytest.raises(InputError, match="expected a matrix of finite entries"):
        randomized_svd(source, 3)
    assert source.reads == 1


def test_row_blocks_are_refused_by_the_exact_decomposition():
    with pytest.raises(InputError, match=r"expected a matrix in memory .* got row blocks"):
        exact_svd(ArrayBlocks(np.ones((4, 3), np.float32)), 1)


def test_a_rank_outside_the_blocks_shape_is_refused():
    with pytest.raises(InputError, match=r"expected 1 <= rank <= 3 .*got 4"):
        randomized_svd(ArrayBlocks(np.ones((5, 3), np.float32)), 4)
