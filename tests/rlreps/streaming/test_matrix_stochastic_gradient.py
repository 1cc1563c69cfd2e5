import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from rlreps.errors import InputError
from rlreps.streaming.matrix_stochastic_gradient import (
    capped_msg,
    incremental_msg,
    project_eigenvalues,
)
from rlreps.subspace import subspace_distance

FEATURES, COMPONENTS = 9, 3


def projected_by_root_finding(values, total):
    """The projection of float64 values, its shift found by Brent's method."""

    def excess(shift):
        return np.sum(np.clip(values + shift, 0.0, 1.0)) - total

    bound = np.abs(values).max() + 2.0
    return np.clip(values + brentq(excess, -bound, bound, xtol=1e-14), 0.0, 1.0)


def dense(state):
    """P as a matrix [features, features]."""
    rows = np.asarray(state.rows, np.float64)
    return rows.T * np.asarray(state.eigenvalues, np.float64) @ rows


def dense_projection(matrix, total, rank):
    """The nearest matrix, of the leading eigenvectors, with eigenvalues in [0, 1] of a sum."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    return vectors * projected_by_root_finding(values, total) @ vectors.T


SPECTRA = {
    "spread": [2.3, 1.1, 0.9, 0.4, 0.2, 0.05, 0.0],
    "all equal": [0.4] * 7,
    "all zero": [0.0] * 7,
    "one far above": [1e4, 0.5, 0.3, 0.2, 0.1, 0.0, 0.0],
    "already a projector": [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    "above one": [5.0, 4.0, 3.0, 2.5, 2.2, 2.1, 2.0],
    "near zero": [1e-6, 1e-7, 1e-7, 1e-8, 0.0, 0.0, 0.0],
    "ties at the cut": [1.0, 0.7, 0.7, 0.7, 0.7, 0.1, 0.0],
    "unordered": [0.1, 1.7, 0.0, 0.6, 0.6, 1.2, 0.3],
}


@pytest.mark.parametrize("total", [1, 3, 6, 7])
@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)
def test_eigenvalues_are_shifted_as_a_root_finder_says(values, total):
    values = np.asarray(values)
    found = project_eigenvalues(jnp.asarray(values, jnp.float32), total)
    atol = 1e-6 * max(1.0, np.abs(values).max())
    np.testing.assert_allclose(found, projected_by_root_finding(values, total), atol=atol)
    assert float(jnp.min(found)) >= 0.0
    assert float(jnp.max(found)) <= 1.0
    assert float(jnp.sum(found)) == pytest.approx(total, abs=atol)


@pytest.mark.parametrize(
    ("values", "total", "expected"),
    [
        ([1e9, 1e9, 1.0], 1, [0.5, 0.5, 0.0]),
        ([1.0, 1e9, 3e9, 0.5], 3, [0.75, 1.0, 1.0, 0.25]),
        ([7e12], 1, [1.0]),
        ([1e9, 1e9, 1e9], 3, [1.0, 1.0, 1.0]),
    ],
)
def test_huge_eigenvalues_keep_the_sum(values, total, expected):
    found = project_eigenvalues(jnp.asarray(values, jnp.float32), total)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_random_eigenvalues_are_shifted_as_a_root_finder_says():
    generator = np.random.default_rng(0)
    values = np.sort(generator.exponential(0.5, size=(200, 12)))[:, ::-1]
    found = jax.jit(jax.vmap(lambda values: project_eigenvalues(values, 4)))(
        jnp.asarray(values, jnp.float32)
    )
    expected = np.stack([projected_by_root_finding(row, 4) for row in values])
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert (np.diff(found) <= 0.0).all()


def test_projected_eigenvalues_are_the_nearest_of_all_that_are_allowed():
    values = np.asarray([1.6, 0.9, 0.5, 0.45, 0.1])
    nearest = minimize(
        lambda candidate: np.sum((candidate - values) ** 2),
        np.full(5, 0.4),
        jac=lambda candidate: 2.0 * (candidate - values),
        bounds=[(0.0, 1.0)] * 5,
        constraints={"type": "eq", "fun": lambda candidate: np.sum(candidate) - 2.0},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert nearest.success
    with jax.enable_x64(True):
        found = np.asarray(project_eigenvalues(jnp.asarray(values), 2))
    np.testing.assert_allclose(found, nearest.x, atol=1e-6)


RULES = {
    "uncapped": (lambda rate: incremental_msg(FEATURES, COMPONENTS, learning_rate=rate), FEATURES),
    "capped": (lambda rate: capped_msg(FEATURES, COMPONENTS, learning_rate=rate), COMPONENTS + 1),
    "capped at k": (
        lambda rate: capped_msg(FEATURES, COMPONENTS, learning_rate=rate, max_rank=COMPONENTS),
        COMPONENTS,
    ),
}


@pytest.mark.parametrize("size", [1, 2, 20])
@pytest.mark.parametrize(("build", "rank"), RULES.values(), ids=RULES)
def test_steps_are_those_of_the_dense_matrix(build, rank, size):
    generator = np.random.default_rng(1)
    with jax.enable_x64(True):
        rule = build(0.3)
        state = rule.init(jax.random.key(0))
        expected = dense(state)
        for _ in range(6):
            batch = generator.normal(size=(size, FEATURES))
            state = rule.update(state, jnp.asarray(batch))
            moved = expected + 0.3 * batch.T @ batch / size
            expected = dense_projection(moved, COMPONENTS, rank)
            np.testing.assert_allclose(dense(state), expected, atol=1e-10)
        assert state.rows.shape == (rank, FEATURES)


def test_a_cap_at_the_number_of_features_is_none():
    rows = jnp.asarray(np.random.default_rng(2).normal(size=(30, FEATURES)), jnp.float32)
    capped = capped_msg(FEATURES, COMPONENTS, learning_rate=0.1, max_rank=FEATURES)
    uncapped = incremental_msg(FEATURES, COMPONENTS, learning_rate=0.1)
    found = [rule.update_each(rule.init(jax.random.key(0)), rows) for rule in (capped, uncapped)]
    np.testing.assert_allclose(dense(found[0]), dense(found[1]), atol=1e-5)


def test_the_start_is_the_projector_onto_the_components():
    rule = capped_msg(FEATURES, COMPONENTS, learning_rate=0.1, max_rank=6)
    state = rule.init(jax.random.key(0))
    components = np.asarray(rule.components(state))
    np.testing.assert_allclose(dense(state), components @ components.T, atol=1e-6)


def test_as_many_components_as_features_leave_the_identity():
    rule = capped_msg(4, 4, learning_rate=0.5)
    rows = jnp.asarray(np.random.default_rng(3).normal(size=(20, 4)), jnp.float32)
    state = rule.update_each(rule.init(jax.random.key(0)), rows)
    np.testing.assert_allclose(dense(state), np.eye(4), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1e6])
def test_rows_of_any_length_leave_eigenvalues_in_range_with_sum_k(scale):
    rows = jnp.asarray(scale * np.random.default_rng(4).normal(size=(40, FEATURES)), jnp.float32)
    rule = capped_msg(FEATURES, COMPONENTS, learning_rate=1.0)
    state = rule.update_each(rule.init(jax.random.key(0)), rows)
    assert float(jnp.sum(state.eigenvalues)) == pytest.approx(COMPONENTS, rel=1e-5)
    assert 0.0 <= float(jnp.min(state.eigenvalues)) <= float(jnp.max(state.eigenvalues)) <= 1.0
    gram = np.asarray(state.rows @ state.rows.T)
    np.testing.assert_allclose(gram, np.eye(COMPONENTS + 1), atol=1e-5)


def test_a_cap_above_k_escapes_where_incremental_analysis_is_stuck():
    # Arora et al. 2013: with a cap at k no single row of the better direction is strong
    # enough to displace the worse one; one more dimension collects them.
    generator = np.random.default_rng(5)
    kinds = generator.random(1000) < 0.25
    rows = np.where(kinds[:, None], [[2.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]])
    rows[~kinds, 1] = 1.0
    best = jnp.asarray([[1.0], [0.0], [0.0]])
    start_rows = jnp.eye(3)[jnp.asarray([1, 2])]
    distances = []
    for rank in (1, 2):
        rule = capped_msg(3, 1, learning_rate=0.05, max_rank=rank)
        state = rule.init(jax.random.key(0))._replace(rows=start_rows[:rank])
        state = rule.update_each(state, jnp.asarray(rows, jnp.float32))
        distances.append(float(subspace_distance(rule.components(state), best)))
    assert distances[0] > 0.9
    assert distances[1] < 0.1


def test_combined_models_are_the_projected_mean_matrix():
    generator = np.random.default_rng(6)
    rule = incremental_msg(FEATURES, COMPONENTS, learning_rate=0.2)
    start = rule.init(jax.random.key(0))
    states = [
        rule.update(start, jnp.asarray(generator.normal(size=(9, FEATURES)), jnp.float32))
        for _ in range(3)
    ]
    weights = np.asarray([0.5, 1.0, 2.5])
    merged = rule.combine(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), jnp.asarray(weights, jnp.float32)
    )
    mean = np.tensordot(weights / weights.sum(), [dense(state) for state in states], axes=1)
    # A mean of allowed matrices is one: without a cap there is nothing to project.
    np.testing.assert_allclose(dense(merged), mean, atol=1e-5)


@pytest.mark.parametrize("rank", [2, 10])
def test_a_cap_below_k_or_above_the_features_is_refused(rank):
    with pytest.raises(InputError, match=rf"expected max_rank in \[3, 9\].*, got {rank}"):
        capped_msg(FEATURES, COMPONENTS, learning_rate=0.1, max_rank=rank)
