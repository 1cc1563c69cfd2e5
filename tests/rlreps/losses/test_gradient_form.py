"""The form ŵ'(φᵀŵ − ψ) of every gradient, against a hand-written VJP and plain NumPy."""

import functools
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.losses import Batch, DanskinLissa, two_weight_loss

NUM_STATES, NUM_FEATURES = 40, 3
KAPPA0 = 1.3
N, M, J = 6, 5, 7


def test_the_surrogate_is_pulled_back_through_a_network_and_keeps_the_values_digits():
    encoder = MLP(NUM_FEATURES, num_inputs=2, hidden=(16,))
    params, rng = encoder.init(jax.random.key(3)), np.random.default_rng(0)
    inputs, targets = rng.random((12, 2), np.float32), rng.standard_normal((12, 4), np.float32)
    w, w_prime = rng.standard_normal((2, NUM_FEATURES, 4), np.float32)

    @jax.jit
    def both(targets, *weights):
        features, pull_back = jax.vjp(lambda p: encoder.apply(p, inputs), params)
        residuals = features @ weights[0] - targets
        slopes = 2.5 * residuals @ weights[1].T / residuals.size

        def loss(p, *weights):
            # An outer factor scales the gradient as it does any loss's; the weights carry none.
            return 2.5 * two_weight_loss(encoder.apply(p, inputs), targets, *weights)

        found = jax.value_and_grad(loss, argnums=(0, 1, 2))(params, *weights)
        return features, found, (1.25 * jnp.mean(jnp.square(residuals)), pull_back(slopes)[0])

    features, (value, gradients), (expected_value, expected) = both(targets, w, w_prime)
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, gradients[0], expected)
    for weights in gradients[1:]:
        np.testing.assert_array_equal(weights, 0.0)
    # The value keeps its digits where the surrogate is far larger than it.
    value = both(np.asarray(features) @ w + np.float32(0.01), w, np.float32(1e6) * w)[1][0]
    np.testing.assert_allclose(value, 1.25 * 0.01**2, rtol=1e-3)


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
        return objective.loss(params, getitem, batch, state, key)[0]

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
