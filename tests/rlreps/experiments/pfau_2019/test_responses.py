import numpy as np

from rlreps.experiments.pfau_2019.responses import (
    average_images,
    explained_shares,
    extremes,
    find_constant,
    mean_pixel_difference,
    mean_pixel_differences_by_chance,
    mean_responses,
)


def test_explained_shares_are_those_of_a_planted_model_and_chance_explains_nothing():
    draws = np.random.default_rng(0).normal(size=(9000, 4))
    target = draws[:, :1] * 3.0 + draws[:, 1:2] * 1.0 + 5.0
    both = np.column_stack([target, draws[:, 2]])
    np.testing.assert_allclose(explained_shares(both, draws[:, :1]), [0.9, 0.0], atol=0.02)
    np.testing.assert_allclose(explained_shares(both, draws[:, :3]), [1.0, 1.0], atol=1e-6)
    noise = np.random.default_rng(1).normal(size=(600, 200))
    assert explained_shares(both[:600], noise).max() < 0.0


def test_a_map_is_the_mean_over_states_with_a_ball_in_the_cell():
    centres = np.asarray([[[0.1, 0.1], [0.9, 0.1]], [[0.1, 0.1], [0.1, 0.9]]])
    values = np.asarray([[1.0, 10.0], [3.0, 20.0]])
    # Cells (row, column) = (y, x): both states have a ball at the bottom left.
    expected = np.transpose([[2.0, 1.0, 3.0, np.nan], [15.0, 10.0, 20.0, np.nan]])
    np.testing.assert_array_equal(mean_responses(centres, values, 2), expected)


def test_extreme_frames_are_those_of_the_largest_and_smallest_values():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (90, 5, 5), dtype=np.uint8)
    values = rng.normal(size=(90, 3)).astype(np.float32)
    rows = extremes(values, 7)
    assert rows.shape == (2, 3, 7)
    pictures = average_images(images, rows)
    for index, order in enumerate(np.argsort(values, axis=0).T):
        for end, chosen in enumerate((order[:7], order[-7:])):
            np.testing.assert_array_equal(rows[end, index], chosen)
            np.testing.assert_allclose(pictures[end, index], images[chosen].mean(axis=0))
    squares = (pictures[0] - pictures[1]).reshape(3, -1) ** 2
    np.testing.assert_allclose(mean_pixel_difference(pictures) ** 2, squares.mean(axis=1))


def test_features_of_what_frames_show_are_told_from_features_of_their_time():
    rng = np.random.default_rng(0)
    # Pictures drift as slowly as features do: many frames in a row are extreme.
    noise = rng.normal(size=(4, 3050))
    slow = np.stack([np.convolve(each, np.ones(51), "valid") for each in noise], axis=1)
    pictures = rng.normal(size=(2, 6, 6))
    levels = 128 + np.einsum("nk,kij->nij", slow[:, :2], pictures)
    images = np.clip(levels, 0, 255).astype(np.uint8)
    rows = extremes(slow, 60)
    distances = mean_pixel_difference(average_images(images, rows))
    chances = mean_pixel_differences_by_chance(images, rows)
    assert chances.shape == (99, 4)
    np.testing.assert_array_equal(distances > chances.max(axis=0), [True, True, False, False])


def test_features_of_a_network_that_died_are_told_from_small_ones():
    varying = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)
    dead = np.full((40, 1), 0.3, np.float32)
    rounded = np.nextafter(dead, 1.0) * (varying > 0) + dead * (varying <= 0)
    features = np.concatenate([varying, 1e-9 * varying, dead, 0.0 * dead, rounded], axis=1)
    np.testing.assert_array_equal(find_constant(features), [False, False, True, True, True])
