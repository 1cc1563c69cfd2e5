import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import (
    ArrayBlocks,
    project_rows,
    randomized_svd,
    relative_excess_loss,
    representation_loss,
    row_blocks,
)


@pytest.fixture(autouse=True)
def several_groups(monkeypatch):
    monkeypatch.setattr(row_blocks, "_GROUP_BYTES", 4 * 40 * 16)


def _matrix(rows: int = 90, columns: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize("block_rows", [1, 16, 37, 90])
def test_projected_rows_are_the_product_with_the_transposed_basis(block_rows):
    matrix, basis = _matrix(), _matrix(90, 4, seed=1)
    found = project_rows(basis, ArrayBlocks(matrix, block_rows))
    assert found.dtype == np.float32
    expected = basis.astype(np.float64).T @ matrix
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("block_rows", [1, 16, 37, 90])
def test_the_streamed_loss_is_the_least_squares_residual(block_rows):
    matrix, features = _matrix(), _matrix(90, 4, seed=1)
    wide = features.astype(np.float64)
    residual = matrix - wide @ np.linalg.lstsq(wide, matrix, rcond=None)[0]
    found = representation_loss(jnp.asarray(features), ArrayBlocks(matrix, block_rows))
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(np.sum(residual**2), rel=1e-6)
    assert float(found) == pytest.approx(float(representation_loss(features, matrix)), rel=1e-5)


def test_the_streamed_loss_of_rank_deficient_features_is_that_of_their_span():
    matrix, features = _matrix(), _matrix(90, 3, seed=2)
    source = ArrayBlocks(matrix, 20)
    deficient = np.concatenate([features, features @ np.ones((3, 2), np.float32)], axis=1)
    assert float(representation_loss(jnp.asarray(deficient), source)) == pytest.approx(
        float(representation_loss(jnp.asarray(features), source)), rel=1e-5
    )


def test_features_that_span_the_matrix_leave_a_loss_at_rounding():
    features = _matrix(90, 5, seed=3)
    matrix = features @ _matrix(5, 40, seed=4)
    loss = float(representation_loss(jnp.asarray(features), ArrayBlocks(matrix, 20)))
    assert loss < 1e-10 * np.sum(matrix**2)


def test_features_that_are_not_finite_give_a_streamed_loss_of_nan():
    features = _matrix(90, 3, seed=5)
    features[4, 1] = np.nan
    assert np.isnan(float(representation_loss(jnp.asarray(features), ArrayBlocks(_matrix()))))


def test_the_streamed_excess_of_the_exact_subspace_is_zero():
    source = ArrayBlocks(_matrix(), 20)
    found = randomized_svd(source, 5, oversampling=35)
    excess = relative_excess_loss(jnp.asarray(found.basis), source, found, 5)
    assert abs(float(excess)) < 1e-5


def test_float64_blocks_keep_their_precision():
    matrix = np.random.default_rng(6).standard_normal((90, 40))
    basis = np.linalg.qr(np.random.default_rng(7).standard_normal((90, 3)))[0]
    with jax.enable_x64(True):
        loss = float(representation_loss(jnp.asarray(basis), ArrayBlocks(matrix, 20)))
    assert loss == pytest.approx(np.sum((matrix - basis @ (basis.T @ matrix)) ** 2), rel=1e-13)


def test_a_basis_over_other_states_is_refused():
    source = ArrayBlocks(_matrix())
    with pytest.raises(InputError, match="expected a basis over the matrix's 90 states"):
        project_rows(np.ones((89, 2), np.float32), source)
    with pytest.raises(InputError, match="expected a basis over the matrix's 90 states"):
        representation_loss(jnp.asarray(_matrix(80, 2)), source)
