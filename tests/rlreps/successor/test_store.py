import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from rlreps.errors import InputError
from rlreps.successor import store as stores

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


def hashes(folder):
    """Content of every file below a folder, by relative name."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def flip_byte(file, position):
    content = bytearray(file.read_bytes())
    content[position] ^= 0x40
    file.write_bytes(content)


def test_every_way_of_reading_returns_the_bits_that_were_written(full_store):
    values = matrix()
    values_by_block = np.concatenate([rows for _, rows in full_store.iterate_blocks()])
    rows_by_range = np.concatenate([full_store.read_rows(0, 3), full_store.read_rows(3, 23)])
    one_by_one = np.concatenate([full_store.read_rows(row, row + 1) for row in range(23)])
    for read in (full_store.read(), values_by_block, rows_by_range, one_by_one):
        assert read.dtype == np.float32
        assert read.tobytes() == values.tobytes()
    np.testing.assert_array_equal(full_store.read_block(4), values[20:23])
    assert [index for index, _ in full_store.iterate_blocks()] == [0, 1, 2, 3, 4]


def test_blocks_partition_the_rows_and_an_oversized_block_holds_them_all(full_store, tmp_path):
    ranges = [full_store.block_range(index) for index in range(full_store.num_blocks)]
    assert ranges == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 23)]
    with pytest.raises(IndexError, match=r"expected a block index in \[0, 5\), got 5"):
        full_store.block_range(5)
    with pytest.raises(IndexError, match=r"\[0, 23\), got \[20, 24\)"):
        full_store.read_rows(20, 24)
    oversized = fill(create(tmp_path / "oversized", block_rows=100), matrix())
    assert oversized.num_blocks == 1
    np.testing.assert_array_equal(oversized.read(), matrix())


def test_extreme_finite_values_survive_bit_for_bit(tmp_path):
    info = np.finfo(np.float32)
    values = np.array([[-0.0, info.max], [info.smallest_subnormal, info.min]], np.float32)
    store = fill(create(tmp_path / "psi", shape=(2, 2), block_rows=1), values)
    assert store.read().tobytes() == values.tobytes()


def test_zarr_reads_the_same_values_settings_and_dimensions(full_store):
    stores.save_subspace(full_store, {"basis": np.eye(3)}, {"d": 3})
    array = zarr.open(full_store.path, mode="r")
    assert array.shape == SHAPE
    assert array.chunks == (BLOCK_ROWS, SHAPE[1])
    assert array.metadata.dimension_names == ("state", "task")
    assert array[:].tobytes() == matrix().tobytes()
    assert array.attrs["rlreps"]["settings"] == SETTINGS
    assert array.attrs["rlreps"]["provenance"] == PROVENANCE
    assert array.nchunks_initialized == array.nchunks == 5


def test_a_store_stays_open_to_notes_that_zarr_adds_to_its_attributes(full_store):
    zarr.open(full_store.path, mode="r+").attrs["note"] = "checked by hand"
    reopened = stores.open_store(full_store.path)
    assert dict(reopened.settings) == SETTINGS
    np.testing.assert_array_equal(reopened.read(), matrix())


def test_a_block_never_written_reads_as_nan_and_is_named_where_all_are_needed(tmp_path):
    store = fill(create(tmp_path / "psi"), matrix(), [0, 2])
    assert np.isnan(store.read_block(1)).all()
    assert np.isnan(zarr.open(store.path, mode="r")[20:]).all()
    np.testing.assert_array_equal(store.read_rows(3, 7)[:2], matrix()[3:5])
    assert store.missing_blocks() == [1, 3, 4]
    needing_all = (
        store.read,
        store.digest,
        store.content_key,
        lambda: next(store.iterate_blocks()),
    )
    for call in needing_all:
        with pytest.raises(InputError, match="expected all 5 blocks, got 3 missing: 1, 3-4"):
            call()


def test_the_digest_is_that_of_the_raw_rows_for_any_block_size(full_store, tmp_path):
    expected = hashlib.sha256(matrix().tobytes()).hexdigest()
    other = fill(create(tmp_path / "other", block_rows=4), matrix())
    assert full_store.digest() == other.digest() == expected


def test_the_content_key_follows_the_values_and_nothing_else(full_store, tmp_path):
    same = fill(create(tmp_path / "same", settings={}), matrix())
    assert same.content_key() == full_store.content_key()
    changed = matrix()
    changed[22, 6] = np.nextafter(changed[22, 6], np.float32(0))
    fill(same, changed, [4])
    assert same.content_key() != full_store.content_key()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((5, 6), np.float32), r"shape \(5, 7\), got float32 of shape \(5, 6\)"),
        (np.zeros((3, 7), np.float32), r"shape \(5, 7\), got float32 of shape \(3, 7\)"),
        (np.zeros((5, 7), np.float64), r"expected float32 rows .* got float64"),
        (np.full((5, 7), np.nan, np.float32), "expected finite values, got 35 NaN or infinite"),
        (np.full((5, 7), np.inf, np.float32), "expected finite values"),
    ],
)
def test_rows_that_do_not_belong_are_refused_and_leave_no_trace(full_store, rows, message):
    before = hashes(full_store.path)
    with pytest.raises(InputError, match=r"block 1 \(rows 5-9, file c/1/0\).*" + message):
        full_store.write_block(1, rows)
    assert hashes(full_store.path) == before


def test_a_resume_finds_just_the_deleted_blocks_and_ends_with_the_same_bytes(full_store):
    before = hashes(full_store.path)
    for index in (1, 4):
        full_store.block_file(index).unlink()
    resumed = create(full_store.path, provenance={"rlreps": "9.9", "device": "gpu"})
    assert resumed.missing_blocks() == [1, 4]
    fill(resumed, matrix(), resumed.missing_blocks())
    assert hashes(full_store.path) == before
    assert dict(resumed.provenance) == PROVENANCE


def test_what_a_killed_writer_leaves_is_absorbed_by_the_resume(full_store):
    before = hashes(full_store.path)
    chunk = full_store.block_file(4)
    half_written = chunk.with_name("0.__lock")
    half_written.write_bytes(b"\xff" * (chunk.stat().st_size - 3))
    chunk.unlink()
    resumed = create(full_store.path)
    assert resumed.missing_blocks() == [4]
    np.testing.assert_array_equal(zarr.open(full_store.path, mode="r")[:20], matrix()[:20])
    fill(resumed, matrix(), [4])
    assert hashes(full_store.path) == before


def test_a_creation_that_was_killed_starts_over(tmp_path):
    folder = tmp_path / "psi"
    folder.mkdir()
    (folder / "zarr.json.__lock").write_text("{" * 10_000)
    fill(create(folder), matrix())
    assert stores.verify(stores.open_store(folder)).ok
    assert not list(folder.rglob("*.__lock"))


WRITER = """
import sys
import numpy as np
from rlreps.successor import store as stores

store = stores.create_or_resume(
    sys.argv[1], shape=(2999, 500), block_rows=10, settings={"seed": 1}, provenance={}
)
for count, index in enumerate(store.missing_blocks()):
    start, stop = store.block_range(index)
    rows = np.random.default_rng(index).random((stop - start, 500), dtype=np.float32)
    store.write_block(index, rows)
    print(index, flush=True)
    if count + 1 == int(sys.argv[2]):
        sys.stdin.read()
"""


def write_in_subprocess(path, kill_after=None):
    """Runs the writer, killed without warning once it has reported a number of blocks.

    It stands still a few blocks later, so that a slow parent kills it before its end all the same.
    """
    pause = 0 if kill_after is None else kill_after + 10
    command = [sys.executable, "-c", WRITER, str(path), str(pause)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        written = 0
        for _ in process.stdout:
            written += 1
            if written == kill_after:
                os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == (0 if kill_after is None else -signal.SIGKILL)
    return written


def test_kill_9_and_the_same_command_again_end_with_the_bytes_of_an_unbroken_run(tmp_path):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    assert write_in_subprocess(unbroken) == 300
    write_in_subprocess(broken, kill_after=40)
    survived = stores.open_store(broken)
    missing = survived.missing_blocks()
    assert 250 <= len(missing) <= 260
    assert len(stores.verify(survived).problems()) == len(missing)  # nothing half written
    write_in_subprocess(broken, kill_after=30)
    remaining = len(survived.missing_blocks())
    assert 210 <= remaining <= 230
    assert write_in_subprocess(broken) == remaining
    assert hashes(broken) == hashes(unbroken)


def test_other_settings_are_refused_by_name_with_both_values_and_nothing_is_touched(full_store):
    before = hashes(full_store.path)
    settings = {**SETTINGS, "arena": {"name": "sutton", "bins": 5}, "rollouts": 500, "centring": 1}
    del settings["seed"]
    with pytest.raises(InputError) as caught:
        create(full_store.path, settings=settings)
    for difference in (
        "expected arena.bins=4 as stored, got arena.bins=5",
        "expected rollouts=1000 as stored, got rollouts=500",
        "expected no centring as stored, got centring=1",
        "expected seed=0 as stored, got no seed",
    ):
        assert difference in str(caught.value)
    assert "discount" not in str(caught.value)
    assert "arena.name" not in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="expected block_rows=5 as stored, got block_rows=4"):
        create(full_store.path, block_rows=4)
    with pytest.raises(InputError, match=r"shape=\(23, 7\) as stored, got shape=\(23, 8\)"):
        create(full_store.path, shape=(23, 8))
    assert hashes(full_store.path) == before


def test_settings_compare_as_they_are_stored(tmp_path):
    create(tmp_path / "psi", settings={"puddles": ((0.1, 0.75), (0.45, 0.75)), "note": None})
    again = create(
        tmp_path / "psi", settings={"note": None, "puddles": [(0.1, 0.75), [0.45, 0.75]]}
    )
    assert again.settings["puddles"] == [[0.1, 0.75], [0.45, 0.75]]
    with pytest.raises(InputError, match="expected note=None as stored, got no note"):
        create(tmp_path / "psi", settings={"puddles": [[0.1, 0.75], [0.45, 0.75]]})


def test_what_json_cannot_hold_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(TypeError):
        create(tmp_path / "psi", settings={"key": object()})
    with pytest.raises(ValueError, match="JSON compliant"):
        create(tmp_path / "psi", provenance={"seconds": float("nan")})
    with pytest.raises(InputError, match="expected positive shape and block_rows"):
        create(tmp_path / "psi", block_rows=0)
    assert not (tmp_path / "psi").exists()


def test_a_path_that_holds_something_else_is_refused_and_kept(tmp_path):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("text")
    (tmp_path / "file").write_text("text")
    before = hashes(tmp_path)
    with pytest.raises(InputError, match=r"expected a new or empty folder .*chapter\.txt"):
        create(folder)
    with pytest.raises(InputError, match=r"expected a new or empty folder .* got the file"):
        create(tmp_path / "file")
    with pytest.raises(InputError, match="expected a place for a store"):
        create(tmp_path / "file" / "below")
    assert hashes(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert create(tmp_path / "empty").missing_blocks() == [0, 1, 2, 3, 4]


def test_opening_names_what_is_missing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"expected a matrix store at .*nowhere, got no such path"):
        stores.open_store(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"expected a matrix store at .*folder, got no zarr\.json"):
        stores.open_store(tmp_path / "folder")


def test_a_store_whose_metadata_were_deleted_is_neither_opened_nor_overwritten(full_store):
    (full_store.path / "zarr.json").unlink()
    before = hashes(full_store.path)
    with pytest.raises(InputError, match=r"got no zarr\.json"):
        stores.open_store(full_store.path)
    with pytest.raises(InputError, match="expected a new or empty folder or a matrix store"):
        create(full_store.path)
    assert hashes(full_store.path) == before


def test_metadata_truncated_anywhere_are_refused_on_one_line(full_store):
    file = full_store.path / "zarr.json"
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(InputError, match="expected a matrix store at") as caught:
            stores.open_store(full_store.path)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="expected a matrix store at"):
        create(full_store.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata.pop("attributes"),
        lambda metadata: metadata["attributes"].pop("rlreps"),
        lambda metadata: metadata["attributes"].update(rlreps="text"),
        lambda metadata: metadata["attributes"]["rlreps"].pop("settings"),
        lambda metadata: metadata["attributes"]["rlreps"].update(settings=3),
        lambda metadata: metadata["attributes"]["rlreps"].update(format=2),
        lambda metadata: metadata.update(data_type="float64"),
        lambda metadata: metadata.update(fill_value=0.0),
        lambda metadata: metadata.update(shape=[23, 7, 1]),
        lambda metadata: metadata["codecs"].pop(),
        lambda metadata: metadata["codecs"][0]["configuration"].update(endian="big"),
        lambda metadata: metadata["chunk_grid"]["configuration"].update(chunk_shape=[5, 3]),
    ],
)
def test_a_zarr_array_that_is_no_store_is_refused(full_store, change):
    file = full_store.path / "zarr.json"
    metadata = json.loads(file.read_text())
    change(metadata)
    file.write_text(json.dumps(metadata))
    with pytest.raises(InputError, match="expected a matrix store at"):
        stores.open_store(full_store.path)


def test_a_sound_store_passes_verification(full_store):
    report = stores.verify(full_store, row_sum=ROW_SUM, relative_tolerance=2e-6)
    sums = matrix().astype(np.float64).sum(axis=1)
    assert report.ok
    assert report.problems() == []
    assert report.digest == full_store.digest()
    assert report.worst_deviation == pytest.approx(np.abs(sums - ROW_SUM).max(), rel=1e-6)
    assert stores.verify(full_store).worst_deviation is None


@pytest.mark.parametrize("position", [0, 7, 139, 140, 143])
def test_a_flipped_byte_anywhere_in_a_chunk_is_found_and_named(full_store, position):
    flip_byte(full_store.block_file(2), position)  # 140 bytes of values, 4 of checksum
    report = stores.verify(full_store)
    assert [problem.index for problem in report.corrupt_blocks] == [2]
    assert "block 2 (rows 10-14, file c/2/0): corrupt" in report.problems()[0]
    assert report.digest is None
    for call in (full_store.read, full_store.digest, lambda: full_store.read_rows(14, 15)):
        with pytest.raises(InputError, match=r"expected a readable block 2 \(rows 10-14"):
            call()
    np.testing.assert_array_equal(full_store.read_rows(0, 10), matrix()[:10])


@pytest.mark.parametrize("length", [0, 3, 100, 143])
def test_a_truncated_chunk_is_found_and_named(full_store, length):
    file = full_store.block_file(4)
    file.write_bytes(file.read_bytes()[:length])
    report = stores.verify(full_store)
    assert [problem.index for problem in report.corrupt_blocks] == [4]
    assert "block 4 (rows 20-22, file c/4/0): corrupt" in report.problems()[0]
    with pytest.raises(InputError, match=r"block 4 .* to hold 144 bytes"):
        full_store.content_key()


def test_writing_a_corrupt_block_again_repairs_it(full_store):
    before = hashes(full_store.path)
    for index in range(full_store.num_blocks):
        flip_byte(full_store.block_file(index), 1)
    fill(full_store, matrix())
    assert hashes(full_store.path) == before


def test_verification_reports_every_problem_in_the_order_of_blocks(full_store):
    array = zarr.open(full_store.path, mode="r+")
    array[7, 2] = np.nan
    array[8, 2] = np.inf
    array[9, 6] += 2.0
    array[21, 0] += 0.5
    full_store.block_file(0).unlink()
    flip_byte(full_store.block_file(3), 0)
    report = stores.verify(full_store, row_sum=ROW_SUM, relative_tolerance=2e-5)
    assert not report.ok
    assert [problem.index for problem in report.missing_blocks] == [0]
    assert [problem.index for problem in report.corrupt_blocks] == [3]
    assert [problem.index for problem in report.non_finite_blocks] == [1]
    assert [problem.index for problem in report.deviating_blocks] == [1, 4]
    assert report.worst_deviation == pytest.approx(2.0, abs=1e-3)
    assert report.digest is None
    lines = report.problems()
    assert [int(line.split()[1]) for line in lines] == [0, 1, 1, 3, 4]
    assert lines[0] == "block 0 (rows 0-4, file c/0/0): missing"
    assert "2 values are NaN or infinite" in lines[1]
    assert "in row 9" in lines[2]
    assert "expected rows that sum to 50 within 0.001, got 50.5" in lines[4]
    assert "in row 21" in lines[4]


def test_a_planted_row_sum_is_caught_just_beyond_the_tolerance(full_store):
    zarr.open(full_store.path, mode="r+")[13, 4] += 0.01
    assert stores.verify(full_store, row_sum=ROW_SUM, relative_tolerance=0.011 / ROW_SUM).ok
    report = stores.verify(full_store, row_sum=ROW_SUM, relative_tolerance=0.009 / ROW_SUM)
    assert [problem.index for problem in report.deviating_blocks] == [2]
    assert stores.verify(full_store).ok


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
    assert stores.load_subspace(full_store, SUBSPACE_SETTINGS) is None
    stores.save_subspace(full_store, ARRAYS, SUBSPACE_SETTINGS)
    reopened = stores.open_store(full_store.path)
    reordered = dict(reversed(SUBSPACE_SETTINGS.items())) | {"powers": [2, 10]}
    loaded = stores.load_subspace(reopened, reordered)
    assert loaded.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)
    with np.load(cache_file(full_store), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["basis"], ARRAYS["basis"])
        record = json.loads(archive["rlreps.json"])
    assert record["content_key"] == full_store.content_key()


def test_a_cache_of_other_settings_is_not_returned(full_store):
    stores.save_subspace(full_store, ARRAYS, SUBSPACE_SETTINGS)
    others = {**SUBSPACE_SETTINGS, "d": 4}
    assert stores.load_subspace(full_store, others) is None
    file = cache_file(full_store)
    stores.save_subspace(full_store, {"basis": np.eye(4)}, others)
    (other_file,) = set((full_store.path / "subspace").iterdir()) - {file}
    other_file.write_bytes(file.read_bytes())  # even if the names collide
    assert stores.load_subspace(full_store, others) is None


def test_a_cache_of_other_bytes_is_not_returned_and_is_replaced_by_the_next(full_store):
    stores.save_subspace(full_store, ARRAYS, SUBSPACE_SETTINGS)
    fill(full_store, matrix(seed=1), [3])
    assert stores.load_subspace(full_store, SUBSPACE_SETTINGS) is None
    stores.save_subspace(full_store, {"basis": np.eye(3)}, SUBSPACE_SETTINGS)
    assert stores.load_subspace(full_store, SUBSPACE_SETTINGS).keys() == {"basis"}
    cache_file(full_store)  # one file still


def test_no_flipped_byte_in_a_cache_changes_what_it_returns(full_store):
    arrays = {"basis": np.arange(6, dtype=np.float32)}
    stores.save_subspace(full_store, arrays, SUBSPACE_SETTINGS)
    file = cache_file(full_store)
    content = file.read_bytes()
    refused = 0
    for position in range(len(content)):
        flip_byte(file, position)
        try:
            loaded = stores.load_subspace(full_store, SUBSPACE_SETTINGS)
        except InputError as error:
            assert str(file) in str(error)  # noqa: PT017 - some bytes are padding or dates
            refused += 1
        else:
            assert loaded.keys() == arrays.keys()
            np.testing.assert_array_equal(loaded["basis"], arrays["basis"])
        file.write_bytes(content)
    assert refused > len(content) // 2


def test_a_cache_cut_short_anywhere_is_refused_by_name(full_store):
    stores.save_subspace(full_store, {"basis": np.eye(2)}, SUBSPACE_SETTINGS)
    file = cache_file(full_store)
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(
            InputError, match=r"got the corrupt subspace cache .*\.npz, to be deleted"
        ):
            stores.load_subspace(full_store, SUBSPACE_SETTINGS)


def test_what_a_killed_save_leaves_is_not_mistaken_for_a_cache(full_store):
    stores.save_subspace(full_store, ARRAYS, SUBSPACE_SETTINGS)
    file = cache_file(full_store)
    file.rename(file.with_name(f".{file.name}.12345.tmp"))
    assert stores.load_subspace(full_store, SUBSPACE_SETTINGS) is None


def test_python_objects_are_never_pickled_into_a_cache(full_store):
    with pytest.raises(ValueError, match="allow_pickle=False"):
        stores.save_subspace(full_store, {"basis": np.array([{}, None])}, SUBSPACE_SETTINGS)
    assert list((full_store.path).glob("subspace/*")) == []
    stores.save_subspace(full_store, ARRAYS, SUBSPACE_SETTINGS)
    assert {file.suffix for file in full_store.path.rglob("*") if file.is_file()} <= {
        "",
        ".json",
        ".npz",
    }


def test_a_subspace_of_an_incomplete_matrix_is_not_kept(tmp_path):
    store = fill(create(tmp_path / "psi"), matrix(), [0])
    with pytest.raises(InputError, match="expected all 5 blocks, got 4 missing: 1-4"):
        stores.save_subspace(store, ARRAYS, SUBSPACE_SETTINGS)
    assert not (store.path / "subspace").exists()


def test_a_relative_path_means_the_folder_it_meant_when_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = create("psi")
    monkeypatch.chdir(Path("/"))
    fill(store, matrix())
    np.testing.assert_array_equal(stores.open_store(tmp_path / "psi").read(), matrix())


def test_importing_the_store_does_not_import_jax():
    command = "import sys, rlreps.successor.store; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
