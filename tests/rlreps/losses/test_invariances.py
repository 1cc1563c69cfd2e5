"""What the representation loss does not depend on, its objectives must not depend on either."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.losses import (
    Batch,
    Population,
    Roles,
    danskin_empirical,
    danskin_lissa,
    large_batch,
    naive,
    oracle,
)
from rlreps.losses.whitening import init_whitening, update_whitening, whitener

NUM_STATES, NUM_FEATURES, NUM_TASKS, NUM_ROWS = 30, 4, 3, 60

OBJECTIVES = {
    "danskin_lissa": danskin_lissa(NUM_FEATURES, kappa0=1.2),
    "danskin_lissa running": danskin_lissa(NUM_FEATURES, kappa0=1.2, feature_norm="running"),
    "danskin_lissa permuted": danskin_lissa(NUM_FEATURES, kappa0=1.2, permutations=3),
    "danskin_lissa whitened": danskin_lissa(NUM_FEATURES, kappa0=1.2, whitening=True),
    "danskin_empirical": danskin_empirical(NUM_FEATURES),
    "naive": naive(NUM_FEATURES),
    "naive whitened": naive(NUM_FEATURES, whitening=True),
    "large_batch": large_batch(),
    "oracle": oracle(),
}
each_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES.keys())


def lookup(params, inputs):
    return params[inputs]


def _problem(seed=0):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(NUM_STATES, NUM_FEATURES))
    matrix = rng.normal(size=(NUM_STATES, NUM_TASKS))
    return table, matrix


def _second_gradient(objective, table, matrix, dtype=np.float32):
    """The gradient of the second of two updates at the same features: running averages are in."""
    table, matrix = jnp.asarray(table, dtype), jnp.asarray(matrix, dtype)
    rng = np.random.default_rng(1)
    state = objective.init(jax.random.key(0))
    for _ in range(2):
        rows = jnp.asarray(rng.integers(0, NUM_STATES, size=NUM_ROWS), jnp.int32)
        population = Population(jnp.arange(NUM_STATES), matrix)
        batch = Batch(rows, matrix[rows], population=population)
        (value, (state, _)), gradient = jax.value_and_grad(objective.loss, has_aux=True)(
            table, lookup, batch, state, jax.random.key(2)
        )
    return float(value), np.asarray(gradient)


@each_objective
def test_rotated_features_get_the_rotated_gradient(objective):
    table, matrix = _problem()
    rotation, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(NUM_FEATURES, NUM_FEATURES)))
    value, gradient = _second_gradient(objective, table, matrix)
    rotated_value, rotated = _second_gradient(objective, table @ rotation, matrix)
    np.testing.assert_allclose(rotated, gradient @ rotation, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(rotated_value, value, rtol=1e-4)


@each_objective
def test_scaled_targets_scale_the_gradient_quadratically(objective):
    table, matrix = _problem()
    value, gradient = _second_gradient(objective, table, matrix)
    scaled_value, scaled = _second_gradient(objective, table, 3.0 * matrix)
    np.testing.assert_allclose(scaled, 9.0 * gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scaled_value, 9.0 * value, rtol=1e-4)


@each_objective
def test_scaled_features_scale_the_gradient_inversely(objective):
    table, matrix = _problem()
    value, gradient = _second_gradient(objective, table, matrix)
    scaled_value, scaled = _second_gradient(objective, 100.0 * table, matrix)
    np.testing.assert_allclose(100.0 * scaled, gradient, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(scaled_value, value, rtol=1e-4)


def test_rotated_tasks_leave_the_gradient_of_the_whole_matrix_as_it_is():
    table, matrix = _problem()
    rotation, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(NUM_TASKS, NUM_TASKS)))
    for name, objective in OBJECTIVES.items():
        value, gradient = _second_gradient(objective, table, matrix)
        rotated_value, rotated = _second_gradient(objective, table, matrix @ rotation)
        np.testing.assert_allclose(rotated, gradient, rtol=1e-3, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(rotated_value, value, rtol=1e-4, err_msg=name)


def _mixing(condition, seed=3):
    """An invertible map of the features with singular values from 1 to ``condition``."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.normal(size=(NUM_FEATURES, NUM_FEATURES)))
    right, _ = np.linalg.qr(rng.normal(size=(NUM_FEATURES, NUM_FEATURES)))
    return left @ np.diag(np.geomspace(1.0, condition, NUM_FEATURES)) @ right


@pytest.mark.parametrize("build", [danskin_empirical, naive])
def test_whitening_changes_nothing_where_the_inverse_covariance_is_exact(build):
    # Twelve rows of four features: (Φ̂ᵀΦ̂/J)† is an inverse, and any invertible map cancels.
    table, matrix = _problem()
    _, gradient = _second_gradient(build(NUM_FEATURES), table, matrix)
    _, whitened = _second_gradient(build(NUM_FEATURES, whitening=True), table, matrix)
    np.testing.assert_allclose(whitened, gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("feature_norm", ["batch", "running"])
def test_the_whitened_gradient_follows_any_invertible_map_of_the_features(feature_norm):
    table, matrix = _problem()
    mixing = _mixing(5.0)
    objective = danskin_lissa(NUM_FEATURES, kappa0=1.2, whitening=True, feature_norm=feature_norm)
    value, gradient = _second_gradient(objective, table, matrix)
    mixed_value, mixed = _second_gradient(objective, table @ mixing, matrix)
    # Up to the small ridge that keeps the running covariance invertible.
    np.testing.assert_allclose(mixed_value, value, rtol=1e-2)
    np.testing.assert_allclose(
        mixed, gradient @ np.linalg.inv(mixing).T, atol=0.02 * np.abs(gradient).max()
    )
    plain = danskin_lissa(NUM_FEATURES, kappa0=1.2, feature_norm=feature_norm)
    _, plain_gradient = _second_gradient(plain, table, matrix)
    _, plain_mixed = _second_gradient(plain, table @ mixing, matrix)
    followed = plain_gradient @ np.linalg.inv(mixing).T
    assert np.abs(plain_mixed - followed).max() > 0.1 * np.abs(plain_gradient).max()


def test_the_representation_loss_is_that_of_the_whitened_features():
    table, matrix = _problem()
    table = table @ _mixing(50.0)
    state = update_whitening(init_whitening(NUM_FEATURES), jnp.asarray(table, jnp.float32))
    whitened = table @ np.asarray(whitener(state), np.float64).T

    def loss(features):
        weights, *_ = np.linalg.lstsq(features, matrix, rcond=None)
        return np.mean((features @ weights - matrix) ** 2)

    np.testing.assert_allclose(loss(whitened), loss(table), rtol=1e-10)


def test_whitened_features_have_the_identity_for_a_covariance():
    table, _ = _problem()
    features = jnp.asarray(table @ _mixing(3.0), jnp.float32)
    state = init_whitening(NUM_FEATURES)
    np.testing.assert_array_equal(whitener(state), np.eye(NUM_FEATURES))
    for _ in range(3):
        state = update_whitening(state, features)
    whitened = np.asarray(features @ whitener(state).T, np.float64)
    np.testing.assert_allclose(whitened.T @ whitened / NUM_STATES, np.eye(NUM_FEATURES), atol=5e-3)


def test_the_running_covariance_is_the_decayed_mean_of_its_batches():
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(5, 8, NUM_FEATURES))
    state = init_whitening(NUM_FEATURES)
    for batch in batches:
        state = update_whitening(state, jnp.asarray(batch, jnp.float32))
    weights = 0.99 ** np.arange(4, -1, -1)
    expected = np.einsum("k,kbi,kbj->ij", weights / weights.sum(), batches, batches) / 8
    np.testing.assert_allclose(state.covariance / state.weight, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dead", ["all", "one", "repeated"])
def test_the_whitener_is_finite_for_features_that_do_not_fill_their_space(dead):
    table = np.array(_problem()[0], np.float32)
    if dead == "all":
        table[:] = 0.0
    elif dead == "one":
        table[:, 1] = 0.0
    else:
        table[:, 1] = table[:, 0]
    state = update_whitening(init_whitening(NUM_FEATURES), jnp.asarray(table))
    inverse_root = np.asarray(whitener(state))
    assert np.all(np.isfinite(inverse_root))
    # The ridge of 1e-4 bounds what a missing direction is multiplied by.
    mean_square = max(float(np.mean(table**2)), 1e-4)
    assert np.abs(inverse_root).max() <= 1.01 / np.sqrt(1e-4 * mean_square)


def test_whitening_by_elimination_is_whitening_by_cholesky():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 20)) * np.geomspace(1.0, 30.0, 20)
    state = update_whitening(init_whitening(20), jnp.asarray(features, jnp.float32))
    covariance = features.T @ features / 60
    covariance += 1e-4 * np.trace(covariance) / 20 * np.eye(20)
    expected = np.linalg.inv(np.linalg.cholesky(covariance))
    np.testing.assert_allclose(whitener(state), expected, rtol=1e-3, atol=1e-5)


def test_for_an_ill_conditioned_covariance_whitening_brings_the_series_nearer_to_lemma_1():
    table, matrix = _problem()
    table = table @ _mixing(10.0)
    exact, *_ = np.linalg.lstsq(table, matrix, rcond=None)
    residuals = table @ exact - matrix
    # Gradients are compared at whitened features, where every direction counts alike.
    root = np.linalg.cholesky(table.T @ table / NUM_STATES)
    lemma = residuals @ exact.T @ root / residuals.size
    roles = Roles(10, 20, 20)
    params, targets = jnp.asarray(table, jnp.float32), jnp.asarray(matrix, jnp.float32)

    def simulate(objective):
        whole = update_whitening(init_whitening(NUM_FEATURES), params)
        state = objective.init(jax.random.key(0))._replace(whitening=whole)

        @jax.jit
        @jax.vmap
        def one(key):
            rows = jax.random.randint(key, (roles.rows(2),), 0, NUM_STATES)
            batch = Batch(rows, targets[rows])
            return jax.grad(objective.loss, has_aux=True)(params, lookup, batch, state, key)[0]

        gradients = one(jax.random.split(jax.random.key(5), 4_000))
        gradients = np.asarray(gradients, np.float64) @ root
        error = gradients.std(axis=0, ddof=1) / np.sqrt(len(gradients))
        return np.linalg.norm(gradients.mean(axis=0) - lemma), np.linalg.norm(error)

    plain, plain_error = simulate(danskin_lissa(NUM_FEATURES, roles=roles, kappa0=1.0))
    whitened, error = simulate(danskin_lissa(NUM_FEATURES, roles=roles, kappa0=1.0, whitening=True))
    assert whitened < 0.5 * plain
    assert plain - whitened > 5.0 * (plain_error + error)


def test_the_running_norm_is_the_decayed_mean_of_batch_maxima():
    objective = danskin_lissa(NUM_FEATURES, feature_norm="running")
    table, matrix = _problem()
    rng = np.random.default_rng(0)
    state, expected = objective.init(jax.random.key(0)), None
    for _ in range(4):
        rows = rng.integers(0, NUM_STATES, size=10)
        largest = np.max(np.sum(table[rows] ** 2, axis=1))
        expected = largest if expected is None else 0.99 * expected + 0.01 * largest
        batch = Batch(jnp.asarray(rows), jnp.asarray(matrix[rows], jnp.float32))
        _, (state, metrics) = objective.loss(
            jnp.asarray(table, jnp.float32), lookup, batch, state, jax.random.key(0)
        )
        np.testing.assert_allclose(state.squared_norm, expected, rtol=1e-5)
        np.testing.assert_allclose(metrics["running_squared_norm"], expected, rtol=1e-5)


def test_a_running_norm_damps_rows_that_are_smaller_than_usual():
    table, matrix = _problem()
    roles = Roles(2, 3, 4)
    rows = jnp.arange(roles.rows(2))
    batch = Batch(rows, jnp.asarray(matrix, jnp.float32)[rows])
    small = jnp.asarray(0.1 * table, jnp.float32)

    def value(feature_norm, squared_norm):
        objective = danskin_lissa(NUM_FEATURES, roles=roles, feature_norm=feature_norm)
        state = objective.init(jax.random.key(0))._replace(squared_norm=jnp.float32(squared_norm))
        return float(objective.loss(small, lookup, batch, state, jax.random.key(0))[0])

    # A vanishing step size leaves weights near zero and the residual near the target.
    rest = 0.5 * np.mean(matrix[:2] ** 2)
    assert abs(value("running", 1e6) - rest) < 1e-3
    assert abs(value("batch", 1e6) - rest) > 1e-2
    # A running value below the rows' own maximum would let the series diverge: it is not used.
    np.testing.assert_allclose(value("running", 1e-6), value("batch", 1e-6), rtol=1e-6)


@pytest.mark.parametrize("permutations", [1, 4])
def test_a_state_is_not_touched_by_the_order_of_rows(permutations):
    table, matrix = _problem()
    objective = danskin_lissa(NUM_FEATURES, permutations=permutations, whitening=True)
    rows = np.random.default_rng(0).integers(0, NUM_STATES, size=20)
    states = []
    for order in (rows, rows[::-1].copy()):
        batch = Batch(jnp.asarray(order), jnp.asarray(matrix[order], jnp.float32))
        _, (state, _) = objective.loss(
            jnp.asarray(table, jnp.float32),
            lookup,
            batch,
            objective.init(jax.random.key(0)),
            jax.random.key(0),
        )
        states.append(state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), *states)
