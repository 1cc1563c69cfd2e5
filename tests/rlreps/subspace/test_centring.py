import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import centre_columns, centre_columns_in_place


def _offset_matrix(rows: int, columns: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    offsets = 1e3 * rng.standard_normal(columns)
    return (rng.standard_normal((rows, columns)) + offsets).astype(np.float32)


def _exactly_centred(matrix: np.ndarray) -> np.ndarray:
    wide = matrix.astype(np.float64)
    return wide - wide.mean(axis=0)


def test_centring_agrees_with_float64_even_where_the_mean_dwarfs_the_spread():
    matrix = _offset_matrix(5000, 7)
    centred = np.asarray(centre_columns(jnp.asarray(matrix)))
    # Half a unit in the last place of an offset of a few thousand is 1.2e-4.
    np.testing.assert_allclose(centred, _exactly_centred(matrix), atol=3e-4)
    assert np.max(np.abs(centred.mean(axis=0, dtype=np.float64))) < 1e-6


def test_centring_twice_changes_nothing():
    centred = centre_columns(jnp.asarray(_offset_matrix(300, 5)))
    np.testing.assert_allclose(centre_columns(centred), centred, atol=1e-6)


def test_centring_under_jit_equals_eager():
    matrix = jnp.asarray(_offset_matrix(100, 5))
    with jax.disable_jit():
        eager = centre_columns(matrix)
    np.testing.assert_allclose(jax.jit(centre_columns)(matrix), eager, atol=1e-3)


def test_centring_keeps_the_dtype():
    assert centre_columns(jnp.ones((3, 2), jnp.float32)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert centre_columns(jnp.ones((3, 2), jnp.float64)).dtype == jnp.float64


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block_rows", [1, 64, 301, 1000])
def test_in_place_centring_rounds_the_exact_result_once(order, block_rows):
    matrix = np.array(_offset_matrix(301, 6), order=order)
    expected = _exactly_centred(matrix).astype(np.float32)
    assert centre_columns_in_place(matrix, block_rows=block_rows) is None
    np.testing.assert_allclose(matrix, expected, rtol=1e-6, atol=1e-9)


def test_in_place_centring_keeps_float64_precision():
    matrix = np.random.default_rng(1).standard_normal((500, 4)) + 1e6
    expected = matrix - np.mean(matrix, axis=0)
    centre_columns_in_place(matrix)
    assert matrix.dtype == np.float64
    np.testing.assert_allclose(matrix, expected, atol=1e-8)


def test_in_place_centring_needs_a_fraction_of_the_matrix_in_memory():
    matrix = _offset_matrix(4000, 1000)
    tracemalloc.start()
    centre_columns_in_place(matrix)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < matrix.nbytes / 20


def test_in_place_centring_writes_through_to_a_memory_map(tmp_path):
    path = tmp_path / "matrix.f32"
    original = _offset_matrix(50, 3)
    original.tofile(path)
    mapped = np.memmap(path, dtype=np.float32, mode="r+", shape=(50, 3))
    centre_columns_in_place(mapped)
    mapped.flush()
    stored = np.fromfile(path, dtype=np.float32).reshape(50, 3)
    np.testing.assert_allclose(stored, _exactly_centred(original), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "matrix",
    [np.zeros(3, np.float32), np.zeros((2, 2), np.int32), np.zeros((0, 2), np.float32)],
    ids=["vector", "integers", "no rows"],
)
def test_centring_rejects_what_is_no_floating_point_matrix(matrix):
    with pytest.raises(InputError, match="expected a floating-point matrix"):
        centre_columns(jnp.asarray(matrix))
    with pytest.raises(InputError, match="expected a floating-point matrix"):
        centre_columns_in_place(matrix)


def test_in_place_centring_rejects_arrays_it_cannot_write_to():
    frozen = np.zeros((2, 2), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="got a read-only array"):
        centre_columns_in_place(frozen)
    with pytest.raises(InputError, match="expected a writeable NumPy array"):
        centre_columns_in_place(jnp.zeros((2, 2)))
    with pytest.raises(InputError, match="expected block_rows >= 1, got 0"):
        centre_columns_in_place(np.zeros((2, 2), np.float32), block_rows=0)
