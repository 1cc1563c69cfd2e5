"""Image data sets as matrices: IDX files, as MNIST's are, or scikit-learn's download.

An IDX file is a magic number (two zero bytes, a type, the number of axes), the length of each axis
as a big-endian 32-bit integer, and the entries, big-endian, in C order.
"""

import gzip
import http.client
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlreps.errors import InputError, require
from rlreps.files import write_atomically

FloatArray = npt.NDArray[np.float32]

WHITE = 255.0
"""The brightest pixel of a file; loaded images lie in [0, 1]."""

TRAIN_IMAGES = "train-images-idx3-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
"""Names of a data directory's files, with or without ``.gz``."""

_DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_TYPES = {"uint8": 0x08, "float32": 0x0D, "float64": 0x0E}
_AXES = 3
_OPENML_TRAIN = 60_000
_WAYS = (
    f"expected a data directory with {TRAIN_IMAGES} and {TEST_IMAGES} (each gzipped or not; "
    "--data), or scikit-learn and a network to fetch mnist_784 with"
)


class Images(NamedTuple):
    """Images of one size.

    Attributes:
        train: Grey levels in [0, 1], [images, pixels], pixels row by row from the top.
        test: Likewise, other images.
        shape: (height, width); their product is the number of pixels.
    """

    train: FloatArray
    test: FloatArray
    shape: tuple[int, int]

    @property
    def num_pixels(self) -> int:
        """Pixels of an image."""
        return self.shape[0] * self.shape[1]

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the images, as JSON values."""
        return {
            "train_images": len(self.train),
            "test_images": len(self.test),
            "height": self.shape[0],
            "width": self.shape[1],
            "checksum": zlib.crc32(self.test.data, zlib.crc32(self.train.data)),
        }


def load_images(data_dir: Path | None) -> Images:
    """Training and test images, as the rows of two matrices.

    Args:
        data_dir: Folder with IDX files named as MNIST's; None fetches MNIST through scikit-learn.

    Returns:
        The images, divided by 255.

    Raises:
        InputError: If there is neither a folder nor a download, a file is missing, truncated or
            not of images, training and test images differ in size, or pixels are NaN or outside
            0 to 255.
    """
    if data_dir is None:
        return _fetch()
    train = read_idx_images(_find(data_dir, TRAIN_IMAGES))
    test = read_idx_images(_find(data_dir, TEST_IMAGES))
    require(
        train.shape[1:] == test.shape[1:],
        f"test images of the training images' {train.shape[1]} x {train.shape[2]} pixels",
        test.shape[1:],
    )
    return Images(_scaled(train, TRAIN_IMAGES), _scaled(test, TEST_IMAGES), train.shape[1:])


def read_idx_images(path: Path) -> npt.NDArray[Any]:
    """The images [count, height, width] of one IDX file, gzipped or not, as they are stored.

    Raises:
        InputError: If the file cannot be read, is truncated, or does not hold images: three axes
            of unsigned bytes or floats.
    """
    content = _read(path)
    magic = content[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[3] != _AXES or magic[2] not in _DTYPES:
        raise InputError(
            f"expected an IDX file of images (three axes of bytes or floats), got {path} "
            f"beginning with {magic.hex(' ') or 'nothing'}"
        )
    dtype, header = _DTYPES[magic[2]], 4 + 4 * _AXES
    if len(content) < header:
        raise InputError(f"expected {header} bytes of header in {path}, got {len(content)}")
    shape = tuple(np.frombuffer(content, ">u4", _AXES, 4).tolist())
    require(math.prod(shape) > 0, f"at least one image of one pixel in {path}", shape)
    needed = header + dtype.itemsize * math.prod(shape)
    if len(content) != needed:
        found = "truncated" if len(content) < needed else "with more behind them"
        raise InputError(
            f"expected {needed} bytes for {shape[0]} images of {shape[1]} x {shape[2]} in {path}, "
            f"got {len(content)} ({found})"
        )
    entries: npt.NDArray[Any] = np.frombuffer(content, dtype, offset=header)
    return entries.reshape(shape)


def write_idx_images(path: Path, images: npt.NDArray[Any]) -> Path:
    """Writes images as an IDX file, gzipped if its name ends in ``.gz``; returns the path.

    Args:
        path: The file.
        images: [count, height, width] of uint8, float32 or float64, in 0 to 255.

    Raises:
        InputError: For other shapes or types.
    """
    require(images.ndim == _AXES, "images of shape [count, height, width]", images.shape)
    require(images.dtype.name in _TYPES, f"images of {', '.join(_TYPES)}", images.dtype.name)
    header = bytes([0, 0, _TYPES[images.dtype.name], _AXES])
    lengths = np.asarray(images.shape, ">u4").tobytes()
    content = header + lengths + images.astype(images.dtype.newbyteorder(">")).tobytes()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    return write_atomically(path, content)


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise InputError(f"{_WAYS}; got no {name}[.gz] in {os.fspath(folder)!r}")


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except EOFError as error:
        raise InputError(f"expected a whole gzip file, got a truncated one: {path}") from error
    except (OSError, zlib.error) as error:
        raise InputError(f"expected a readable file, got {error}: {path}") from error


def _scaled(images: npt.NDArray[Any], name: str) -> FloatArray:
    """Images [count, ...] as grey levels [count, pixels], checked."""
    flat = images.reshape(len(images), -1)
    low, high = float(flat.min()), float(flat.max())
    # Written so that NaN, which neither comparison holds for, is refused too.
    if not (low >= 0.0 and high <= WHITE):
        found = "NaN" if math.isnan(low) or math.isnan(high) else f"{low:g} to {high:g}"
        raise InputError(f"expected pixels of {name} in 0 to 255, got {found}")
    return flat.astype(np.float32) / np.float32(WHITE)


def _fetch() -> Images:
    """MNIST by way of OpenML: its first 60,000 images are for training."""
    try:
        from sklearn.datasets import fetch_openml  # Optional.
    except ImportError as error:
        raise InputError(f"{_WAYS}; got neither") from error
    pixels = _download(fetch_openml)
    side = math.isqrt(pixels.shape[1])
    images = pixels.reshape(len(pixels), side, side)
    train, test = images[:_OPENML_TRAIN], images[_OPENML_TRAIN:]
    return Images(_scaled(train, "mnist_784"), _scaled(test, "mnist_784"), (side, side))


def _download(fetch_openml: Callable[..., Any]) -> npt.NDArray[Any]:
    try:
        # "liac-arff" needs no pandas.
        found = fetch_openml("mnist_784", version=1, as_frame=False, parser="liac-arff")
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{_WAYS}; got no data directory, and from the download: {cause}") from (
            error
        )
    return np.asarray(found.data)
