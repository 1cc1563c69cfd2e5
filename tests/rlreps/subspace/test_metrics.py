"""Distances, angles, pairings and losses of features, in memory and in row blocks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.errors import InputError
from rlreps.subspace import (
    ArrayBlocks,
    align,
    centre_columns,
    centring_means,
    chunked_lissa,
    column_means,
    empirical_inverse_covariance,
    exact_svd,
    fix_signs,
    grassmann_distance,
    largest_eigenvalue_bound,
    leading_combinations,
    lissa,
    longest_eigenvector_streak,
    matched_cosines,
    nested_distances,
    newton_schulz_step,
    numerical_rank,
    principal_angles,
    project_rows,
    relative_excess,
    representation_loss,
    row_blocks,
    subspace_distance,
)


def _rotation(size: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def _planted(angles: np.ndarray):
    """Orthonormal features and basis [40, k] float64 whose principal angles are the given ones."""
    count = len(angles)
    frame = _rotation(40, 0)
    basis, others = frame[:, :count], frame[:, count : 2 * count]
    return basis * np.cos(angles) + others * np.sin(angles), basis


def _mixed(features: np.ndarray, seed: int = 1) -> np.ndarray:
    """The same span through a well-conditioned invertible map that is no rotation."""
    size = features.shape[1]
    spectrum = np.linspace(1.0, 5.0, size)
    return features @ (_rotation(size, seed) * spectrum) @ _rotation(size, seed + 1)


def _single(*arrays: np.ndarray) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(array, jnp.float32) for array in arrays)


@pytest.mark.parametrize("angle", [1e-2, 1e-5])
def test_small_distances_keep_their_digits_in_float32(angle):
    # 1 - tr(...)/k in float32 could not tell a distance below 1e-7 from zero. Plane rotations of
    # coordinate vectors are exact in float32 but for the rounding of the sine itself.
    features = np.zeros((6, 2), np.float32)
    features[0, 0] = features[1, 1] = np.cos(angle)
    features[2, 0] = features[3, 1] = np.sin(angle)
    basis = np.eye(6, 2, dtype=np.float32)
    distance = subspace_distance(jnp.asarray(features), jnp.asarray(basis))
    np.testing.assert_allclose(distance, np.sin(angle) ** 2, rtol=2e-2)


@pytest.mark.parametrize(("d", "k"), [(7, 3), (3, 7)])
def test_distance_is_one_minus_the_share_that_the_projector_keeps(d, k):
    rng = np.random.default_rng(d * 10 + k)
    features, basis = rng.standard_normal((25, d)), np.linalg.qr(rng.standard_normal((25, k)))[0]
    orthonormal = scipy.linalg.orth(features)
    kept = np.trace(basis @ basis.T @ orthonormal @ orthonormal.T)
    np.testing.assert_allclose(
        subspace_distance(*_single(features, basis)), 1 - kept / k, atol=1e-6
    )
    angles = np.asarray(principal_angles(*_single(features, basis)))
    assert angles.shape == (k,)
    np.testing.assert_allclose(np.mean(np.sin(angles) ** 2), 1 - kept / k, atol=1e-6)
    distance = grassmann_distance(*_single(features, basis))
    np.testing.assert_allclose(distance, np.linalg.norm(angles), rtol=1e-5)
    # SciPy reports the smaller dimension's angles; components out of reach are at a right angle.
    expected = np.sort(scipy.linalg.subspace_angles(features, basis))
    np.testing.assert_allclose(angles[: min(d, k)], expected, atol=1e-5)
    np.testing.assert_allclose(angles[min(d, k) :], np.pi / 2, atol=1e-5)


@pytest.mark.parametrize("metric", [subspace_distance, principal_angles, grassmann_distance])
def test_span_metrics_ignore_maps_of_the_features_and_rotations_of_basis_and_states(metric):
    features, basis = _planted(np.array([0.1, 0.4, 0.9, 1.2, 1.3]))
    expected = metric(*_single(features, basis))
    wildly_scaled = features * np.array([1e-18, 1e6, 1e18, 1e-3, 1.0])
    states = _rotation(40, 7)
    for changed in (
        (_mixed(features), basis),
        (wildly_scaled, basis),
        (features, basis @ _rotation(5, 6)),
        (states @ features, states @ basis),
    ):
        np.testing.assert_allclose(metric(*_single(*changed)), expected, atol=3e-6)


@pytest.mark.parametrize("metric", [subspace_distance, principal_angles, grassmann_distance])
def test_span_metrics_refuse_a_basis_that_is_not_orthonormal(metric):
    features, basis = map(jnp.asarray, _single(*_planted(np.array([0.1, 0.4, 0.9, 1.2, 1.3]))))
    for other in (0.9 * basis, basis.at[:, 0].set(basis[:, 1]), basis.at[:, 0].set(0.0)):
        with pytest.raises(InputError, match="a basis of orthonormal columns"):
            metric(features, other)
    assert jax.jit(metric)(features, 0.9 * basis).shape == metric(features, basis).shape


@pytest.mark.parametrize("scale", [1e-30, 3e38])
def test_features_of_any_scale_have_their_span(scale):
    features = np.random.default_rng(0).uniform(0.1, 1.0, (20, 3))
    basis = np.linalg.qr(features)[0]
    for scales in ([scale] * 3, [scale, 1.0, 1.0]):
        given, expected = _single(features * scales, basis)
        assert float(subspace_distance(given, expected)) < 1e-10
        assert int(numerical_rank(given)) == 3


@pytest.mark.parametrize("num_states", [8, 2000])
def test_rank_deficient_features_are_measured_by_their_numerical_rank(num_states):
    rng = np.random.default_rng(10)
    basis = np.linalg.qr(rng.standard_normal((num_states, 5)))[0]
    for rank in (0, 1, 4):
        features = basis[:, :rank] @ rng.standard_normal((rank, 6))
        single_features, single_basis = _single(features, basis)
        assert int(numerical_rank(single_features)) == rank == np.linalg.matrix_rank(features)
        np.testing.assert_allclose(
            subspace_distance(single_features, single_basis), (5 - rank) / 5, atol=1e-5
        )


LISTS = [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (subspace_distance, (LISTS, np.eye(2, 1))),
        (subspace_distance, (np.eye(2, 1), LISTS)),
        (leading_combinations, (np.eye(2, 1), LISTS, 1)),
        (nested_distances, (LISTS, np.eye(2, 1))),
        (centre_columns, (LISTS,)),
        (exact_svd, (LISTS, 1)),
        (fix_signs, (LISTS,)),
        (column_means, (LISTS,)),
        (centring_means, (LISTS, "rows")),
        (centring_means, (np.eye(2), "both")),
        (project_rows, (LISTS, ArrayBlocks(np.eye(2)))),
        (project_rows, (np.eye(2), LISTS)),
        (lissa, (np.eye(2), LISTS, 0.1)),
        (chunked_lissa, (np.ones((1, 2, 2)), LISTS, 0.1)),
        (empirical_inverse_covariance, (LISTS,)),
        (newton_schulz_step, (LISTS, np.eye(2))),
        (newton_schulz_step, (np.eye(2), LISTS)),
        (largest_eigenvalue_bound, (LISTS,)),
    ],
)
def test_lists_are_neither_arrays_nor_row_blocks(function, arguments):
    with pytest.raises(InputError, match=r"expected .*(array|blocks).*, got '(list|ndarray)'"):
        function(*arguments)


def test_features_that_are_not_finite_never_give_a_number():
    features = np.random.default_rng(13).standard_normal((40, 5))
    features[2, 1] = np.inf
    features, basis = _single(features, np.eye(40, 5))
    for metric in (subspace_distance, grassmann_distance, representation_loss):
        assert np.isnan(metric(features, basis))
    with pytest.raises(InputError, match="expected finite features"):
        matched_cosines(features, basis)


def test_matched_cosines_find_the_best_pairing_of_all():
    rng = np.random.default_rng(14)
    features, basis = rng.standard_normal((40, 5)), np.linalg.qr(rng.standard_normal((40, 5)))[0]
    cosines = np.abs((features / np.linalg.norm(features, axis=0)).T @ basis)
    best = max(
        itertools.permutations(range(5)), key=lambda order: cosines[list(order), range(5)].sum()
    )
    matched = matched_cosines(*_single(features, basis))
    np.testing.assert_allclose(matched, cosines[list(best), range(5)], atol=1e-6)


def test_the_streak_ends_at_the_first_component_outside_the_tolerance():
    for streak in (0, 3, 5):
        angles = np.full(5, 0.38)
        angles[streak : streak + 1] = 0.40  # pi / 8 = 0.393.
        features, basis = _planted(angles)
        signs_and_scales = np.array([1.0, -3.0, 0.2, -1.0, 7.0])
        pair = _single(features * signs_and_scales, basis)
        assert int(longest_eigenvector_streak(*pair)) == streak


def test_alignment_equals_scipys_procrustes_rotation():
    rng = np.random.default_rng(19)
    features, basis = rng.standard_normal((40, 5)), np.linalg.qr(rng.standard_normal((40, 5)))[0]
    orthonormal = scipy.linalg.orth(features)
    rotation, _ = scipy.linalg.orthogonal_procrustes(orthonormal, basis)
    aligned = np.asarray(align(*_single(features, basis)))
    np.testing.assert_allclose(aligned, orthonormal @ rotation, atol=1e-5)


def test_relative_excess_is_zero_at_the_optimum_and_in_closed_form_elsewhere():
    left, right = _rotation(60, 23)[:, :5], _rotation(40, 24)[:, :5]
    matrix = (left * [4.0, 3.0, 2.0, 1.0, 0.5]) @ right.T
    (single,) = _single(matrix)
    subspace = exact_svd(np.asarray(single), 4)
    best, second_missing = _single(_mixed(left[:, :2]), _mixed(left[:, [0, 2]]))
    np.testing.assert_allclose(
        relative_excess(representation_loss(best, single), subspace, 2), 0.0, atol=1e-5
    )
    # Components 1 and 3 in place of 1 and 2 leave 9 instead of 4 among the rest.
    expected = (9.0 + 1.0 + 0.25) / (4.0 + 1.0 + 0.25) - 1.0
    excess = relative_excess(representation_loss(second_missing, single), subspace, 2)
    np.testing.assert_allclose(excess, expected, rtol=1e-5)
    # Of as many features as the matrix has components the optimum is zero.
    for precision in (np.float32, np.float64):
        assert np.isnan(relative_excess(jnp.ones(()), exact_svd(matrix.astype(precision), 5), 5))


@pytest.mark.parametrize("block_rows", [1, 37])
def test_projections_and_losses_are_those_of_least_squares(monkeypatch, block_rows):
    monkeypatch.setattr(row_blocks, "_GROUP_BYTES", 4 * 40 * 16)  # Several groups.
    rng = np.random.default_rng(0)
    matrix, features = (rng.standard_normal((90, n)).astype(np.float32) for n in (40, 4))
    source, wide = ArrayBlocks(matrix, block_rows), features.astype(np.float64)
    np.testing.assert_allclose(project_rows(features, source), wide.T @ matrix, atol=2e-5)
    residual = matrix - wide @ np.linalg.lstsq(wide, matrix, rcond=None)[0]
    for read in (source, jnp.asarray(matrix)):
        found = representation_loss(jnp.asarray(features), read)
        assert float(found) == pytest.approx(np.sum(residual**2), rel=1e-5)


def test_leading_combinations_span_the_leading_subspace_of_the_projected_matrix():
    rng = np.random.default_rng(3)
    features, matrix = rng.normal(size=(30, 8)) * np.logspace(0, 3, 8), rng.normal(size=(30, 50))
    features = np.concatenate([features, features[:, :2] @ [[1.0], [2.0]]], axis=1)  # Dependent.
    with jax.enable_x64(True):
        combinations = leading_combinations(jnp.asarray(features), jnp.asarray(matrix), 3)
    kept = features @ np.asarray(combinations)
    span = scipy.linalg.orth(features)
    left, _, _ = scipy.linalg.svd(span @ (span.T @ matrix), full_matrices=False)
    np.testing.assert_allclose(np.abs(left[:, :3].T @ kept), np.eye(3), atol=1e-9)
    with pytest.raises(InputError, match="d in 1 to 9 features, got 10"):
        leading_combinations(jnp.asarray(features), matrix, 10)


def test_leading_combinations_have_gradients_beside_a_unit_that_is_zero():
    rng = np.random.default_rng(5)
    features, matrix = rng.normal(size=(30, 4)) * [1.0, 0.0, 1.0, 1.0], rng.normal(size=(30, 50))
    given = jnp.asarray(features, jnp.float32), jnp.asarray(matrix, jnp.float32)
    found = jax.grad(lambda *each: jnp.sum(leading_combinations(*each, 2)[0]))(*given)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1e-6, 1e6, 1e18])
def test_leading_combinations_do_not_depend_on_the_scales_of_features(size):
    rng = np.random.default_rng(4)
    features, matrix = rng.normal(size=(30, 6)), rng.normal(size=(30, 50))
    given = jnp.asarray(features * [1.0, size, 1.0, size, size, 1.0], jnp.float32)
    assert numerical_rank(given) == 6
    combinations = leading_combinations(given, jnp.asarray(matrix, jnp.float32), 3)
    kept = np.asarray(given, np.float64) @ np.asarray(combinations, np.float64)
    span = scipy.linalg.orth(features)
    left, _, _ = scipy.linalg.svd(span @ (span.T @ matrix), full_matrices=False)
    np.testing.assert_allclose(np.abs(left[:, :3].T @ kept), np.eye(3), atol=1e-5)
