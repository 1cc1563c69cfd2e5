"""The problem: centred images as a pixels x images matrix, and its exact principal components."""

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg
from jax import Array

from rlreps import subspace
from rlreps.errors import require
from rlreps.losses.base import Batch
from rlreps.sources.images import FloatArray, Images
from rlreps.sources.matrix import draw_rows_and_tasks
from rlreps.subspace.centring import second_moments
from rlreps.subspace.svd import components_kept, fix_signs

_HIGHEST = jax.lax.Precision.HIGHEST
DoubleArray = npt.NDArray[np.float64]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ImageSource:
    """Entries of a pixels x images matrix that is held transposed, an image a row.

    ``sample`` draws what ``MatrixSource`` would of the same matrix. Its entries of one image lie
    within a few kilobytes of memory instead of one in each of the matrix's rows, which halves the
    time of a batch of MNIST from 32 images on.

    Attributes:
        images: The transposed matrix, [images, pixels].
    """

    images: Array

    @property
    def num_tasks(self) -> int:
        """Columns of the matrix: images."""
        return self.images.shape[0]

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Pixels [num_rows] and their values in some images [num_rows, num_tasks].

        Both are drawn uniformly with replacement; inputs are the pixels' indices.
        """
        num_images, num_pixels = self.images.shape
        pixels, chosen = draw_rows_and_tasks(key, (num_pixels, num_images), num_rows, num_tasks)
        # Gathered in the order of the batch: XLA would otherwise transpose what it gathers.
        targets = self.images[chosen[None, :], pixels[:, None]]
        return Batch(pixels, targets, chosen)

    def whole_images(self, key: Array, count: int) -> Array:
        """Images [count, pixels], drawn uniformly with replacement."""
        return self.images[jax.random.randint(key, (count,), 0, self.images.shape[0])]


class Problem(NamedTuple):
    """Images without their mean, and what is exact about them.

    Attributes:
        source: Training images less their mean.
        mean: Mean training image, [pixels].
        test: Test images less the *training* mean, [test images, pixels].
        shape: (height, width) of an image.
        basis: Exact leading principal components, [pixels, d].
        test_errors: ‖x − Px‖² of each test image under exact components, [test images].
        train_error: Its mean over training images.
    """

    source: ImageSource
    mean: DoubleArray
    test: FloatArray
    shape: tuple[int, int]
    basis: DoubleArray
    test_errors: DoubleArray
    train_error: float

    @property
    def test_error(self) -> float:
        """Mean of ‖x − Px‖² over test images under exact components."""
        return float(self.test_errors.mean())


def make_problem(images: Images, num_components: int) -> Problem:
    """Removes the mean training image and finds the exact components of what is left.

    They are the eigenvectors of the pixels' covariance, summed in float64.

    Args:
        images: Training and test images.
        num_components: d.

    Returns:
        The problem.

    Raises:
        InputError: If d exceeds the number of pixels or the rank of the images.
    """
    require(
        num_components <= images.num_pixels,
        f"d <= {images.num_pixels}, the pixels of an image",
        num_components,
    )
    mean = images.train.mean(axis=0, dtype=np.float64)
    centred = images.train - mean.astype(np.float32)
    eigenvalues, vectors = scipy.linalg.eigh(second_moments(centred))
    energies = np.maximum(eigenvalues[::-1], 0.0)
    # With the tolerance of float32, which the images have.
    values = np.sqrt(energies).astype(np.float32)
    components_kept(values, centred.shape, num_components, at_most=False)
    basis = fix_signs(vectors[:, ::-1][:, :num_components])
    test = images.test - mean.astype(np.float32)
    return Problem(
        ImageSource(jnp.asarray(centred)),
        mean,
        test,
        images.shape,
        basis,
        reconstruction_errors(test, basis),
        float(energies[num_components:].sum()),
    )


def fingerprint(images: Images) -> dict[str, Any]:
    """What identifies a data set, as JSON values."""
    return {
        "train_images": len(images.train),
        "test_images": len(images.test),
        "height": images.shape[0],
        "width": images.shape[1],
        "checksum": zlib.crc32(images.test.data, zlib.crc32(images.train.data)),
    }


def reconstruction_errors(images: FloatArray, basis: npt.NDArray[Any]) -> DoubleArray:
    """‖x − Px‖² for each centred image x [images, pixels] and orthonormal columns [pixels, d]."""
    double = basis.astype(np.float64)
    residuals = images - (images @ double) @ double.T
    errors: DoubleArray = np.einsum("ij,ij->i", residuals, residuals)
    return errors


def orthonormal(features: Array) -> DoubleArray:
    """An orthonormal basis [pixels, d] of the features' span, in float64; zero for zero features.

    Float32 columns are orthonormal to about 1e-6, which an error in float64 would show.
    """
    basis, _ = subspace.orthonormal_basis(features)
    q, r = np.linalg.qr(np.asarray(basis, np.float64))
    # Columns beyond the rank are zero in the basis, and arbitrary in Q.
    spanned: DoubleArray = q * (np.abs(np.diagonal(r)) > 0.5)[None, :]
    return spanned


def evaluation(problem: Problem) -> Callable[[Array], dict[str, Array]]:
    """What is followed during a run: features [pixels, d] → distance and test error.

    Args:
        problem: The problem.

    Returns:
        A function for ``jit``: ``subspace_distance`` to the exact components, and
        ``test_error_ratio``, the mean test error over the exact components' own.
    """
    # Second moments hold all that the mean error needs; 10,000 images would be a large constant.
    moments = second_moments(problem.test)
    basis = jnp.asarray(problem.basis, jnp.float32)
    total, exact = float(np.trace(moments)), problem.test_error

    def evaluate(features: Array) -> dict[str, Array]:
        span, _ = subspace.orthonormal_basis(features)
        weighted = jnp.matmul(jnp.asarray(moments, span.dtype), span, precision=_HIGHEST)
        return {
            "subspace_distance": subspace.subspace_distance(features, basis),
            "test_error_ratio": (total - jnp.sum(span * weighted)) / exact,
        }

    return evaluate
