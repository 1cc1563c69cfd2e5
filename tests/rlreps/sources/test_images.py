"""Sources of pixels of images, balanced subsets of labelled images, and errors on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.sources.images import ImageSource, balanced_subsets, errors_on_subsets
from rlreps.sources.matrix import matrix_source

LABELS = np.random.default_rng(0).integers(0, 4, size=60).astype(np.uint8)


def test_the_transposed_matrix_gives_the_batches_of_the_matrix():
    matrix = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    source, other = ImageSource(jnp.asarray(matrix.T)), matrix_source(matrix)
    assert source.num_tasks == other.num_tasks == 40

    @jax.jit
    def draw(key):
        batches = [each.sample(key, 7, 5) for each in (source, other)]
        return *batches, source.whole_images(key, 6)

    mine, expected, images = draw(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, mine, expected)
    assert mine.targets.shape == (7, 5)
    assert images.shape == (6, 30)
    assert all(any(np.array_equal(row, column) for column in matrix.T) for row in images)


def test_subsets_hold_each_label_alike_and_the_first_images_come_first():
    subsets = balanced_subsets(LABELS, 5, 30, seed=1)
    assert subsets.shape == (31, 20)
    for subset in subsets:
        assert np.bincount(LABELS[subset]).tolist() == [5] * 4
        assert len({*subset}) == len(subset)
    first = np.concatenate([np.flatnonzero(label == LABELS)[:5] for label in range(4)])
    np.testing.assert_array_equal(subsets[0], first)
    assert len({subset.tobytes() for subset in subsets}) == len(subsets)
    most = int(np.bincount(LABELS).min())
    with pytest.raises(InputError, match=f"at most {most} images of each label.*got {most + 1}"):
        balanced_subsets(LABELS, most + 1, 1, seed=0)


def test_errors_on_subsets_are_means_of_their_images_and_ratios_are_of_the_same_images():
    generator = np.random.default_rng(0)
    subsets = balanced_subsets(LABELS, 5, 30, seed=1)
    exact = generator.lognormal(size=60)
    # Twice as many errors as exact, with noise of each image.
    factors = 2.0 + 0.1 * generator.standard_normal((3, 60))
    found = errors_on_subsets(exact * factors, exact, subsets)
    errors = np.asarray([[(exact * one)[each].mean() for each in subsets] for one in factors])
    own = np.asarray([exact[each].mean() for each in subsets])
    assert found["first_images_error"] == pytest.approx(errors[:, 0].mean())
    assert found["subset_error"] == pytest.approx(errors[:, 1:].mean())
    assert found["subset_error_deviation"] == pytest.approx(errors[:, 1:].std(1, ddof=1).mean())
    ratios = (errors / own)[:, 1:]
    np.testing.assert_allclose(found["subset_error_ratio"], ratios.mean(axis=1))
    # What the draw of images does to both errors leaves the ratio alone.
    relative = found["subset_error_deviation"] / found["subset_error"]
    assert found["subset_ratio_deviation"] < 0.5 * relative * 2.0
