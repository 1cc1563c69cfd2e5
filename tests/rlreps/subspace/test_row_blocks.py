import itertools
import tracemalloc

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.subspace import ArrayBlocks, CentredBlocks, centre_columns_in_place, column_means
from rlreps.subspace.row_blocks import RowBlocks, regrouped


class _Scripted:
    """Row blocks that yield whatever they are told to."""

    def __init__(self, shape, *blocks):
        self.shape, self.dtype, self._blocks = shape, np.dtype(np.float32), blocks

    def blocks(self):
        return iter(self._blocks)


def _offset_matrix(rows: int, columns: int, dtype=np.float32) -> np.ndarray:
    rng = np.random.default_rng(0)
    offsets = 1e3 * rng.standard_normal(columns)
    return (rng.standard_normal((rows, columns)) + offsets).astype(dtype)


def _stacked(source: RowBlocks) -> np.ndarray:
    return np.concatenate([rows.copy() for _, rows in source.blocks()])


def _uneven(matrix: np.ndarray) -> _Scripted:
    cuts = [0, 1, 1, 40, 170, 171, len(matrix)]
    pairs = itertools.pairwise(cuts)
    return _Scripted(matrix.shape, *((start, matrix[start:stop]) for start, stop in pairs))


def test_an_array_as_row_blocks_yields_its_rows_in_order_any_number_of_times():
    matrix = _offset_matrix(10, 3)
    source = ArrayBlocks(matrix, 4)
    assert isinstance(source, RowBlocks)
    assert (source.shape, source.dtype) == ((10, 3), np.float32)
    for _ in range(2):
        assert [start for start, _ in source.blocks()] == [0, 4, 8]
        np.testing.assert_array_equal(_stacked(source), matrix)


def test_arrays_are_not_taken_for_row_blocks():
    assert not isinstance(np.ones((2, 2)), RowBlocks)


@pytest.mark.parametrize("group_rows", [1, 7, 64, 100, 250, 300, 1000])
def test_regrouped_rows_are_the_rows_in_groups_of_the_size_asked_for(group_rows):
    matrix = _offset_matrix(300, 2)
    for source in (ArrayBlocks(matrix, 1), ArrayBlocks(matrix, 100), _uneven(matrix)):
        groups = [(start, rows.copy()) for start, rows in regrouped(source, group_rows)]
        assert [start for start, _ in groups] == list(range(0, 300, group_rows))
        assert all(len(rows) == group_rows for _, rows in groups[:-1])
        np.testing.assert_array_equal(np.concatenate([rows for _, rows in groups]), matrix)


def test_a_group_within_a_block_is_not_copied():
    matrix = _offset_matrix(12, 2)
    groups = regrouped(ArrayBlocks(matrix, 6), 3)
    assert all(np.shares_memory(rows, matrix) for _, rows in groups)


def test_the_means_do_not_depend_on_the_blocks_and_round_the_exact_means():
    matrix = _offset_matrix(300, 5)
    expected = column_means(ArrayBlocks(matrix))
    np.testing.assert_allclose(expected, matrix.astype(np.longdouble).mean(axis=0), rtol=1e-14)
    for source in (ArrayBlocks(matrix, 1), ArrayBlocks(matrix, 63), _uneven(matrix)):
        np.testing.assert_array_equal(column_means(source), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 6])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block_rows", [1, 64, 100, 1000])
def test_centred_blocks_are_the_centred_array_bit_for_bit(block_rows, order, columns, dtype):
    matrix = _offset_matrix(301, columns, dtype)
    source = ArrayBlocks(matrix, block_rows)
    streamed = _stacked(CentredBlocks(source, column_means(source)))
    in_memory = np.array(matrix, order=order)
    centre_columns_in_place(in_memory)
    assert streamed.dtype == dtype
    np.testing.assert_array_equal(streamed, in_memory)


def test_centred_blocks_leave_their_source_as_it_was():
    matrix = _offset_matrix(20, 3)
    before = matrix.copy()
    source = ArrayBlocks(matrix, 6)
    _stacked(CentredBlocks(source, column_means(source)))
    np.testing.assert_array_equal(matrix, before)


def test_means_and_centring_hold_a_few_blocks_at_a_time():
    matrix = _offset_matrix(4000, 500)
    source = ArrayBlocks(matrix, 50)
    tracemalloc.start()
    for _ in CentredBlocks(source, column_means(source)).blocks():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < matrix.nbytes / 15


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([(0, np.ones((2, 3), np.float32))], "expected blocks of 4 rows in all, got 2"),
        ([(1, np.ones((2, 3), np.float32))], "expected a float32 block from row 0 .* from row 1"),
        ([(0, np.ones((5, 3), np.float32))], r"got float32 of shape \(5, 3\) from row 0"),
        ([(0, np.ones((2, 2), np.float32))], r"got float32 of shape \(2, 2\)"),
        ([(0, np.ones((2, 3), np.float64))], "got float64"),
        ([(0, np.ones((4, 3), np.float32))] * 2, "block from row 4 .* from row 0"),
    ],
    ids=["too few", "gap", "too many", "columns", "dtype", "twice"],
)
def test_blocks_that_do_not_make_up_the_matrix_are_refused(blocks, message):
    with pytest.raises(InputError, match=message):
        column_means(_Scripted((4, 3), *blocks))


def test_arrays_and_means_of_the_wrong_shape_are_refused():
    with pytest.raises(InputError, match="expected a matrix"):
        ArrayBlocks(np.ones(3))
    with pytest.raises(InputError, match="expected block_rows >= 1, got 0"):
        ArrayBlocks(np.ones((3, 2)), 0)
    with pytest.raises(InputError, match=r"expected means of shape \(2,\), got \(3,\)"):
        CentredBlocks(ArrayBlocks(np.ones((3, 2))), np.ones(3))
    with pytest.raises(InputError, match="at least one row"):
        column_means(ArrayBlocks(np.ones((0, 2))))
