"""The form ŵ'(φᵀŵ − ψ) of every gradient, against a hand-written VJP and plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.errors import InputError
from rlreps.losses import (
    Batch,
    Roles,
    danskin_empirical,
    danskin_lissa,
    even_roles,
    large_batch,
    naive,
    two_weight_loss,
)

NUM_STATES, NUM_FEATURES = 40, 3
KAPPA0 = 1.3


def lookup(params, inputs):
    return params[inputs]


@jax.custom_vjp
def half_mean_squared_residual(features, targets, weights, other_weights):
    return 0.5 * jnp.mean((features @ weights - targets) ** 2)


def _forward(features, targets, weights, other_weights):
    saved = (features @ weights - targets, weights, other_weights)
    return half_mean_squared_residual(features, targets, weights, other_weights), saved


def _backward(saved, cotangent):
    residuals, weights, other_weights = saved
    zeros = jnp.zeros_like(weights)
    return (
        cotangent * residuals @ other_weights.T / residuals.size,
        jnp.zeros_like(residuals),
        zeros,
        zeros,
    )


half_mean_squared_residual.defvjp(_forward, _backward)


def _problem(num_tasks, seed=0):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(NUM_STATES, NUM_FEATURES)).astype(np.float32)
    matrix = rng.normal(size=(NUM_STATES, num_tasks)).astype(np.float32)
    rows = rng.permutation(NUM_STATES)[:30]
    return table, matrix, rows


def _batch(matrix, rows):
    return Batch(jnp.asarray(rows, jnp.int32), jnp.asarray(matrix[rows]))


def _lissa_weights(features, kappa, mean_rows, mean_targets):
    """Δ_J times mean φψ, from the recursion's definition in float64."""
    identity = np.eye(NUM_FEATURES)
    delta = kappa * identity
    for phi in features.astype(np.float64):
        delta = kappa * identity + (identity - kappa * np.outer(phi, phi)) @ delta
    return delta @ (mean_rows.T.astype(np.float64) @ mean_targets / len(mean_rows))


def _estimates(table, matrix, rows, roles):
    """Both weight estimates from the rows after the gradient's, in NumPy."""
    weights, start = [], roles.gradient
    for _ in range(2):
        mean_rows = rows[start : start + roles.weight]
        covariance_rows = rows[start + roles.weight : start + roles.weight + roles.covariance]
        features = table[covariance_rows]
        kappa = KAPPA0 / np.max(np.sum(features.astype(np.float64) ** 2, axis=1))
        weights.append(_lissa_weights(features, kappa, table[mean_rows], matrix[mean_rows]))
        start += roles.weight + roles.covariance
    return weights


@pytest.mark.parametrize("num_tasks", [1, 4])
def test_danskin_lissa_equals_the_closed_form_built_by_numpy_from_the_same_rows(num_tasks):
    table, matrix, rows = _problem(num_tasks)
    roles = Roles(gradient=6, weight=5, covariance=7)
    objective = danskin_lissa(NUM_FEATURES, roles=roles, kappa0=KAPPA0)
    value, gradient = jax.value_and_grad(
        lambda params: objective.loss(
            params,
            lookup,
            _batch(matrix, rows),
            objective.init(jax.random.key(0)),
            jax.random.key(1),
        )[0]
    )(jnp.asarray(table))
    w, w_prime = _estimates(table, matrix, rows, roles)
    residuals = table[rows[:6]].astype(np.float64) @ w - matrix[rows[:6]]
    expected = np.zeros((NUM_STATES, NUM_FEATURES))
    expected[rows[:6]] = residuals @ w_prime.T / residuals.size
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value, 0.5 * np.mean(residuals**2), rtol=1e-4)
    # The two estimates differ enough for the order of the factors to matter.
    swapped = (table[rows[:6]] @ w_prime - matrix[rows[:6]]) @ w.T / residuals.size
    assert np.abs(swapped - expected[rows[:6]]).max() > 1e-2


@pytest.mark.parametrize("num_tasks", [1, 4])
def test_the_surrogate_equals_a_hand_written_vjp_through_a_network(num_tasks):
    encoder = MLP(NUM_FEATURES, num_inputs=2, hidden=(16,))
    keys = jax.random.split(jax.random.key(3), 5)
    params = encoder.init(keys[0])
    inputs = jax.random.uniform(keys[1], (12, 2))
    targets = jax.random.normal(keys[2], (12, num_tasks))
    w = jax.random.normal(keys[3], (NUM_FEATURES, num_tasks))
    w_prime = jax.random.normal(keys[4], (NUM_FEATURES, num_tasks))

    def through(form):
        return jax.value_and_grad(lambda p: form(encoder.apply(p, inputs), targets, w, w_prime))(
            params
        )

    value, gradient = through(two_weight_loss)
    expected_value, expected = through(half_mean_squared_residual)
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    for leaf, expected_leaf in zip(
        jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(leaf, expected_leaf, rtol=1e-4, atol=1e-6)


def test_the_surrogate_scales_with_an_outer_factor_like_any_loss():
    table, matrix, _ = _problem(2)
    w, w_prime = np.random.default_rng(5).normal(size=(2, NUM_FEATURES, 2)).astype(np.float32)
    single = jax.grad(two_weight_loss)(table, matrix, w, w_prime)
    scaled = jax.grad(lambda features: 2.5 * two_weight_loss(features, matrix, w, w_prime))(table)
    np.testing.assert_allclose(scaled, 2.5 * single, rtol=1e-6)


def test_the_value_keeps_its_digits_where_the_surrogate_is_far_larger_than_it():
    features = jax.random.normal(jax.random.key(0), (10, NUM_FEATURES))
    weights = jax.random.normal(jax.random.key(1), (NUM_FEATURES, 1))
    targets = features @ weights + 0.01
    value = two_weight_loss(features, targets, weights, 1e6 * weights)
    np.testing.assert_allclose(value, 0.5 * 0.01**2, rtol=1e-3)


def test_no_gradient_flows_through_the_weights():
    table, matrix, _ = _problem(2)
    w, w_prime = np.random.default_rng(5).normal(size=(2, NUM_FEATURES, 2)).astype(np.float32)
    for argument in (2, 3):
        gradient = jax.grad(two_weight_loss, argnums=argument)(table, matrix, w, w_prime)
        np.testing.assert_array_equal(gradient, 0.0)


def test_rows_that_only_estimate_weights_cost_no_backward_pass():
    encoder = MLP(NUM_FEATURES, num_inputs=2, hidden=(64, 64))
    params = encoder.init(jax.random.key(0))
    batch = Batch(jnp.ones((250, 2)), jnp.ones((250, 2)))

    def flops(objective):
        def loss(params):
            state = objective.init(jax.random.key(0))
            return objective.loss(params, encoder.apply, batch, state, jax.random.key(1))[0]

        return jax.jit(jax.grad(loss)).lower(params).compile().cost_analysis()["flops"]

    # Forward costs 1 a row and backward 2: (250 + 2 * 50) / (250 + 2 * 250) = 0.47.
    assert flops(danskin_lissa(NUM_FEATURES)) < 0.65 * flops(large_batch())


@pytest.mark.parametrize(
    ("rows", "num_estimates", "expected"),
    [
        (250, 2, Roles(50, 50, 50)),
        (252, 2, Roles(52, 50, 50)),
        (5, 2, Roles(1, 1, 1)),
        (3, 1, Roles(1, 1, 1)),
    ],
)
def test_rows_are_shared_evenly_and_the_rest_goes_to_the_gradient(rows, num_estimates, expected):
    roles = even_roles(rows, num_estimates)
    assert roles == expected
    assert roles.rows(num_estimates) == rows


def test_fewer_rows_than_roles_are_refused():
    with pytest.raises(InputError, match="expected at least 5 rows a batch, got 4"):
        even_roles(4, 2)


@pytest.mark.parametrize("build", [danskin_lissa, danskin_empirical, naive])
@pytest.mark.parametrize("roles", [Roles(0, 1, 1), Roles(1, 0, 1), Roles(1, 1, 0)])
def test_an_empty_role_is_refused(build, roles):
    with pytest.raises(InputError, match="expected at least one row for each role"):
        build(NUM_FEATURES, roles=roles)


@pytest.mark.parametrize("build", [danskin_lissa, danskin_empirical, naive])
def test_a_batch_that_does_not_fit_the_roles_is_refused(build):
    table, matrix, rows = _problem(1)
    objective = build(NUM_FEATURES, roles=Roles(2, 3, 4))
    with pytest.raises(InputError, match=r"expected a batch of \d+ rows .*, got 30"):
        objective.loss(
            jnp.asarray(table),
            lookup,
            _batch(matrix, rows),
            objective.init(jax.random.key(0)),
            jax.random.key(0),
        )


@pytest.mark.parametrize("build", [danskin_lissa, danskin_empirical, naive])
def test_features_of_another_number_than_was_declared_are_refused(build):
    table, matrix, rows = _problem(1)
    objective = build(NUM_FEATURES + 1)
    with pytest.raises(InputError, match=r"expected features of shape \(30, 4\), got \(30, 3\)"):
        objective.loss(
            jnp.asarray(table),
            lookup,
            _batch(matrix, rows),
            objective.init(jax.random.key(0)),
            jax.random.key(0),
        )


@pytest.mark.parametrize("kappa0", [0.0, -0.5, 2.0, float("nan")])
def test_a_relative_step_size_outside_its_interval_is_refused(kappa0):
    with pytest.raises(InputError, match="kappa0"):
        danskin_lissa(NUM_FEATURES, kappa0=kappa0)


def test_other_options_out_of_range_are_refused():
    with pytest.raises(InputError, match=r"feature_norm.*got 'median'"):
        danskin_lissa(NUM_FEATURES, feature_norm="median")
    for build in (danskin_lissa, danskin_empirical, naive):
        with pytest.raises(InputError, match="expected permutations >= 1, got 0"):
            build(NUM_FEATURES, permutations=0)
        with pytest.raises(InputError, match="expected num_features >= 1, got 0"):
            build(0)
    for ridge in (0.0, -1.0, float("inf")):
        with pytest.raises(InputError, match="ridge"):
            large_batch(ridge=ridge)
