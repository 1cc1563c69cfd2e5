import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.decomposition import PCA, IncrementalPCA

from rlreps.streaming.incremental_pca import incremental_pca

FEATURES, COMPONENTS = 30, 5
RULE = incremental_pca(FEATURES, COMPONENTS)
UPDATE = jax.jit(RULE.update)
SPLITS = {
    "single rows": [1] * 60,
    "fewer than components": [3] * 20,
    "as many as components": [5] * 12,
    "uneven": [1, 7, 2, 31, 1, 1, 17],
    "one batch of more rows than features": [60],
}


def low_rank_rows(rank=COMPONENTS, rows=60, seed=0):
    """Rows of exact rank, centred, with singular values that differ."""
    generator = np.random.default_rng(seed)
    left = generator.normal(size=(rows, rank)) * 2.0 ** -np.arange(rank)
    left -= left.mean(axis=0)
    return left @ generator.normal(size=(rank, FEATURES))


def updated(rows, sizes, seed=0, rule=RULE, update=UPDATE):
    state = rule.init(jax.random.key(seed))
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        state = update(state, jnp.asarray(batch, jnp.float32))
    return state


def covariance(state):
    """XᵀX as the state has it."""
    rows = np.asarray(state.rows, np.float64)
    return rows.T * np.asarray(state.energies, np.float64) @ rows


def assert_orthonormal(rows, atol=1e-5):
    rows = np.asarray(rows, np.float64)
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=atol)


@pytest.mark.parametrize("sizes", SPLITS.values(), ids=SPLITS)
def test_rows_of_rank_k_in_any_batches_lead_to_the_exact_decomposition(sizes):
    data = low_rank_rows()
    state = updated(data, sizes)
    exact = PCA(COMPONENTS, svd_solver="full").fit(data)
    cosines = np.abs(np.asarray(state.rows, np.float64) @ exact.components_.T)
    np.testing.assert_allclose(cosines, np.eye(COMPONENTS), atol=1e-3)
    np.testing.assert_allclose(np.sqrt(state.energies), exact.singular_values_, rtol=1e-4)
    np.testing.assert_allclose(
        state.energies / float(state.rows_seen - 1), exact.explained_variance_, rtol=1e-4
    )
    assert_orthonormal(state.rows)
    assert int(state.rows_seen) == len(data)
    assert int(state.step) == len(sizes)


def test_in_double_precision_the_decomposition_is_exact_to_its_rounding():
    data = low_rank_rows()
    with jax.enable_x64(True):
        rule = incremental_pca(FEATURES, COMPONENTS)
        state = rule.update_each(rule.init(jax.random.key(0)), jnp.asarray(data[:40]))
        state = rule.update(state, jnp.asarray(data[40:]))
        found = covariance(state)
    np.testing.assert_allclose(found, data.T @ data, atol=1e-11 * np.linalg.norm(data) ** 2)


def test_all_components_of_full_rank_rows_are_kept_where_k_is_the_number_of_features():
    data = np.random.default_rng(1).normal(size=(50, 6))
    rule = incremental_pca(6, 6)
    for sizes in ([1] * 50, [5] * 10, [50]):
        state = updated(data, sizes, rule=rule, update=jax.jit(rule.update))
        np.testing.assert_allclose(covariance(state), data.T @ data, rtol=1e-3, atol=1e-3)
        assert_orthonormal(state.rows)


def test_where_ranks_are_cut_batches_do_what_scikit_learn_does():
    generator = np.random.default_rng(2)
    data = generator.normal(size=(200, FEATURES)) * np.linspace(3.0, 0.5, FEATURES)
    # Batches of mean zero, because scikit-learn corrects for each batch's mean.
    batches = data.reshape(10, 20, FEATURES)
    batches = batches - batches.mean(axis=1, keepdims=True)
    reference = IncrementalPCA(COMPONENTS)
    for batch in batches:
        reference.partial_fit(batch)
    state = updated(batches.reshape(200, -1), [20] * 10)
    np.testing.assert_allclose(np.sqrt(state.energies), reference.singular_values_, rtol=1e-4)
    cosines = np.abs(np.asarray(state.rows, np.float64) @ reference.components_.T)
    np.testing.assert_allclose(np.diagonal(cosines), 1.0, atol=1e-4)


def test_a_row_moves_the_state_as_the_decomposition_of_the_stacked_matrix_says():
    generator = np.random.default_rng(3)
    state = updated(generator.normal(size=(20, FEATURES)), [20])
    row = generator.normal(size=FEATURES)
    scaled = np.sqrt(np.asarray(state.energies, np.float64))[:, None] * np.asarray(state.rows)
    _, values, right = np.linalg.svd(np.vstack([scaled, row]), full_matrices=False)
    after = UPDATE(state, jnp.asarray(row[None, :], jnp.float32))
    np.testing.assert_allclose(np.sqrt(after.energies), values[:COMPONENTS], rtol=1e-5)
    cosines = np.abs(np.sum(np.asarray(after.rows) * right[:COMPONENTS], axis=1))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-5)


@pytest.mark.parametrize("sizes", [[1, 1], [2]], ids=["row by row", "together"])
def test_before_k_independent_rows_the_rest_of_the_basis_is_orthonormal_without_energy(sizes):
    data = low_rank_rows(rank=2, rows=2, seed=4)
    data[1] += 1.0
    state = updated(data, sizes)
    np.testing.assert_allclose(
        np.sqrt(state.energies[:2]), np.linalg.svd(data, compute_uv=False)[:2], rtol=1e-4
    )
    np.testing.assert_allclose(state.energies[2:], 0.0, atol=1e-4 * float(state.energies[0]))
    assert_orthonormal(state.rows)


HOSTILE = {
    "nothing but zeros": np.zeros((9, FEATURES)),
    "one row again and again": np.tile(np.arange(FEATURES) / 7.0, (9, 1)),
    "a row between two zeros": np.eye(9, FEATURES) * (np.arange(9) == 4)[:, None],
    "rows along one axis": np.outer(np.arange(9.0), np.eye(FEATURES)[3]),
    "a pair of directions by turns": np.eye(FEATURES)[np.arange(9) % 2],
    "rows of very different lengths": np.eye(9, FEATURES) * 10.0 ** -np.arange(9)[:, None],
    "rows of squares near the least number": np.eye(9, FEATURES) * 1e-17,
    "rows of squares near the largest number": np.eye(9, FEATURES) * 1e18,
    "duplicates before a new direction": np.eye(FEATURES)[[0, 0, 0, 1, 1, 1, 2, 2, 2]] + 0.1,
}


@pytest.mark.parametrize("size", [1, 3, 9])
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_dependent_rows_and_zeros_keep_the_basis_orthonormal_and_the_energies_right(data, size):
    state = updated(data, [size] * (9 // size))
    assert_orthonormal(state.rows)
    energies = np.asarray(state.energies, np.float64)
    assert (energies >= 0.0).all()
    exact = np.linalg.svd(data.astype(np.float64), compute_uv=False)[:COMPONENTS] ** 2
    np.testing.assert_allclose(energies, exact, atol=1e-5 * exact[0] + 1e-38)


@pytest.mark.parametrize("size", [1, 4])
def test_rows_of_zeros_leave_a_basis_without_energy_as_it_is(size):
    start = RULE.init(jax.random.key(0))
    after = UPDATE(start, jnp.zeros((size, FEATURES)))
    np.testing.assert_allclose(after.rows, start.rows, atol=1e-6)
    np.testing.assert_array_equal(after.energies, 0.0)
    assert int(after.rows_seen) == size


def test_a_long_stream_of_single_rows_keeps_its_basis_orthonormal():
    rows = np.random.default_rng(5).normal(size=(3000, FEATURES)) * 0.7 ** np.arange(FEATURES)
    state = jax.jit(RULE.update_each)(RULE.init(jax.random.key(0)), jnp.asarray(rows, jnp.float32))
    # 3000 is not a multiple of the updates between anchors: the drift since the last shows.
    assert_orthonormal(state.rows, atol=2e-5)
    exact = np.linalg.eigvalsh(rows.T @ rows)[::-1][:COMPONENTS]
    assert (np.asarray(state.energies) <= exact * (1 + 1e-3)).all()
    assert (np.asarray(state.energies) > 0.98 * exact).all()


def test_a_better_direction_is_dropped_anew_each_time_it_stays_below_the_components():
    # One component: 20 rows of length 1 along an axis, then rows of length 3 across it, whose sum
    # is far larger. Row by row each is dropped; together they take over.
    rule = incremental_pca(3, 1)
    weak, strong = np.tile([1.0, 0.0, 0.0], (20, 1)), np.tile([0.0, 3.0, 0.0], (200, 1))
    state = rule.update(rule.init(jax.random.key(0)), jnp.asarray(weak, jnp.float32))
    strong = jnp.asarray(strong, jnp.float32)
    one_by_one, together = rule.update_each(state, strong), rule.update(state, strong)
    np.testing.assert_allclose(np.abs(one_by_one.rows), [[1.0, 0.0, 0.0]], atol=1e-3)
    np.testing.assert_allclose(np.abs(together.rows), [[0.0, 1.0, 0.0]], atol=1e-3)


def stacked(states):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@pytest.mark.parametrize("workers", [2, 3])
def test_models_of_equal_weight_combine_to_the_decomposition_of_all_their_rows(workers):
    data = low_rank_rows()
    states = [updated(part, [len(part)], seed) for seed, part in enumerate(np.split(data, workers))]
    merged = RULE.combine(stacked(states), jnp.ones(workers))
    exact = np.linalg.svd(data)
    np.testing.assert_allclose(workers * merged.energies, exact.S[:COMPONENTS] ** 2, rtol=1e-3)
    cosines = np.abs(np.asarray(merged.rows, np.float64) @ exact.Vh[:COMPONENTS].T)
    np.testing.assert_allclose(cosines, np.eye(COMPONENTS), atol=1e-3)
    assert int(merged.rows_seen) == len(data) // workers
    assert_orthonormal(merged.rows)


def test_weights_scale_the_energies_of_what_is_combined():
    first, second = (low_rank_rows(rank=2, rows=10, seed=seed) for seed in (6, 7))
    states = stacked([updated(rows, [10]) for rows in (first, second)])
    merged = RULE.combine(states, jnp.asarray([1.0, 3.0]))
    expected = 0.25 * first.T @ first + 0.75 * second.T @ second
    np.testing.assert_allclose(covariance(merged), expected, atol=1e-4 * np.trace(expected))


def test_rounds_of_workers_weigh_all_rows_alike():
    data = low_rank_rows(rows=60).reshape(5, 3, 4, FEATURES)
    state = RULE.init(jax.random.key(0))
    for rounds in data:
        states = [UPDATE(state, jnp.asarray(rows, jnp.float32)) for rows in rounds]
        state = RULE.combine(stacked(states), jnp.ones(3))
    rows = data.reshape(60, FEATURES)
    np.testing.assert_allclose(
        3.0 * covariance(state), rows.T @ rows, atol=1e-4 * np.linalg.norm(rows) ** 2
    )


def test_models_without_energy_combine_to_their_common_span():
    start = RULE.init(jax.random.key(0))
    merged = RULE.combine(stacked([start, start, start]), jnp.ones(3))
    overlap = np.asarray(merged.rows, np.float64) @ np.asarray(start.rows, np.float64).T
    np.testing.assert_allclose(np.linalg.svd(overlap, compute_uv=False), 1.0, atol=1e-5)
    np.testing.assert_array_equal(merged.energies, 0.0)
