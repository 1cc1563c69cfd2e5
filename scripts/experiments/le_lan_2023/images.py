"""Sources of pixels of images, and subsets of labelled images."""

import dataclasses
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.batch import Batch
from rlreps.errors import require
from rlreps.sources import draw_rows_and_tasks


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ImageSource:
    """Entries of a pixels x images matrix that is held transposed, an image a row.

    ``sample`` draws the same batches as ``MatrixSource`` on the same matrix. The entries of one
    image lie within a few kilobytes of memory instead of being spread over all rows of the matrix.
    This halves the time of a batch of 32 or more images of MNIST.

    Attributes:
        images: The transposed matrix, [images, pixels].
    """

    images: Array

    @property
    def num_tasks(self) -> int:
        """Return the number of columns of the matrix, its images."""
        return self.images.shape[0]

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw pixels [num_rows] and their values in some images [num_rows, num_tasks].

        Both are drawn uniformly with replacement; inputs are the pixels' indices.
        """
        num_images, num_pixels = self.images.shape
        pixels, chosen = draw_rows_and_tasks(key, (num_pixels, num_images), num_rows, num_tasks)
        # Gathered in the order of the batch: otherwise XLA would transpose the gathered entries.
        return Batch(pixels, self.images[chosen[None, :], pixels[:, None]], chosen)

    def whole_images(self, key: Array, count: int) -> Array:
        """Draw images [count, pixels] uniformly with replacement."""
        return self.images[jax.random.randint(key, (count,), 0, self.images.shape[0])]


def balanced_subsets(
    labels: npt.NDArray[np.uint8], share: int, count: int, seed: int
) -> npt.NDArray[np.int64]:
    """Draw subsets with equally many images of each label, without replacement within a subset.

    Args:
        labels: Label of every image, [images].
        share: Number of images of each label in a subset.
        count: Number of random subsets.
        seed: Seed of the draws.

    Returns:
        Indices [1 + count, labels · share]: the first images of each label, then random subsets.

    Raises:
        InputError: If a label has fewer images than a subset takes.
    """
    generator = np.random.default_rng(seed)
    of_label = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    fewest = min(map(len, of_label))
    require(share <= fewest, f"at most {fewest} images of each label (of the rarest)", share)
    draws = [
        [generator.choice(indices, share, replace=False) for indices in of_label]
        for _ in range(count)
    ]
    first = [indices[:share] for indices in of_label]
    return np.asarray([np.concatenate(parts) for parts in (first, *draws)])


def errors_on_subsets(
    errors: npt.ArrayLike, exact: npt.ArrayLike, subsets: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Describe errors of runs [runs, images] on subsets of images from ``balanced_subsets``.

    Args:
        errors: Errors of the runs.
        exact: Errors of the exact components, [images].
        subsets: Indices, [1 + count, images of a subset].

    Returns:
        ``subset_error``: mean error over runs and random subsets. ``subset_error_deviation``: its
        standard deviation over subsets. ``first_images_error``: error on the first images of each
        label. ``subset_error_ratio``: ratio of each run's error to the exact components' error on
        the same images, averaged over subsets, [runs]. ``subset_ratio_deviation``: standard
        deviation of this ratio over subsets.
    """
    means = np.asarray(errors, np.float64)[:, subsets].mean(axis=2)
    ratios = (means / np.asarray(exact, np.float64)[subsets].mean(axis=1))[:, 1:]
    return {
        "subset_error": float(means[:, 1:].mean()),
        "subset_error_deviation": float(means[:, 1:].std(axis=1, ddof=1).mean()),
        "first_images_error": float(means[:, 0].mean()),
        "subset_error_ratio": ratios.mean(axis=1).tolist(),
        "subset_ratio_deviation": float(ratios.std(axis=1, ddof=1).mean()),
    }
