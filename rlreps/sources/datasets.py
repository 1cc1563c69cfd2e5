"""Observations as the rows of one matrix, from files that a user names."""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError
from rlreps.sources.images import TEST_IMAGES, TRAIN_IMAGES, WHITE, load_images

FloatArray = npt.NDArray[np.float32]

MNIST_CHECKSUM = 2993465071
"""CRC-32 of MNIST's 70,000 images, training before test, as the rows of float32 that they become.
Others come in files of the same names and shapes."""

_ARRAY_FILES = (".npy", ".npz")
_WAYS = (
    f"expected a folder with {TRAIN_IMAGES} and {TEST_IMAGES} (each gzipped or not), a folder with "
    "train.npz, or a .npy or .npz file"
)


class Observations(NamedTuple):
    """A data set.

    Attributes:
        name: What to call it, its size included.
        rows: One observation each, [n, features]; bytes have been divided by 255.
        image_shape: (height, width) or (height, width, channels) of rows that are images, or None.
    """

    name: str
    rows: FloatArray
    image_shape: tuple[int, ...] | None

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the data, as JSON values."""
        count, features = self.rows.shape
        return {
            "name": self.name,
            "rows": count,
            "features": features,
            "checksum": zlib.crc32(self.rows.data),
        }


def load_observations(path: Path | None) -> Observations:
    """The rows of a data set.

    Args:
        path: A folder with MNIST's IDX files, whose training and test images are taken together; a
            folder with ``train.npz``, or a ``.npy`` or ``.npz`` file: of an archive, the array
            ``images`` or the only one there is, axes beyond the first flattened. None downloads
            MNIST through scikit-learn.

    Returns:
        The rows. MNIST is called so where it is MNIST, image for image.

    Raises:
        InputError: If there is nothing to read, it is no matrix of numbers with at least two rows,
            or a row has NaN, infinity, or a squared length beyond single precision.
    """
    if path is None or (path.is_dir() and not (path / "train.npz").is_file()):
        images = load_images(path)
        rows = np.concatenate([images.train, images.test])
        known = zlib.crc32(rows.data) == MNIST_CHECKSUM
        title = "MNIST" if path is None or known else path.resolve().name
        name = f"{title} ({len(rows):,} images)"
        return Observations(name, rows, images.shape)
    file = path / "train.npz" if path.is_dir() else path
    if file.suffix not in _ARRAY_FILES or not file.is_file():
        raise InputError(f"{_WAYS}; got {os.fspath(path)!r}")
    array = _read(file)
    rows = _as_rows(array, file)
    image = array.ndim >= 3
    stem = (path if path.is_dir() else path.with_suffix("")).resolve().name
    name = f"{stem} ({len(rows):,} {'images' if image else 'rows'})"
    return Observations(name, rows, array.shape[1:] if image else None)


def _read(file: Path) -> npt.NDArray[Any]:
    try:
        # Opened here: NumPy would leave an archive that it cannot read open.
        with file.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            names = list(loaded.files)
            if "images" in names or len(names) == 1:
                array: npt.NDArray[Any] = loaded["images" if "images" in names else names[0]]
                return array
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        # NumPy advises to load what it cannot read as Python objects, which would run its code.
        found = "Python objects or another file" if "pickle" in str(error) else str(error)
        raise InputError(f"expected a NumPy file of numbers, got {found}: {file}") from error
    raise InputError(
        f"expected an array called images, or one array alone, in {file}, got "
        f"{', '.join(names) or 'none'}"
    )


def _as_rows(array: npt.NDArray[Any], file: Path) -> FloatArray:
    numeric = array.dtype.kind in "fiub"
    if array.ndim < 2 or not numeric or len(array) < 2 or array[0].size == 0:
        raise InputError(
            f"expected numbers of shape [rows >= 2, features, ...] in {file}, got shape "
            f"{array.shape} of {array.dtype}"
        )
    # In C order, whatever the file's: the fingerprint reads the bytes. What single precision cannot
    # hold becomes infinite, which is refused below.
    with np.errstate(over="ignore", invalid="ignore"):
        rows = array.reshape(len(array), -1).astype(np.float32, order="C")
        if array.dtype == np.uint8:
            rows /= np.float32(WHITE)
        squares = np.einsum("ij,ij->i", rows, rows)
    unusable = np.flatnonzero(~np.isfinite(squares))
    if unusable.size:
        raise InputError(
            f"expected finite numbers in {file} whose squares single precision holds, got "
            f"{unusable.size} rows without, the first of them row {unusable[0]}"
        )
    return rows
