"""Images and observations: IDX files, NumPy files, a download, and what is refused."""

import gzip
import re
import types

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rlreps.errors import InputError
from rlreps.experiments.datasets import (
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    load_images,
    load_observations,
    read_idx,
)

RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(5, 7)).astype(np.float32)


DIGITS = (load_digits().images * (255 / 16)).astype(np.uint8)


def write_idx_images(path, images):
    content = bytes([0, 0, 8, 3]) + np.asarray(images.shape, ">u4").tobytes() + images.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def saved(tmp_path, array):
    np.save(tmp_path / "table.npy", array)
    return tmp_path / "table.npy"


def test_a_matrix_is_rows_as_they_are_and_bytes_alone_are_divided_by_their_largest_value(tmp_path):
    found = load_observations(saved(tmp_path, FLOATS.astype(np.float64)))
    assert found.rows.dtype == np.float32
    np.testing.assert_array_equal(found.rows, FLOATS)
    table = np.asarray([[0, 255], [51, 102]])
    scaled = load_observations(saved(tmp_path, table.astype(np.uint8)))
    np.testing.assert_allclose(scaled.rows, [[0.0, 1.0], [0.2, 0.4]], rtol=1e-6)
    kept = load_observations(saved(tmp_path, table.astype(np.uint16)))
    np.testing.assert_array_equal(kept.rows, table)


def test_what_is_missing_or_of_another_kind_is_refused_with_what_would_do(tmp_path):
    (tmp_path / "notes.txt").write_text("no numbers")
    for name in ("nowhere.npy", "notes.txt"):
        with pytest.raises(InputError, match=rf"a \.npy or \.npz file; got .*{re.escape(name)}"):
            load_observations(tmp_path / name)
    folder = tmp_path / "folder"
    folder.mkdir()
    for missing in (TRAIN_IMAGES, TEST_IMAGES):
        with pytest.raises(InputError, match=rf"got no {missing}\[.gz\] in"):
            load_observations(folder)
        write_idx_images(folder / missing, DIGITS[:2])


def test_the_fingerprint_tells_data_apart_and_the_same_data_alike(tmp_path):
    first = load_observations(saved(tmp_path, FLOATS)).fingerprint()
    assert load_observations(saved(tmp_path, FLOATS.astype(np.float64))).fingerprint() == first
    changed = FLOATS.copy()
    changed[4, 6] = np.nextafter(changed[4, 6], np.float32(9))
    other = load_observations(saved(tmp_path, changed)).fingerprint()
    assert other["checksum"] != first["checksum"]
    assert {**other, "checksum": 0} == {**first, "checksum": 0}


def write_pair(folder, train=DIGITS[:20], test=DIGITS[20:30], suffix=""):
    write_idx_images(folder / f"{TRAIN_IMAGES}{suffix}", train)
    write_idx_images(folder / f"{TEST_IMAGES}{suffix}", test)
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_images_come_back_as_they_were_written_and_as_grey_levels_of_a_directory(tmp_path, suffix):
    path = write_idx_images(tmp_path / f"images{suffix}", DIGITS[:5, :, :6])
    np.testing.assert_array_equal(read_idx(path), DIGITS[:5, :, :6])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match="expected a"):
        read_idx(path)
    found = load_images(write_pair(tmp_path, suffix=suffix))
    grey = (DIGITS[:30].reshape(30, 64) / 255).astype(np.float32)
    np.testing.assert_array_equal(np.concatenate([found.train, found.test]), grey)
    assert len(found.train) == 20
    rows = load_observations(tmp_path)
    np.testing.assert_array_equal(rows.rows, grey)
    assert rows.image_shape == (8, 8)


LABELS = np.arange(10, dtype=np.uint8) % 3


def write_labels(path, labels=LABELS):
    path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, len(labels)]) + labels.tobytes())


def test_labels_of_test_images_are_read_where_they_lie_beside_them(tmp_path):
    alone = load_images(write_pair(tmp_path))
    assert alone.test_labels is None
    write_labels(tmp_path / TEST_LABELS)
    found = load_images(tmp_path)
    np.testing.assert_array_equal(found.test_labels, LABELS)
    # Results depend on them, so they are part of what a run was made of.
    assert found.fingerprint() != alone.fingerprint()
    write_labels(tmp_path / TEST_LABELS, LABELS[:9])
    with pytest.raises(InputError, match=r"expected 10 labels in .*, got 9"):
        load_images(tmp_path)
    write_idx_images(tmp_path / TEST_LABELS, DIGITS[20:30])
    with pytest.raises(InputError, match=r"IDX file of labels .* with 00 00 08 03"):
        load_images(tmp_path)


def test_a_download_is_split_into_training_and_test_images(monkeypatch):
    pixels = np.full((60_003, 4), 51.0)
    pixels[60_000:] = 255.0

    def fetch(name, **options):
        assert name == "mnist_784"
        return types.SimpleNamespace(data=pixels, target=np.asarray(["7"] * 60_000 + [*"901"]))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    images = load_images(None)
    assert images.shape == (2, 2)
    assert (images.train.shape, images.test.shape) == ((60_000, 4), (3, 4))
    assert np.all(images.train == np.float32(0.2))
    assert np.all(images.test == 1.0)
    assert images.test_labels.tolist() == [9, 0, 1]
