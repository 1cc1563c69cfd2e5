"""Sources of pixels of images, and balanced subsets of labelled images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.le_lan_2023.images import ImageSource, balanced_subsets
from rlreps.sources.matrix import matrix_source

LABELS = np.random.default_rng(0).integers(0, 4, size=60).astype(np.uint8)


def test_the_transposed_matrix_gives_the_batches_of_the_matrix():
    matrix = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    source, other = ImageSource(jnp.asarray(matrix.T)), matrix_source(matrix)

    @jax.jit
    def draw(key):
        batches = [each.sample(key, 7, 5) for each in (source, other)]
        return *batches, source.whole_images(key, 6)

    mine, expected, images = draw(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, mine, expected)
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
