import gzip
import sys
import types

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rlreps.errors import InputError
from rlreps.sources.images import (
    TEST_IMAGES,
    TRAIN_IMAGES,
    load_images,
    read_idx_images,
    write_idx_images,
)

DIGITS = (load_digits().images * (255 / 16)).astype(np.uint8)


def write_pair(folder, train=DIGITS[:20], test=DIGITS[20:30], suffix=""):
    write_idx_images(folder / f"{TRAIN_IMAGES}{suffix}", train)
    write_idx_images(folder / f"{TEST_IMAGES}{suffix}", test)
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_images_come_back_as_they_were_written(tmp_path, suffix, dtype):
    images = DIGITS[:5, :, :6].astype(dtype)
    path = write_idx_images(tmp_path / f"images{suffix}", images)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == bool(suffix)
    np.testing.assert_array_equal(read_idx_images(path), images)


def test_the_bytes_of_a_file_are_those_of_the_format(tmp_path):
    path = write_idx_images(tmp_path / "images", np.arange(6, dtype=np.uint8).reshape(1, 2, 3))
    header = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3])
    assert path.read_bytes() == header + bytes(range(6))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_data_directory_gives_grey_levels_an_image_a_row(tmp_path, suffix):
    images = load_images(write_pair(tmp_path, suffix=suffix))
    assert images.shape == (8, 8)
    assert images.num_pixels == 64
    assert images.train.dtype == np.float32
    np.testing.assert_array_equal(
        images.train, (DIGITS[:20].reshape(20, 64) / 255).astype(np.float32)
    )
    np.testing.assert_allclose(images.test * 255, DIGITS[20:30].reshape(10, 64), rtol=1e-6)


def test_a_missing_file_is_refused_with_both_ways_to_get_images(tmp_path):
    write_idx_images(tmp_path / TRAIN_IMAGES, DIGITS)
    message = rf"--data\), or scikit-learn and a network.* got no {TEST_IMAGES}\[.gz\] in"
    with pytest.raises(InputError, match=message) as error:
        load_images(tmp_path)
    assert "\n" not in str(error.value)


def labels():
    return bytes([0, 0, 8, 1, 0, 0, 0, 4, 7, 2, 1, 0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (labels(), "expected an IDX file of images .* beginning with 00 00 08 01"),
        (b"\x89PNG\r\n", "expected an IDX file of images .* beginning with 89 50 4e 47"),
        (b"", "expected an IDX file of images .* beginning with nothing"),
        (bytes([0, 0, 8, 3, 0, 0]), "expected 16 bytes of header in .* got 6"),
        (bytes([0, 0, 8, 3, *[0] * 12]), r"expected at least one image .* got \(0, 0, 0\)"),
        (
            bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3]),
            r"expected 24 bytes for 2 images of 2 x 2 in .*, got 19 \(truncated\)",
        ),
        (
            bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2]),
            r"expected 17 bytes for 1 images of 1 x 1 in .*, got 18 \(with more behind them\)",
        ),
        (
            gzip.compress(bytes(400), mtime=0)[:-9],
            "expected a whole gzip file, got a truncated one",
        ),
        (b"\x1f\x8b\x08\x00garbage and more", "expected a (readable|whole gzip) file, got"),
    ],
)
def test_files_that_are_not_whole_images_are_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_idx_images(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "found"), [(np.nan, "NaN"), (np.inf, "0 to inf"), (-1.0, "-1 to 255"), (256.0, "256")]
)
def test_pixels_that_are_no_grey_levels_are_refused(tmp_path, value, found):
    images = DIGITS[:20].astype(np.float32)
    images[0, 0, 0] = 255.0
    images[3, 4, 5] = value
    write_pair(tmp_path, test=images)
    with pytest.raises(InputError, match=f"expected pixels of {TEST_IMAGES} in 0 to 255.*{found}"):
        load_images(tmp_path)


def test_test_images_of_another_size_are_refused(tmp_path):
    write_pair(tmp_path, test=DIGITS[:3, :7])
    with pytest.raises(InputError, match=r"training images' 8 x 8 pixels, got \(7, 8\)"):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (DIGITS[0], r"expected images of shape \[count, height, width\], got \(8, 8\)"),
        (DIGITS.astype(np.int32), "expected images of uint8, float32, float64, got 'int32'"),
    ],
)
def test_what_is_no_image_is_not_written(tmp_path, images, message):
    with pytest.raises(InputError, match=message):
        write_idx_images(tmp_path / "images", images)
    assert list(tmp_path.iterdir()) == []


def test_without_scikit_learn_the_error_names_both_ways(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"--data\), or scikit-learn and a network.*neither"):
        load_images(None)


def test_without_a_network_the_error_names_both_ways_in_one_line(monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("<urlopen error no such host>\nmore of it")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    with pytest.raises(InputError, match=r"--data\).*a network.*no such host") as error:
        load_images(None)
    assert "\n" not in str(error.value)


def test_a_download_is_split_into_training_and_test_images(monkeypatch):
    pixels = np.full((60_003, 4), 51.0)
    pixels[60_000:] = 255.0

    def fetch(name, **options):
        assert name == "mnist_784"
        return types.SimpleNamespace(data=pixels)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    images = load_images(None)
    assert images.shape == (2, 2)
    assert (images.train.shape, images.test.shape) == ((60_000, 4), (3, 4))
    assert np.all(images.train == np.float32(0.2))
    assert np.all(images.test == 1.0)
