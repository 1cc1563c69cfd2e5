"""Stored matrices as the row blocks that linear algebra reads."""

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.successor.store import create_or_resume
from rlreps.successor.store.blocks import HalfBlocks, StoreBlocks, WatchedBlocks

SHAPE, BLOCK_ROWS = (11, 6), 4


def values(seed):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def make(path, matrix):
    store = create_or_resume(path, shape=SHAPE, block_rows=BLOCK_ROWS, settings={}, provenance={})
    for index in range(store.num_blocks):
        store.write_block(index, matrix[slice(*store.block_range(index))])
    return store


@pytest.fixture
def halves(tmp_path):
    first, second = values(1), values(2)
    mean, difference = (first + second) / 2, (first - second) / 2
    return (
        StoreBlocks(make(tmp_path / "mean", mean)),
        StoreBlocks(make(tmp_path / "difference", difference)),
    )


def joined(source):
    """All rows, each put where its block says that it belongs."""
    found = np.full(source.shape, np.nan, source.dtype)
    for start, rows in source.blocks():
        found[start : start + len(rows)] = rows
    return found


def test_blocks_hold_every_row_in_its_place_and_can_be_read_again(halves):
    source = halves[0]
    assert (source.shape, source.dtype) == (SHAPE, np.float32)
    assert [start for start, _ in source.blocks()] == [0, 4, 8]
    for _ in range(2):
        assert joined(source).tobytes() == source.store.read().tobytes()


@pytest.mark.parametrize(("sign", "seed"), [(1, 1), (-1, 2)])
def test_mean_and_difference_give_back_the_halves(halves, sign, seed):
    source = HalfBlocks(*halves, sign)
    assert (source.shape, source.dtype) == (SHAPE, np.float32)
    found = joined(source)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, values(seed), atol=1e-6)


def test_a_damaged_or_missing_block_of_either_is_an_input_error(halves):
    file = halves[1].store.block_file(1)
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)
    for sign in (1, -1):
        with pytest.raises(InputError, match=r"difference: expected a readable block 1 \(rows 4-7"):
            joined(HalfBlocks(*halves, sign))
    file.unlink()
    with pytest.raises(InputError, match="expected all 3 blocks, got 1 missing: 1"):
        joined(HalfBlocks(*halves, 1))


def test_watched_blocks_are_the_same_and_count_rows_once_they_were_used(halves):
    seen = []
    watched = WatchedBlocks(halves[0], seen.append)
    assert (watched.shape, watched.dtype) == (SHAPE, np.float32)
    for (start, rows), (expected_start, expected) in zip(
        watched.blocks(), halves[0].blocks(), strict=True
    ):
        assert start == expected_start == sum(seen)
        np.testing.assert_array_equal(rows, expected)
    assert seen == [4, 4, 3]
