import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.errors import InputError
from rlreps.subspace import (
    align,
    exact_svd,
    grassmann_distance,
    longest_eigenvector_streak,
    matched_cosines,
    numerical_rank,
    optimal_loss,
    orthonormal_basis,
    principal_angles,
    relative_excess,
    relative_excess_loss,
    representation_loss,
    subspace_distance,
)

SPAN_METRICS = pytest.mark.parametrize(
    "metric", [subspace_distance, principal_angles, grassmann_distance]
)
PLANTED_ANGLES = np.array([0.0, 1e-3, 0.3, 1.0, np.pi / 2])


def _rotation(size: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def _planted(angles: np.ndarray, num_states: int = 40, seed: int = 0):
    """Orthonormal features and basis [n, k] float64 whose principal angles are the given ones."""
    count = len(angles)
    frame = _rotation(num_states, seed)
    basis, others = frame[:, :count], frame[:, count : 2 * count]
    return basis * np.cos(angles) + others * np.sin(angles), basis


def _mixed(features: np.ndarray, seed: int = 1) -> np.ndarray:
    """The same span through a well-conditioned invertible map that is no rotation."""
    size = features.shape[1]
    spectrum = np.linspace(1.0, 5.0, size)
    return features @ (_rotation(size, seed) * spectrum) @ _rotation(size, seed + 1)


def _single(*arrays: np.ndarray) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(array, jnp.float32) for array in arrays)


def test_planted_angles_give_every_distance_in_closed_form():
    features, basis = _planted(PLANTED_ANGLES)
    single_features, single_basis = _single(_mixed(features), basis)
    np.testing.assert_allclose(
        principal_angles(single_features, single_basis), PLANTED_ANGLES, atol=2e-6
    )
    np.testing.assert_allclose(
        subspace_distance(single_features, single_basis),
        np.mean(np.sin(PLANTED_ANGLES) ** 2),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        grassmann_distance(single_features, single_basis),
        np.sqrt(np.sum(PLANTED_ANGLES**2)),
        rtol=1e-5,
    )


@pytest.mark.parametrize("angle", [1e-2, 1e-4, 1e-5])
def test_small_distances_keep_their_digits_in_float32(angle):
    # 1 - tr(...)/k in float32 could not tell a distance below 1e-7 from zero. Plane rotations of
    # coordinate vectors are exact in float32 but for the rounding of the sine itself.
    features = np.zeros((6, 2), np.float32)
    features[0, 0] = features[1, 1] = np.cos(angle)
    features[2, 0] = features[3, 1] = np.sin(angle)
    basis = np.eye(6, 2, dtype=np.float32)
    distance = subspace_distance(jnp.asarray(features), jnp.asarray(basis))
    np.testing.assert_allclose(distance, np.sin(angle) ** 2, rtol=2e-2)


def test_angles_agree_with_scipy_in_both_precisions():
    rng = np.random.default_rng(2)
    features, basis = rng.standard_normal((30, 5)), np.linalg.qr(rng.standard_normal((30, 5)))[0]
    expected = np.sort(scipy.linalg.subspace_angles(features, basis))
    np.testing.assert_allclose(principal_angles(*_single(features, basis)), expected, atol=2e-6)
    with jax.enable_x64(True):
        angles = principal_angles(jnp.asarray(features), jnp.asarray(basis))
        assert angles.dtype == jnp.float64
        np.testing.assert_allclose(angles, expected, atol=1e-13)


@pytest.mark.parametrize(("d", "k"), [(7, 3), (3, 7), (5, 5), (1, 1)])
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
    # SciPy reports the smaller dimension's angles; components out of reach are at a right angle.
    expected = np.sort(scipy.linalg.subspace_angles(features, basis))
    np.testing.assert_allclose(angles[: min(d, k)], expected, atol=1e-5)
    np.testing.assert_allclose(angles[min(d, k) :], np.pi / 2, atol=1e-5)


@pytest.mark.parametrize("d", [1, 2, 6])
def test_equal_spans_are_at_zero_and_orthogonal_ones_at_one(d):
    frame = _rotation(20, 3)
    basis = frame[:, :d]
    orthogonal = scipy.linalg.null_space(basis.T)[:, :d]
    assert float(subspace_distance(*_single(_mixed(basis), basis))) < 1e-11
    assert float(grassmann_distance(*_single(_mixed(basis), basis))) < 1e-5
    np.testing.assert_allclose(
        subspace_distance(*_single(_mixed(orthogonal), basis)), 1.0, atol=1e-6
    )
    np.testing.assert_allclose(
        grassmann_distance(*_single(_mixed(orthogonal), basis)),
        np.sqrt(d) * np.pi / 2,
        rtol=1e-6,
    )


@pytest.mark.parametrize("shared", [0, 1, 3, 5])
def test_sharing_k_of_d_components_leaves_a_distance_of_d_minus_k_over_d(shared):
    frame = _rotation(20, 4)
    basis = frame[:, :5]
    features = np.concatenate([frame[:, :shared], frame[:, 5 : 10 - shared]], axis=1)
    distance = subspace_distance(*_single(_mixed(features), basis))
    np.testing.assert_allclose(distance, (5 - shared) / 5, atol=1e-6)


def test_a_basis_inside_a_larger_span_is_at_zero():
    frame = _rotation(20, 5)
    features, basis = _single(_mixed(frame[:, :9]), frame[:, 2:5])
    assert float(subspace_distance(features, basis)) < 1e-11


@SPAN_METRICS
def test_span_metrics_ignore_invertible_maps_of_the_features(metric):
    features, basis = _planted(np.array([0.1, 0.4, 0.9, 1.2]))
    expected = metric(*_single(features, basis))
    permuted_and_flipped = features[:, [2, 0, 3, 1]] * np.array([1.0, -1.0, -1.0, 1.0])
    wildly_scaled = features * np.array([1e-18, 1e6, 1e18, 1e-3])
    for changed in (_mixed(features), permuted_and_flipped, wildly_scaled, 1e-20 * features):
        np.testing.assert_allclose(metric(*_single(changed, basis)), expected, atol=3e-6)


@SPAN_METRICS
def test_span_metrics_ignore_rotations_of_the_basis_and_of_the_states(metric):
    features, basis = _planted(np.array([0.1, 0.4, 0.9, 1.2]))
    expected = metric(*_single(features, basis))
    np.testing.assert_allclose(
        metric(*_single(features, basis @ _rotation(4, 6))), expected, atol=3e-6
    )
    states = _rotation(40, 7)
    np.testing.assert_allclose(
        metric(*_single(states @ features, states @ basis)), expected, atol=3e-6
    )


def test_badly_conditioned_features_are_resolved_beyond_what_the_gram_matrix_could():
    # Condition number 1e4 between directions, not columns; its square is out of float32's reach.
    features, basis = _planted(np.array([0.2, 0.5, 0.8, 1.1]), num_states=1000)
    mixing = (_rotation(4, 8) * np.array([1.0, 1e-1, 1e-3, 1e-4])) @ _rotation(4, 9)
    single_features, single_basis = _single(features @ mixing, basis)
    assert int(numerical_rank(single_features)) == 4
    np.testing.assert_allclose(
        subspace_distance(single_features, single_basis),
        np.mean(np.sin([0.2, 0.5, 0.8, 1.1]) ** 2),
        atol=2e-3,
    )


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("num_states", [8, 2000])
def test_rank_deficient_features_are_measured_by_their_numerical_rank(rank, num_states):
    rng = np.random.default_rng(10)
    basis = np.linalg.qr(rng.standard_normal((num_states, 5)))[0]
    features = basis[:, :rank] @ rng.standard_normal((rank, 6))
    single_features, single_basis = _single(features, basis)
    assert int(numerical_rank(single_features)) == rank == np.linalg.matrix_rank(features)
    np.testing.assert_allclose(
        subspace_distance(single_features, single_basis), (5 - rank) / 5, atol=1e-5
    )
    angles = np.asarray(principal_angles(single_features, single_basis))
    np.testing.assert_allclose(angles[rank:], np.pi / 2, atol=1e-5)


def test_zero_features_have_rank_zero_and_distance_one():
    features, basis = jnp.zeros((10, 3)), jnp.eye(10, 3)
    assert int(numerical_rank(features)) == 0
    assert float(subspace_distance(features, basis)) == 1.0
    np.testing.assert_allclose(principal_angles(features, basis), np.pi / 2)
    np.testing.assert_array_equal(matched_cosines(features, basis), np.zeros(3))
    assert int(longest_eigenvector_streak(features, basis)) == 0
    np.testing.assert_array_equal(align(features, basis), np.zeros((10, 3)))
    np.testing.assert_allclose(representation_loss(features, basis), 3.0)


def test_a_dead_feature_costs_its_direction_and_no_other():
    features, basis = _planted(np.zeros(4))
    features[:, 2] = 0.0
    np.testing.assert_allclose(subspace_distance(*_single(features, basis)), 0.25, atol=1e-6)


@pytest.mark.parametrize("shape", [(30, 4), (4, 4), (3, 6), (1, 1)])
def test_the_orthonormal_basis_spans_what_scipys_does(shape):
    features = np.random.default_rng(11).standard_normal(shape)
    basis, rank = orthonormal_basis(*_single(features))
    assert basis.shape == shape
    assert rank.dtype == jnp.int32
    assert int(rank) == min(shape)
    reference = scipy.linalg.orth(features)
    np.testing.assert_allclose(basis @ basis.T, reference @ reference.T, atol=3e-6)
    gram = np.diag((np.arange(shape[1]) < min(shape)).astype(float))
    np.testing.assert_allclose(basis.T @ basis, gram, atol=3e-6)


def test_columns_beyond_the_rank_are_exactly_zero():
    features = np.random.default_rng(12).standard_normal((500, 2)) @ np.ones((2, 5))
    basis, rank = orthonormal_basis(*_single(features))
    assert int(rank) == 1
    np.testing.assert_array_equal(basis[:, 1:], np.zeros((500, 4)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_never_give_a_number(bad):
    features = jnp.asarray(np.random.default_rng(13).standard_normal((8, 3)), jnp.float32)
    features = features.at[2, 1].set(bad)
    basis = jnp.eye(8, 3)
    for metric in (subspace_distance, grassmann_distance, representation_loss):
        assert np.isnan(metric(features, basis))
    with pytest.raises(InputError, match="expected finite features"):
        matched_cosines(features, basis)


def test_matched_cosines_find_the_best_pairing_of_all():
    rng = np.random.default_rng(14)
    features, basis = rng.standard_normal((20, 5)), np.linalg.qr(rng.standard_normal((20, 5)))[0]
    cosines = np.abs((features / np.linalg.norm(features, axis=0)).T @ basis)
    best = max(
        itertools.permutations(range(5)), key=lambda order: cosines[list(order), range(5)].sum()
    )
    matched = matched_cosines(*_single(features, basis))
    np.testing.assert_allclose(matched, cosines[list(best), range(5)], atol=1e-6)


def test_matched_cosines_undo_permutations_signs_and_scales():
    basis = _rotation(15, 15)[:, :4]
    features = basis[:, [3, 1, 0, 2]] * np.array([-2.0, 1e-4, 1e5, -1.0])
    np.testing.assert_allclose(matched_cosines(*_single(features, basis)), 1.0, atol=1e-6)


def test_components_without_a_partner_have_matched_cosine_zero():
    basis = _rotation(15, 16)[:, :4]
    matched = matched_cosines(*_single(basis[:, [2, 0]], basis))
    np.testing.assert_allclose(matched, [1.0, 0.0, 1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("streak", [0, 1, 3, 5])
def test_the_streak_ends_at_the_first_component_outside_the_tolerance(streak):
    angles = np.full(5, 0.1)
    angles[streak : streak + 1] = 0.5
    features, basis = _planted(angles)
    signs_and_scales = np.array([1.0, -3.0, 0.2, -1.0, 7.0])
    single_features, single_basis = _single(features * signs_and_scales, basis)
    found = longest_eigenvector_streak(single_features, single_basis)
    assert found.dtype == jnp.int32
    assert int(found) == streak
    assert int(longest_eigenvector_streak(single_features, single_basis, 0.6)) == 5
    assert int(longest_eigenvector_streak(single_features, single_basis, 0.05)) == 0


def test_the_streak_counts_shared_columns_only_and_respects_their_order():
    (basis,) = _single(_rotation(15, 17)[:, :4])
    assert int(longest_eigenvector_streak(basis[:, :2], basis)) == 2
    assert int(longest_eigenvector_streak(basis, basis[:, :3])) == 3
    assert int(longest_eigenvector_streak(basis[:, jnp.array([0, 2, 1, 3])], basis)) == 1


def test_alignment_returns_the_components_themselves_when_the_spans_agree():
    basis = _rotation(30, 18)[:, :5]
    np.testing.assert_allclose(align(*_single(_mixed(basis), basis)), basis, atol=2e-6)


def test_alignment_equals_scipys_procrustes_rotation():
    rng = np.random.default_rng(19)
    features, basis = rng.standard_normal((30, 4)), np.linalg.qr(rng.standard_normal((30, 4)))[0]
    orthonormal = scipy.linalg.orth(features)
    rotation, _ = scipy.linalg.orthogonal_procrustes(orthonormal, basis)
    aligned = np.asarray(align(*_single(features, basis)))
    np.testing.assert_allclose(aligned, orthonormal @ rotation, atol=1e-5)
    np.testing.assert_allclose(aligned.T @ aligned, np.eye(4), atol=3e-6)


def test_alignment_picks_the_nearest_directions_of_a_larger_span():
    frame = _rotation(30, 20)
    aligned = align(*_single(_mixed(frame[:, :6]), frame[:, [4, 1]]))
    np.testing.assert_allclose(aligned, frame[:, [4, 1]], atol=3e-6)


@pytest.mark.parametrize("num_states", [10, 256, 300, 700])
def test_representation_loss_is_the_least_squares_residual(num_states):
    rng = np.random.default_rng(21)
    features, matrix = rng.standard_normal((num_states, 4)), rng.standard_normal((num_states, 9))
    _, residuals, _, _ = np.linalg.lstsq(features, matrix)
    np.testing.assert_allclose(
        representation_loss(*_single(_mixed(features), matrix)), np.sum(residuals), rtol=1e-5
    )


def test_representation_loss_of_rank_deficient_features_is_that_of_their_span():
    rng = np.random.default_rng(22)
    features, matrix = rng.standard_normal((50, 2)), rng.standard_normal((50, 6))
    expected = np.sum(np.linalg.lstsq(features, matrix)[1])
    deficient = features @ rng.standard_normal((2, 5))
    np.testing.assert_allclose(
        representation_loss(*_single(deficient, matrix)), expected, rtol=1e-4
    )


def _planted_problem(spectrum: np.ndarray, num_states: int = 60, num_tasks: int = 40):
    left, right = _rotation(num_states, 23), _rotation(num_tasks, 24)
    count = len(spectrum)
    return (left[:, :count] * spectrum) @ right[:, :count].T, left


def test_the_optimum_leaves_the_energy_of_the_components_beyond_d():
    spectrum = np.array([4.0, 3.0, 2.0, 1.0, 0.5])
    matrix, _ = _planted_problem(spectrum)
    for precision in (np.float32, np.float64):
        subspace = exact_svd(matrix.astype(precision), 5)
        for d in range(1, 5):
            expected = np.sum(spectrum[d:] ** 2)
            assert optimal_loss(subspace, d) == pytest.approx(expected, rel=1e-4)
        assert optimal_loss(subspace, 5) == 0.0


def test_relative_excess_is_zero_at_the_optimum_and_in_closed_form_elsewhere():
    spectrum = np.array([4.0, 3.0, 2.0, 1.0, 0.5])
    matrix, left = _planted_problem(spectrum)
    (single,) = _single(matrix)
    subspace = exact_svd(np.asarray(single), 4)
    best, second_missing = _single(_mixed(left[:, :2]), _mixed(left[:, [0, 2]]))
    np.testing.assert_allclose(relative_excess_loss(best, single, subspace, 2), 0.0, atol=1e-5)
    # Components 1 and 3 in place of 1 and 2 leave 9 instead of 4 among the rest.
    expected = (9.0 + 1.0 + 0.25) / (4.0 + 1.0 + 0.25) - 1.0
    excess = relative_excess_loss(second_missing, single, subspace, 2)
    np.testing.assert_allclose(excess, expected, rtol=1e-5)
    loss = representation_loss(second_missing, single)
    np.testing.assert_array_equal(relative_excess(loss, subspace, 2), excess)


def test_relative_excess_stays_small_where_two_singular_values_nearly_agree():
    matrix, left = _planted_problem(np.array([4.0, 2.001, 2.0, 1.0]))
    single, features = _single(matrix, left[:, [0, 2]])
    subspace = exact_svd(np.asarray(single), 4)
    excess = relative_excess_loss(features, single, subspace, 2)
    np.testing.assert_allclose(excess, (2.001**2 - 4.0) / 5.0, atol=1e-5)
    np.testing.assert_allclose(subspace_distance(features, subspace.basis[:, :2]), 0.5, atol=1e-3)


def test_relative_excess_has_no_value_where_nothing_is_left_to_predict():
    matrix, left = _planted_problem(np.array([2.0, 1.0]))
    single, features = _single(matrix, left[:, :2])
    subspace = exact_svd(np.asarray(single), 2)
    assert np.isnan(relative_excess_loss(features, single, subspace, 2))


def test_relative_excess_refuses_more_components_than_the_subspace_holds():
    matrix, left = _planted_problem(np.array([2.0, 1.0, 0.5]))
    single, features = _single(matrix, left[:, :2])
    with pytest.raises(InputError, match="expected 1 <= d <= 2 components, got 3"):
        relative_excess_loss(features, single, exact_svd(np.asarray(single), 2), 3)


JITTED = pytest.mark.parametrize(
    "function",
    [
        numerical_rank,
        lambda features: orthonormal_basis(features)[0],
        lambda features: subspace_distance(features, jnp.eye(12, 3)),
        lambda features: principal_angles(features, jnp.eye(12, 3)),
        lambda features: grassmann_distance(features, jnp.eye(12, 3)),
        lambda features: longest_eigenvector_streak(features, jnp.eye(12, 3), 1.2),
        lambda features: align(features, jnp.eye(12, 3)),
        lambda features: representation_loss(features, jnp.eye(12, 5)),
    ],
    ids=["rank", "basis", "distance", "angles", "grassmann", "streak", "align", "loss"],
)


@JITTED
def test_jit_and_vmap_equal_eager(function):
    rng = np.random.default_rng(25)
    batch = jnp.asarray(np.eye(12, 3) + 0.3 * rng.standard_normal((3, 12, 3)), jnp.float32)
    with jax.disable_jit():
        eager = np.stack([function(features) for features in batch])
    jitted = np.stack([jax.jit(function)(features) for features in batch])
    np.testing.assert_allclose(jitted, eager, atol=3e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(function))(batch), eager, atol=3e-6)


def test_float32_and_float64_are_preserved():
    def dtypes(dtype):
        features = jnp.asarray(np.random.default_rng(26).standard_normal((9, 3)), dtype)
        basis = np.eye(9, 3, dtype=np.float32)
        subspace = exact_svd(np.asarray(features), 2)
        return {
            orthonormal_basis(features)[0].dtype,
            subspace_distance(features, basis).dtype,
            principal_angles(features, basis).dtype,
            grassmann_distance(features, basis).dtype,
            matched_cosines(features, basis).dtype,
            align(features, basis).dtype,
            representation_loss(features, basis).dtype,
            relative_excess_loss(features, features, subspace, 2).dtype,
        }

    assert dtypes(jnp.float32) == {jnp.dtype("float32")}
    with jax.enable_x64(True):
        assert dtypes(jnp.float64) == {jnp.dtype("float64")}


@pytest.mark.parametrize(
    "features",
    [jnp.ones(5), jnp.ones((5, 0)), jnp.ones((5, 2), jnp.int32), jnp.ones((5, 2), jnp.bfloat16)],
    ids=["vector", "no features", "integers", "half precision"],
)
def test_features_of_the_wrong_kind_are_refused(features):
    with pytest.raises(InputError, match="expected non-empty float32 or float64 features"):
        subspace_distance(features, jnp.eye(5, 2))


@pytest.mark.parametrize(
    "metric",
    [
        subspace_distance,
        principal_angles,
        grassmann_distance,
        matched_cosines,
        longest_eigenvector_streak,
        align,
        representation_loss,
    ],
)
def test_arrays_over_different_states_are_refused(metric):
    with pytest.raises(InputError, match="expected a matrix over the features' 5 states"):
        metric(jnp.ones((5, 2)), jnp.ones((6, 2)))
