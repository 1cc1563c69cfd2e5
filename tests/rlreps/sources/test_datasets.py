import gzip
import re
import zlib

import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.sources import datasets as observations
from rlreps.sources.datasets import load_observations
from rlreps.sources.images import TEST_IMAGES, TRAIN_IMAGES, Images, write_idx_images

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, size=(6, 3, 4), dtype=np.uint8)
FLOATS = RNG.normal(size=(5, 7)).astype(np.float32)


@pytest.fixture
def idx_folder(tmp_path):
    folder = tmp_path / "digits"
    folder.mkdir()
    write_idx_images(folder / f"{TRAIN_IMAGES}.gz", BYTES[:4])
    write_idx_images(folder / TEST_IMAGES, BYTES[4:])
    return folder


def saved(tmp_path, array, name="table.npy"):
    np.save(tmp_path / name, array, allow_pickle=array.dtype == object)
    return tmp_path / name


def test_training_and_test_images_of_an_idx_folder_are_taken_together_in_order(idx_folder):
    found = load_observations(idx_folder)
    assert found.rows.dtype == np.float32
    np.testing.assert_allclose(found.rows, BYTES.reshape(6, 12) / 255, rtol=1e-6)
    assert found.image_shape == (3, 4)
    assert found.name == "digits (6 images)"


def test_the_name_of_mnist_is_for_its_own_images_and_not_for_others_of_their_size(
    idx_folder, monkeypatch
):
    images = np.zeros((70_000, 784), np.float32)

    def load(path):
        return Images(images[:60_000], images[60_000:], (28, 28))

    monkeypatch.setattr(observations, "load_images", load)
    assert load_observations(idx_folder).name == "digits (70,000 images)"
    assert load_observations(None).name == "MNIST (70,000 images)"
    monkeypatch.setattr(observations, "MNIST_CHECKSUM", zlib.crc32(images.data))
    assert load_observations(idx_folder).name == "MNIST (70,000 images)"


def test_a_folder_with_an_archive_is_called_by_the_folders_name(tmp_path):
    folder = tmp_path / "tiny-pictures"
    folder.mkdir()
    images = RNG.integers(0, 256, size=(5, 2, 3, 3), dtype=np.uint8)
    np.savez_compressed(folder / "train.npz", images=images, labels=np.arange(5))
    found = load_observations(folder)
    np.testing.assert_allclose(found.rows, images.reshape(5, 18) / 255, rtol=1e-6)
    assert found.image_shape == (2, 3, 3)
    assert found.name == "tiny-pictures (5 images)"


def test_a_matrix_is_rows_as_they_are(tmp_path):
    found = load_observations(saved(tmp_path, FLOATS.astype(np.float64), "two.parts.npy"))
    assert found.rows.dtype == np.float32
    np.testing.assert_array_equal(found.rows, FLOATS)
    assert found.image_shape is None
    assert found.name == "two.parts (5 rows)"


def test_bytes_alone_are_divided_by_their_largest_value(tmp_path):
    table = np.asarray([[0, 255], [51, 102]])
    scaled = load_observations(saved(tmp_path, table.astype(np.uint8)))
    np.testing.assert_allclose(scaled.rows, [[0.0, 1.0], [0.2, 0.4]], rtol=1e-6)
    for dtype in (np.int64, np.float16, np.uint16):
        kept = load_observations(saved(tmp_path, table.astype(dtype)))
        np.testing.assert_array_equal(kept.rows, table)


def test_of_an_archive_the_array_called_images_or_the_only_one_is_read(tmp_path):
    np.savez(tmp_path / "named.npz", other=np.zeros((3, 3)), images=FLOATS)
    np.savez(tmp_path / "single.npz", whatever=FLOATS)
    for name in ("named", "single"):
        found = load_observations(tmp_path / f"{name}.npz")
        np.testing.assert_array_equal(found.rows, FLOATS)
        assert found.name == f"{name} (5 rows)"


def test_an_archive_of_several_arrays_names_them(tmp_path):
    np.savez(tmp_path / "several.npz", left=FLOATS, right=FLOATS)
    with pytest.raises(
        InputError, match=r"^expected an array called images, or one array alone.*got left, right"
    ):
        load_observations(tmp_path / "several.npz")
    np.savez(tmp_path / "none.npz")
    with pytest.raises(InputError, match="got none"):
        load_observations(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.arange(5.0), r"got shape \(5,\) of float64"),
        (np.float64(3.0), r"got shape \(\) of float64"),
        (np.ones((1, 4)), r"got shape \(1, 4\)"),
        (np.ones((4, 0)), r"got shape \(4, 0\)"),
        (np.full((3, 2), "text"), "of <U4"),
        (np.ones((3, 2), complex), "of complex128"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(tmp_path, array, got):
    with pytest.raises(InputError, match=rf"numbers of shape \[rows >= 2, .*{got}"):
        load_observations(saved(tmp_path, np.asarray(array)))


def test_python_objects_are_never_unpickled(tmp_path):
    path = saved(tmp_path, np.asarray([[{}, {}], [{}, {}]], dtype=object))
    with pytest.raises(InputError, match="expected a NumPy file of numbers, got Python objects"):
        load_observations(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_entry_that_is_not_finite_is_named_by_its_row(tmp_path, bad):
    table = FLOATS.copy()
    table[3, 1] = table[4, 0] = bad
    with pytest.raises(InputError, match=r"got 2 rows without, the first of them row 3"):
        load_observations(saved(tmp_path, table))


def test_a_number_beyond_single_precision_is_refused_too(tmp_path):
    table = FLOATS.astype(np.float64)
    table[1, 1] = 1e300
    with pytest.raises(InputError, match="got 1 rows without, the first of them row 1"):
        load_observations(saved(tmp_path, table))


def test_a_row_whose_square_single_precision_cannot_hold_is_refused(tmp_path):
    table = FLOATS.copy()
    table[2, 0] = 1e25
    with pytest.raises(InputError, match="got 1 rows without, the first of them row 2"):
        load_observations(saved(tmp_path, table))


def test_what_is_missing_or_of_another_kind_is_refused_with_what_would_do(tmp_path):
    (tmp_path / "notes.txt").write_text("no numbers")
    for name in ("nowhere", "nowhere.npy", "notes.txt"):
        with pytest.raises(InputError, match=rf"a \.npy or \.npz file; got .*{re.escape(name)}"):
            load_observations(tmp_path / name)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=f"got no {TRAIN_IMAGES}"):
        load_observations(empty)


@pytest.mark.parametrize("name", ["broken.npy", "broken.npz"])
def test_a_broken_file_is_refused(tmp_path, name):
    whole = tmp_path / f"whole{name[-4:]}"
    np.savez(whole, FLOATS) if name.endswith("z") else np.save(whole, FLOATS)
    for content in (b"", b"not NumPy", whole.read_bytes()[:-40], gzip.compress(b"x")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=r"expected a NumPy file of numbers, got .*broken"):
            load_observations(tmp_path / name)


def test_the_fingerprint_tells_data_apart_and_the_same_data_alike(tmp_path):
    first = load_observations(saved(tmp_path, FLOATS)).fingerprint()
    assert (first["rows"], first["features"], first["name"]) == (5, 7, "table (5 rows)")
    assert load_observations(saved(tmp_path, FLOATS.astype(np.float64))).fingerprint() == first
    changed = FLOATS.copy()
    changed[4, 6] = np.nextafter(changed[4, 6], np.float32(9))
    other = load_observations(saved(tmp_path, changed)).fingerprint()
    assert other["checksum"] != first["checksum"]
    assert {**other, "checksum": 0} == {**first, "checksum": 0}
    turned = load_observations(saved(tmp_path, np.asfortranarray(FLOATS))).fingerprint()
    assert turned == first
