"""Means of columns and rows, centring in memory and in row blocks, second moments."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.subspace import ArrayBlocks, CentredBlocks, centre_columns, centre_in_place
from rlreps.subspace.centring import second_moments
from rlreps.subspace.row_blocks import centring_means, row_means

CENTRINGS = ("columns", "rows", "both")


def test_centring_agrees_with_float64_even_where_the_mean_dwarfs_the_spread():
    matrix = _offset_matrix(5000, 7)
    centred = np.asarray(centre_columns(jnp.asarray(matrix)))
    wide = matrix.astype(np.float64)
    # Half a unit in the last place of an offset of a few thousand is 1.2e-4.
    np.testing.assert_allclose(centred, wide - wide.mean(axis=0), atol=3e-4)
    assert np.max(np.abs(centred.mean(axis=0, dtype=np.float64))) < 1e-6


def _exactly(matrix: np.ndarray, centring: str) -> np.ndarray:
    """Centre by projections, I - 11'/n from the left and I - 11'/t from the right."""
    wide = matrix.astype(np.float64)
    left, right = (np.eye(size) - 1.0 / size for size in wide.shape)
    return {"columns": left @ wide, "rows": wide @ right, "both": left @ wide @ right}[centring]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("centring", CENTRINGS)
def test_in_place_centring_rounds_the_exact_result_once(centring, order):
    matrix = np.array(_offset_matrix(301, 6), order=order)
    expected = _exactly(matrix, centring).astype(np.float32)
    centre_in_place(matrix, centring)
    np.testing.assert_allclose(matrix, expected, rtol=1e-6, atol=1e-9)


def _offset_matrix(rows: int, columns: int, dtype=np.float32) -> np.ndarray:
    rng = np.random.default_rng(0)
    offsets = 1e3 * rng.standard_normal(columns)
    return (rng.standard_normal((rows, columns)) + offsets).astype(dtype)


@pytest.mark.parametrize("centring", CENTRINGS)
@pytest.mark.parametrize(
    ("dtype", "order", "block_rows"),
    [(np.float32, "C", 1), (np.float32, "F", 100), (np.float64, "F", 1), (np.float64, "C", 1000)],
)
def test_centred_blocks_are_the_centred_array_bit_for_bit(block_rows, order, dtype, centring):
    matrix = _offset_matrix(301, 6, dtype)
    source = ArrayBlocks(matrix, block_rows)
    centred = CentredBlocks(source, *centring_means(source, centring))
    streamed = np.concatenate([rows.copy() for _, rows in centred.blocks()])
    in_memory = np.array(matrix, order=order)
    centre_in_place(in_memory, centring)
    np.testing.assert_array_equal(streamed, in_memory, strict=True)


def test_means_of_rows_do_not_depend_on_the_blocks():
    # Wider than NumPy's buffer, in whose pieces a sum of narrower rows would be taken.
    wide = np.ascontiguousarray(_offset_matrix(20_001, 150).T)
    expected = row_means(ArrayBlocks(wide))
    np.testing.assert_allclose(expected, wide.astype(np.longdouble).mean(axis=1), rtol=1e-13)
    fortran = np.asfortranarray(wide)
    for source in (ArrayBlocks(wide, 1), ArrayBlocks(fortran, 63), ArrayBlocks(fortran, 1)):
        np.testing.assert_array_equal(row_means(source), expected)


def test_second_moments_of_float32_rows_are_summed_in_float64():
    rows = (1e3 + np.random.default_rng(0).normal(size=(10_001, 3))).astype(np.float32)
    double = rows.astype(np.float64)
    np.testing.assert_allclose(second_moments(rows), double.T @ double / len(rows), rtol=1e-11)
