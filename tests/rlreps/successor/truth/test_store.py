"""A stored matrix: bits, resumption, damage, half differences, row blocks and the cache."""

import json
import re

import numpy as np
import pytest
import zarr

from rlreps.errors import InputError
from rlreps.successor.measure.rows import RowEstimates
from rlreps.successor.truth import store as stores
from rlreps.successor.truth.store.blocks import HalfBlocks, StoreBlocks
from rlreps.successor.truth.store.estimates import HALF_DIFFERENCE, create_estimates, open_estimates
from rlreps.successor.truth.stored_subspace import load_subspace, save_subspace

SHAPE = (23, 7)
BLOCK_ROWS = 5  # four whole blocks and one of three rows
SETTINGS = {"arena": {"name": "sutton", "bins": 4}, "discount": 0.99, "rollouts": 1000, "seed": 0}
PROVENANCE = {"rlreps": "0.1.0", "device": "cpu"}
ROW_SUM = 50.0


def matrix(shape=SHAPE, seed=0):
    """Positive values whose rows sum to ROW_SUM up to rounding."""
    values = np.random.default_rng(seed).random(shape)
    return (values * ROW_SUM / values.sum(axis=1, keepdims=True)).astype(np.float32)


def create(path, settings=SETTINGS, shape=SHAPE, block_rows=BLOCK_ROWS, provenance=PROVENANCE):
    return stores.create_or_resume(
        path, shape=shape, block_rows=block_rows, settings=settings, provenance=provenance
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


def test_every_way_of_reading_returns_the_bits_that_were_written(full_store):
    save_subspace(full_store, {"basis": np.eye(3)}, {"d": 3})
    values, array = matrix(), zarr.open(full_store.path, mode="r")
    indices, blocks = zip(*full_store.iterate_blocks(), strict=True)
    for read in (full_store.read(), np.concatenate(blocks), array[:]):
        np.testing.assert_array_equal(read, values, strict=True)
    np.testing.assert_array_equal(full_store.read_block(4), values[20:23])
    assert indices == (0, 1, 2, 3, 4)
    assert (array.shape, array.chunks) == (SHAPE, (BLOCK_ROWS, SHAPE[1]))
    assert array.metadata.dimension_names == ("state", "task")
    assert array.attrs["rlreps"]["settings"] == SETTINGS
    assert array.attrs["rlreps"]["provenance"] == PROVENANCE
    assert array.nchunks_initialized == array.nchunks == 5


def test_a_block_never_written_reads_as_nan_and_is_named_where_all_are_needed(tmp_path):
    store = fill(create(tmp_path / "psi"), matrix(), [0, 2])
    assert np.isnan(store.read_block(1)).all()
    assert np.isnan(zarr.open(store.path, mode="r")[20:]).all()
    assert store.missing_blocks() == [1, 3, 4]
    for call in (store.read, store.content_key, lambda: next(store.iterate_blocks())):
        with pytest.raises(InputError, match="expected all 5 blocks, got 3 missing: 1, 3-4"):
            call()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((5, 6), np.float32), r"shape \(5, 7\), got float32 of shape \(5, 6\)"),
        (np.zeros((5, 7), np.float64), r"expected float32 rows .* got float64"),
        (np.full((5, 7), np.nan, np.float32), "expected finite values, got 35 NaN or infinite"),
    ],
)
def test_rows_that_do_not_belong_are_refused_and_leave_no_trace(
    full_store, rows, message, files_below
):
    before = files_below(full_store.path)
    with pytest.raises(InputError, match=r"block 1 \(rows 5-9, file c/1/0\).*" + message):
        full_store.write_block(1, rows)
    assert files_below(full_store.path) == before


def test_what_a_killed_writer_leaves_is_absorbed_by_the_resume(full_store, files_below):
    before = files_below(full_store.path)
    chunk = full_store.block_file(4)
    half_written = chunk.with_name("0.__lock")
    half_written.write_bytes(b"\xff" * (chunk.stat().st_size - 3))
    chunk.unlink()
    resumed = create(full_store.path)
    assert resumed.missing_blocks() == [4]
    np.testing.assert_array_equal(zarr.open(full_store.path, mode="r")[:20], matrix()[:20])
    fill(resumed, matrix(), [4])
    assert files_below(full_store.path) == before


def test_other_settings_are_refused_by_name_with_both_values_and_nothing_is_touched(
    full_store, files_below
):
    before = files_below(full_store.path)
    settings = {**SETTINGS, "arena": {"name": "sutton", "bins": 5}, "centring": 1}
    del settings["seed"]
    for other, message in (
        (
            {"settings": settings},
            "expected arena.bins=4, got 5; expected centring=None, got 1; expected seed=0, "
            "got None",
        ),
        ({"block_rows": 4}, "expected block_rows=5, got 4"),
        ({"shape": (23, 8)}, "expected shape=(23, 7), got (23, 8)"),
    ):
        with pytest.raises(InputError, match=f"other settings: {re.escape(message)}$"):
            create(full_store.path, **other)
    assert files_below(full_store.path) == before


def test_a_path_that_holds_something_else_is_refused_and_kept(tmp_path, files_below):
    for name in ("thesis", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("text")
    before = files_below(tmp_path)
    for path, message in (
        ("thesis", r"expected a new or empty folder .*chapter\.txt"),
        ("thesis/chapter.txt", "expected a folder to write in, got the file"),
        ("thesis/chapter.txt/below", "expected a folder to write in, got the file"),
    ):
        with pytest.raises(InputError, match=message):
            create(tmp_path / path)
    assert files_below(tmp_path) == before
    assert create(tmp_path / "empty").missing_blocks() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("position", [0, 139, 143])
def test_a_flipped_byte_anywhere_in_a_chunk_is_found_and_named(full_store, position):
    flip_byte(full_store.block_file(2), position)  # 140 bytes of values, 4 of checksum
    report = stores.verify(full_store)
    assert [(problem.index, problem.kind) for problem in report] == [(2, "corrupt")]
    assert "block 2 (rows 10-14, file c/2/0): corrupt" in report[0].text
    for call in (full_store.read, lambda: full_store.read_block(2)):
        with pytest.raises(InputError, match=r"expected a readable block 2 \(rows 10-14"):
            call()
    np.testing.assert_array_equal(full_store.read_block(1), matrix()[5:10])


def test_verification_reports_every_problem_in_the_order_of_blocks(full_store):
    array = zarr.open(full_store.path, mode="r+")
    array[7, 2] = np.nan
    array[8, 2] = np.inf
    array[9, 6] += 2.0
    array[21, 0] += 0.5
    full_store.block_file(0).unlink()
    flip_byte(full_store.block_file(3), 0)
    expected = [
        (0, "missing", r"block 0 \(rows 0-4, file c/0/0\): missing$"),
        (1, "not finite", "2 values are NaN or infinite"),
        (1, "deviating", "in row 9"),
        (3, "corrupt", "corrupt"),
        (4, "deviating", "expected rows that sum to 50 within 0.0005, got 50.5.* in row 21"),
    ]
    found = stores.verify(full_store, row_sum=ROW_SUM)
    for problem, (index, kind, text) in zip(found, expected, strict=True):
        assert (problem.index, problem.kind) == (index, kind)
        assert re.search(text, problem.text)


ARRAYS = {
    "basis": np.linspace(-1, 1, 69, dtype=np.float32).reshape(23, 3),
    "spectrum": np.array([3.0, 2.0, 1.0]),
    "allow_pickle": np.array(7),
    "file": np.zeros((0, 2), np.int64),
}


SUBSPACE_SETTINGS = {"d": 3, "centring": "columns", "powers": (2, 10)}


def cache_file(store):
    (file,) = (store.path / "subspace").iterdir()
    return file


def test_a_cached_subspace_comes_back_bit_for_bit_under_equal_settings(full_store):
    assert load_subspace(full_store, SUBSPACE_SETTINGS) is None
    save_subspace(full_store, ARRAYS, SUBSPACE_SETTINGS)
    reopened = stores.open_store(full_store.path)
    reordered = dict(reversed(SUBSPACE_SETTINGS.items())) | {"powers": [2, 10]}
    loaded = load_subspace(reopened, reordered)
    assert loaded.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)
    with np.load(cache_file(full_store), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["basis"], ARRAYS["basis"])
        record = json.loads(archive["rlreps.json"])
    assert record["content_key"] == full_store.content_key()
    # Arrays of other bytes are not returned, and are replaced by the next.
    fill(full_store, matrix(seed=1), [3])
    assert load_subspace(full_store, SUBSPACE_SETTINGS) is None
    save_subspace(full_store, {"basis": np.eye(3)}, SUBSPACE_SETTINGS)
    assert load_subspace(full_store, SUBSPACE_SETTINGS).keys() == {"basis"}
    cache_file(full_store)  # one file still


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


def test_the_half_difference_of_a_block_is_on_disk_before_the_block(tmp_path):
    pair = create_pair(tmp_path / "psi")
    given = block(pair, 1)
    with pytest.raises(InputError, match="expected float32 rows"):
        pair.write_block(1, given._replace(rows=given.rows[:1]))
    assert pair.half_difference.missing_blocks() == [0, 2]
    assert pair.missing_blocks() == [0, 1, 2]


def test_verification_checks_both_and_rows_of_half_differences_sum_to_nothing(pair):
    assert pair.verify(PAIR_SUM) == []
    values = estimates()
    values.rows[4, 0] += 0.01  # block 1
    values.half_difference[0, 2] += 0.01  # block 0
    for index in range(3):
        pair.write_block(index, block(pair, index, values))
    difference, matrix = pair.verify(PAIR_SUM)
    assert (difference.index, matrix.index) == (0, 1)
    assert difference.text.startswith(f"{pair.half_difference.path}: block 0")
    assert "expected rows that sum to 0 within 0.0001, got 0.0" in difference.text
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
