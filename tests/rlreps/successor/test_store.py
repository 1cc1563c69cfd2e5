"""A stored matrix: bits, damage, half differences and row blocks."""

import numpy as np
import pytest
import zarr

from rlreps.errors import InputError
from rlreps.successor import store as stores
from rlreps.successor.rows import RowEstimates
from rlreps.successor.store.blocks import HalfBlocks, StoreBlocks
from rlreps.successor.store.estimates import HALF_DIFFERENCE, create_estimates, open_estimates

SHAPE = (23, 7)
BLOCK_ROWS = 5  # four whole blocks and one of three rows
SETTINGS = {"arena": {"name": "sutton", "bins": 4}, "discount": 0.99, "rollouts": 1000, "seed": 0}
ROW_SUM = 50.0


def matrix():
    """Positive values whose rows sum to ROW_SUM up to rounding."""
    values = np.random.default_rng(0).random(SHAPE)
    return (values * ROW_SUM / values.sum(axis=1, keepdims=True)).astype(np.float32)


def create(path):
    return stores.create_or_resume(
        path, shape=SHAPE, block_rows=BLOCK_ROWS, settings=SETTINGS, provenance={"device": "cpu"}
    )


def fill(store, values, indices=None):
    for index in range(store.num_blocks) if indices is None else indices:
        store.write_block(index, values[slice(*store.block_range(index))])
    return store


@pytest.fixture
def full_store(tmp_path):
    return fill(create(tmp_path / "psi"), matrix())


def flip_byte(file, position):
    content = bytearray(file.read_bytes())
    content[position] ^= 0x40
    file.write_bytes(content)


def test_the_bits_that_were_written_come_back_to_zarr_too(full_store):
    values, blocks = matrix(), list(full_store.iterate_blocks())
    assert [index for index, _ in blocks] == [0, 1, 2, 3, 4]
    stores.save_subspace(full_store, {"basis": np.eye(3)}, {"d": 3})
    array = zarr.open(full_store.path, mode="r")
    for read in (full_store.read(), np.concatenate([rows for _, rows in blocks]), array[:]):
        np.testing.assert_array_equal(read, values, strict=True)
    np.testing.assert_array_equal(full_store.read_block(4), values[20:23])
    assert array.metadata.dimension_names == ("state", "task")
    assert array.attrs["rlreps"]["settings"] == SETTINGS


def test_a_block_never_written_reads_as_nan_and_is_named_where_all_are_needed(tmp_path):
    store = fill(create(tmp_path / "psi"), matrix(), [0, 2])
    assert np.isnan(store.read_block(1)).all()
    assert np.isnan(zarr.open(store.path, mode="r")[20:]).all()
    assert store.missing_blocks() == [1, 3, 4]
    with pytest.raises(InputError, match="expected all 5 blocks, got 3 missing: 1, 3-4"):
        store.read()


def test_rows_that_do_not_belong_are_refused_and_leave_no_trace(full_store, files_below):
    before = files_below(full_store.path)
    for rows, message in (
        (np.zeros((5, 6), np.float32), r"shape \(5, 7\), got float32 of shape \(5, 6\)"),
        (np.full((5, 7), np.nan, np.float32), "expected finite values, got 35 NaN or infinite"),
    ):
        with pytest.raises(InputError, match=r"block 1 \(rows 5-9, file c/1/0\).*" + message):
            full_store.write_block(1, rows)
    assert files_below(full_store.path) == before


@pytest.mark.parametrize("position", [0, 139, 143])
def test_a_flipped_byte_anywhere_in_a_chunk_is_found_and_named(full_store, position):
    flip_byte(full_store.block_file(2), position)  # 140 bytes of values, 4 of checksum
    report = stores.verify(full_store)
    assert [(problem.index, problem.kind) for problem in report] == [(2, "corrupt")]
    assert "block 2 (rows 10-14, file c/2/0): corrupt" in report[0].text
    with pytest.raises(InputError, match=r"expected a readable block 2 \(rows 10-14"):
        full_store.read()
    np.testing.assert_array_equal(full_store.read_block(1), matrix()[5:10])


def test_verification_reports_every_problem_in_the_order_of_blocks(full_store):
    array = zarr.open(full_store.path, mode="r+")
    array[7, 2] = np.nan
    array[8, 2] = np.inf
    array[9, 6] += 2.0
    array[21, 0] += 0.5
    full_store.block_file(0).unlink()
    flip_byte(full_store.block_file(3), 0)
    report = stores.verify(full_store, row_sum=ROW_SUM)
    assert [(problem.index, problem.kind) for problem in report] == [
        (0, "missing"),
        (1, "not finite"),
        (1, "deviating"),
        (3, "corrupt"),
        (4, "deviating"),
    ]
    assert "expected rows that sum to 50 within 0.0005, got 50.5" in report[4].text
    assert "in row 21" in report[4].text


PAIR_SUM = 10.0


def estimates():
    """Rows that sum to PAIR_SUM and half differences that sum to nothing."""
    rng = np.random.default_rng(0)
    rows, noise = rng.random((7, 5)), rng.normal(size=(7, 5))
    rows *= PAIR_SUM / rows.sum(axis=1, keepdims=True)
    noise -= noise.mean(axis=1, keepdims=True)
    return RowEstimates(rows.astype(np.float32), noise.astype(np.float32))


def block(pair, index, values=None):
    part = slice(*pair.matrix.block_range(index))
    return RowEstimates(*(value[part] for value in values or estimates()))


def create_pair(path):
    settings = {"quantity": "successor measure", "row_sum": PAIR_SUM}
    return create_estimates(
        path, shape=(7, 5), block_rows=3, settings=settings, provenance={}, sampled=True
    )


@pytest.fixture
def pair(tmp_path):
    pair = create_pair(tmp_path / "psi")
    for index in range(3):
        pair.write_block(index, block(pair, index))
    return pair


def test_verification_checks_both_and_rows_of_half_differences_sum_to_nothing(pair):
    assert pair.verify(PAIR_SUM) == []
    values = estimates()
    values.rows[4, 0] += 0.01  # block 1
    values.half_difference[0, 2] += 0.01  # block 0
    for index in range(3):
        pair.write_block(index, block(pair, index, values))
    difference, matrix = pair.verify(PAIR_SUM)
    assert (difference.index, matrix.index) == (0, 1)
    assert pair.verify(None) == []


def test_row_blocks_hold_every_row_in_its_place_and_give_back_the_halves(pair):
    pair = open_estimates(pair.matrix.path)
    assert pair.half_difference.path == pair.matrix.path / HALF_DIFFERENCE
    mean, difference = StoreBlocks(pair.matrix), StoreBlocks(pair.half_difference)
    rows, noise = estimates()
    halves = [(HalfBlocks(mean, difference, sign), rows + sign * noise) for sign in (1, -1)]
    for source, expected in ((mean, rows), (difference, noise), *halves):
        assert (source.shape, source.dtype) == ((7, 5), np.float32)
        for _ in range(2):
            found = dict(source.blocks())
            assert list(found) == [0, 3, 6]
            np.testing.assert_array_equal(np.concatenate(list(found.values())), expected)
