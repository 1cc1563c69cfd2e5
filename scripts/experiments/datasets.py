"""Data sets as matrices: IDX files (the format of MNIST), NumPy files, or a download.

An IDX file of bytes is a magic number (two zero bytes, 8, the number of axes), the length of each
axis as a big-endian 32-bit integer, and the entries in C order.
"""

import gzip
import http.client
import math
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, reason_of, require
from rlreps.files import DAMAGED, read_arrays

FloatArray = npt.NDArray[np.float32]

WHITE = 255.0
"""The brightest pixel of a file; loaded images lie in [0, 1]."""

TRAIN_IMAGES = "train-images-idx3-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
"""Names of the files in a data directory, with or without ``.gz``; labels may be missing."""

MNIST_CHECKSUM = 2993465071
"""CRC-32 of MNIST's 70,000 images, training before test, as float32 rows. Other data sets have
files of the same names and shapes."""

_KINDS = {3: "images", 1: "labels"}
_OPENML_TRAIN = 60_000
_IMAGE_WAYS = (
    f"expected a data directory with {TRAIN_IMAGES} and {TEST_IMAGES} (each gzipped or not; "
    "--data), or scikit-learn and a network to fetch mnist_784 with"
)
_ROW_WAYS = (
    f"expected a folder with {TRAIN_IMAGES} and {TEST_IMAGES} (each gzipped or not), a folder with "
    "train.npz, or a .npy or .npz file"
)


class Images(NamedTuple):
    """Images of one size.

    Attributes:
        train: Grey levels in [0, 1], [images, pixels], pixels row by row from the top.
        test: Grey levels of other images, in the same form.
        shape: (height, width); their product is the number of pixels.
        test_labels: Class of each test image, [images], if known.
    """

    train: FloatArray
    test: FloatArray
    shape: tuple[int, int]
    test_labels: npt.NDArray[np.uint8] | None = None

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the images, as JSON values."""
        return {
            "train_images": len(self.train),
            "test_images": len(self.test),
            "height": self.shape[0],
            "width": self.shape[1],
            "checksum": zlib.crc32(self.test.data, zlib.crc32(self.train.data)),
            "labels": None if self.test_labels is None else zlib.crc32(self.test_labels.tobytes()),
        }


class Observations(NamedTuple):
    """A data set.

    Attributes:
        name: Name for titles, with the size.
        rows: One observation each, [n, features]; bytes have been divided by 255.
        image_shape: (height, width) or (height, width, channels) if rows are images, else None.
    """

    name: str
    rows: FloatArray
    image_shape: tuple[int, ...] | None

    @property
    def is_mnist(self) -> bool:
        """Whether the rows are MNIST's images, all 70,000 in their order."""
        return zlib.crc32(self.rows.data) == MNIST_CHECKSUM

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the data, as JSON values."""
        count, features = self.rows.shape
        return {
            "name": self.name,
            "rows": count,
            "features": features,
            "checksum": zlib.crc32(self.rows.data),
        }


def load_observations(path: Path | None) -> Observations:
    """Load the rows of a data set.

    Args:
        path: A folder with MNIST's IDX files, whose training and test images are joined; a folder
            with ``train.npz``; or a ``.npy`` or ``.npz`` file. From an archive, the array
            ``images`` or the only array is read, with axes beyond the first flattened. None
            downloads MNIST through scikit-learn.

    Returns:
        The rows. Their name is MNIST if they equal MNIST, image for image.

    Raises:
        InputError: If there is nothing to read, the data are not a matrix of numbers with at least
            two rows, or a row has NaN, infinity, or a squared length beyond single precision.
    """
    if path is None or (path.is_dir() and not (path / "train.npz").is_file()):
        images = load_images(path)
        rows = np.concatenate([images.train, images.test])
        found = Observations(f"MNIST ({len(rows):,} images)", rows, images.shape)
        if path is None or found.is_mnist:
            return found
        return found._replace(name=f"{path.resolve().name} ({len(rows):,} images)")
    file = path / "train.npz" if path.is_dir() else path
    if file.suffix not in (".npy", ".npz") or not file.is_file():
        raise InputError(f"{_ROW_WAYS}; got {os.fspath(path)!r}")
    array = _read_array(file)
    numeric = array.dtype.kind in "fiub"
    if array.ndim < 2 or not numeric or len(array) < 2 or array[0].size == 0:
        raise InputError(
            f"expected numbers of shape [rows >= 2, features, ...] in {file}, got shape "
            f"{array.shape} of {array.dtype}"
        )
    # In C order, whatever the file's order: the fingerprint reads the bytes. Numbers beyond single
    # precision become infinite and are refused below.
    with np.errstate(over="ignore", invalid="ignore"):
        rows = array.reshape(len(array), -1).astype(np.float32, order="C")
        if array.dtype == np.uint8:
            rows /= np.float32(WHITE)
        unusable = np.flatnonzero(~np.isfinite(np.einsum("ij,ij->i", rows, rows)))
    if unusable.size:
        raise InputError(
            f"expected finite numbers in {file} whose squares single precision holds, got "
            f"{unusable.size} other rows, the first of them row {unusable[0]}"
        )
    image_shape = array.shape[1:] if array.ndim >= 3 else None
    stem = (path if path.is_dir() else path.with_suffix("")).resolve().name
    name = f"{stem} ({len(rows):,} {'rows' if image_shape is None else 'images'})"
    return Observations(name, rows, image_shape)


def load_images(data_dir: Path | None) -> Images:
    """Load training and test images, divided by 255, as the rows of two matrices.

    Args:
        data_dir: Folder of IDX files named as MNIST's; None downloads MNIST through scikit-learn.

    Raises:
        InputError: If there is neither a folder nor a download, a file is missing, truncated or
            without images, training and test images differ in size, or the numbers of labels and of
            test images differ (labels may be missing).
    """
    if data_dir is None:
        pixels, classes = _download()
        side = math.isqrt(pixels.shape[1])
        grey = _grey_levels(pixels)
        parts = grey[:_OPENML_TRAIN], grey[_OPENML_TRAIN:]
        return Images(*parts, (side, side), classes[_OPENML_TRAIN:])
    names = (TRAIN_IMAGES, TEST_IMAGES, TEST_LABELS)
    both = ((name, data_dir / f"{name}{suffix}") for name in names for suffix in (".gz", ""))
    files = {name: file for name, file in both if file.is_file()}
    for name in (TRAIN_IMAGES, TEST_IMAGES):
        if name not in files:
            raise InputError(f"{_IMAGE_WAYS}; got no {name}[.gz] in {os.fspath(data_dir)!r}")
    train, test = read_idx(files[TRAIN_IMAGES]), read_idx(files[TEST_IMAGES])
    height, width = train.shape[1:]
    expected = f"test images of the training images' {height} x {width} pixels"
    require(test.shape[1:] == (height, width), expected, test.shape[1:])
    labels = None
    if file := files.get(TEST_LABELS):
        labels = read_idx(file, axes=1)
        require(len(labels) == len(test), f"{len(test)} labels in {file}", len(labels))
    return Images(_grey_levels(train), _grey_levels(test), (height, width), labels)


def read_idx(path: Path, *, axes: int = 3) -> npt.NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes, gzipped or not.

    Args:
        path: The file.
        axes: 3 for images [count, height, width], 1 for labels [count].

    Raises:
        InputError: If the file cannot be read, is truncated or empty, or holds something else.
    """
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"expected a readable file, got {reason_of(error)}: {path}") from error
    header = 4 + 4 * axes
    shape = np.frombuffer(content[:header].ljust(header, b"\0"), ">u4")[1:].tolist()
    whole = len(content) == header + math.prod(shape) > header
    if content[:4] != bytes([0, 0, 8, axes]) or not whole:
        raise InputError(
            f"expected a whole IDX file of {_KINDS[axes]} (bytes on {axes} axes), got "
            f"{len(content)} bytes that begin with {content[:header].hex(' ') or 'nothing'}: {path}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read_array(file: Path) -> npt.NDArray[Any]:
    try:
        loaded = read_arrays(file)
    except DAMAGED as error:
        found = str(error) or type(error).__name__
        raise InputError(f"expected a NumPy file of numbers, got {found}: {file}") from error
    names = list(loaded)
    if "images" in names or len(names) == 1:
        return loaded["images" if "images" in names else names[0]]
    raise InputError(
        f"expected an array called images, or one array alone, in {file}, got "
        f"{', '.join(names) or 'none'}"
    )


def _grey_levels(images: npt.NDArray[Any]) -> FloatArray:
    """Return images [count, ...] of bytes as grey levels [count, pixels] in [0, 1]."""
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(WHITE)


def _download() -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Fetch MNIST from OpenML, 60,000 images for training first.

    Returns:
        Pixels [70,000, 784] and labels [70,000].
    """
    try:
        from sklearn.datasets import fetch_openml  # An optional dependency.
    except ImportError as error:
        raise InputError(f"{_IMAGE_WAYS}; got neither") from error
    try:
        # "liac-arff" needs no pandas.
        found = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff")
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"{_IMAGE_WAYS}; got no data directory, and from the download: {cause}"
        raise InputError(message) from error
    return np.asarray(found.data), np.asarray(found.target).astype(np.uint8)
