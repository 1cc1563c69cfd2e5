"""The form ŵ'(φᵀŵ − ψ) of every gradient, against a hand-written VJP and plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.losses import Batch, DanskinLissa, two_weight_loss

NUM_STATES, NUM_FEATURES = 40, 3
KAPPA0 = 1.3
N, M, J = 6, 5, 7


@jax.custom_vjp
def half_mean_squared_residual(features, targets, weights, other_weights):
    return 0.5 * jnp.mean((features @ weights - targets) ** 2)


def _forward(features, targets, weights, other_weights):
    saved = (features @ weights - targets, weights, other_weights)
    return half_mean_squared_residual(features, targets, weights, other_weights), saved


def _backward(saved, cotangent):
    residuals, weights, other_weights = saved
    zeros = jnp.zeros_like(weights)
    slopes = cotangent * residuals @ other_weights.T / residuals.size
    return slopes, jnp.zeros_like(residuals), zeros, zeros


half_mean_squared_residual.defvjp(_forward, _backward)


def test_the_surrogate_equals_a_hand_written_vjp_through_a_network():
    encoder = MLP(NUM_FEATURES, num_inputs=2, hidden=(16,))
    keys = jax.random.split(jax.random.key(3), 5)
    params = encoder.init(keys[0])
    inputs, targets = jax.random.uniform(keys[1], (12, 2)), jax.random.normal(keys[2], (12, 4))
    w, w_prime = (jax.random.normal(key, (NUM_FEATURES, 4)) for key in keys[3:])

    def through(form):
        def loss(p, *weights):
            return 2.5 * form(encoder.apply(p, inputs), targets, *weights)

        # An outer factor scales the gradient as it does any loss's; the weights carry none.
        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(params, w, w_prime)

    value, gradients = through(two_weight_loss)
    expected_value, expected = through(half_mean_squared_residual)
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradients, expected
    )
    for weights in gradients[1:]:
        np.testing.assert_array_equal(weights, 0.0)


def test_the_value_keeps_its_digits_where_the_surrogate_is_far_larger_than_it():
    features = jax.random.normal(jax.random.key(0), (10, NUM_FEATURES))
    weights = jax.random.normal(jax.random.key(1), (NUM_FEATURES, 1))
    value = two_weight_loss(features, features @ weights + 0.01, weights, 1e6 * weights)
    np.testing.assert_allclose(value, 0.5 * 0.01**2, rtol=1e-3)


def _lissa_weights(table, matrix, rows):
    """Δ_J times mean φψ from M + J rows, by the recursion's definition in float64."""
    mean_rows, covariance_rows = rows[:M], rows[M:]
    kappa = KAPPA0 / np.max(np.sum(table[covariance_rows] ** 2, axis=1))
    delta = kappa * np.eye(NUM_FEATURES)
    for phi in table[covariance_rows]:
        delta = kappa * np.eye(NUM_FEATURES) + delta - kappa * np.outer(phi, phi) @ delta
    return delta @ (table[mean_rows].T @ matrix[mean_rows] / M)


@pytest.mark.parametrize("permutations", [1, 3])
def test_danskin_lissa_equals_the_closed_form_built_by_numpy_from_the_same_rows(permutations):
    rng = np.random.default_rng(0)
    table, matrix = rng.normal(size=(NUM_STATES, NUM_FEATURES)), rng.normal(size=(NUM_STATES, 4))
    rows, key = rng.permutation(NUM_STATES)[:30], jax.random.key(1)
    objective = DanskinLissa(
        NUM_FEATURES,
        gradient_rows=N,
        weight_rows=M,
        covariance_rows=J,
        kappa0=KAPPA0,
        permutations=permutations,
    )
    batch = Batch(jnp.asarray(rows, jnp.int32), jnp.asarray(matrix[rows], jnp.float32))

    def loss(params):
        state = objective.init(key)
        return objective.loss(params, lambda p, s: p[s], batch, state, key)[0]

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.asarray(table, jnp.float32))
    orders = [np.arange(30)]
    if permutations > 1:
        keys = jax.random.split(key, permutations)
        orders = [np.asarray(jax.random.permutation(each, 30)) for each in keys]
    expected, expected_value = np.zeros_like(table), 0.0
    for order in orders:
        own, w, w_prime = (
            rows[order[:N]],
            *(
                _lissa_weights(table, matrix, rows[order[start : start + M + J]])
                for start in (N, N + M + J)
            ),
        )
        residuals = table[own] @ w - matrix[own]
        np.add.at(expected, own, residuals @ w_prime.T / residuals.size / permutations)
        expected_value += 0.5 * np.mean(residuals**2) / permutations
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(value, expected_value, rtol=1e-4)
    # The two estimates differ enough for the order of the factors to matter.
    swapped = (table[own] @ w_prime - matrix[own]) @ w.T / residuals.size
    assert np.abs(swapped - residuals @ w_prime.T / residuals.size).max() > 1e-2
