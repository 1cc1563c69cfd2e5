"""Objectives that solve for their weights, against autodiff through the solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.errors import InputError
from rlreps.losses import Batch, Population, large_batch, oracle
from rlreps.losses.large_batch import least_squares_weights


def lookup(params, inputs):
    return params[inputs]


def _projection_loss(features, targets):
    """½ min_W mean (ΦW − Ψ)², differentiable through the exact solve."""
    weights = jnp.linalg.solve(features.T @ features, features.T @ targets)
    return 0.5 * jnp.mean((features @ weights - targets) ** 2)


def _value_and_gradient(objective, table, matrix, rows=None, population=True):
    rows = np.arange(len(table)) if rows is None else rows
    states = jnp.arange(len(table))
    batch = Batch(
        jnp.asarray(rows),
        jnp.asarray(matrix[rows]),
        population=Population(states, jnp.asarray(matrix)) if population else None,
    )
    (value, _), gradient = jax.value_and_grad(objective.loss, has_aux=True)(
        jnp.asarray(table),
        lookup,
        batch,
        objective.init(jax.random.key(0)),
        jax.random.key(0),
    )
    return float(value), np.asarray(gradient)


def _central_differences(function, table, step=1e-6):
    gradient = np.zeros_like(table)
    for index in np.ndindex(*table.shape):
        shift = np.zeros_like(table)
        shift[index] = step
        gradient[index] = (function(table + shift) - function(table - shift)) / (2 * step)
    return gradient


def _random(num_states, num_features, num_tasks, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_states, num_features)), rng.normal(size=(num_states, num_tasks))


@pytest.mark.parametrize("num_tasks", [1, 4])
def test_the_oracle_on_all_states_is_autodiff_through_the_exact_solve(num_tasks):
    table, matrix = _random(12, 3, num_tasks)
    with jax.enable_x64(True):
        value, gradient = _value_and_gradient(oracle(), table, matrix)
        expected = jax.grad(_projection_loss)(jnp.asarray(table), jnp.asarray(matrix))
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(value, _projection_loss(table, matrix), rtol=1e-12)
        differences = _central_differences(lambda t: float(_projection_loss(t, matrix)), table)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-8)


def test_the_oracle_through_a_network_is_autodiff_through_the_exact_solve():
    with jax.enable_x64(True):
        encoder = MLP(3, num_inputs=2, hidden=(16,))
        params = encoder.init(jax.random.key(0))
        inputs = jax.random.uniform(jax.random.key(1), (20, 2))
        targets = jax.random.normal(jax.random.key(2), (20, 5))
        batch = Batch(inputs, targets, population=Population(inputs, targets))
        objective = oracle()
        gradient, _ = jax.grad(objective.loss, has_aux=True)(
            params, encoder.apply, batch, (), jax.random.key(0)
        )
        expected = jax.grad(lambda p: _projection_loss(encoder.apply(p, inputs), targets))(params)
        for leaf, expected_leaf in zip(
            jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True
        ):
            assert leaf.dtype == jnp.float64
            np.testing.assert_allclose(leaf, expected_leaf, rtol=1e-6, atol=1e-10)


def test_the_oracle_keeps_the_populations_weights_whatever_rows_are_drawn():
    table, matrix = (array.astype(np.float32) for array in _random(12, 3, 2))
    rows = np.array([4, 4, 9, 0])
    value, gradient = _value_and_gradient(oracle(), table, matrix, rows)
    exact, *_ = np.linalg.lstsq(table.astype(np.float64), matrix, rcond=None)
    residuals = table[rows] @ exact - matrix[rows]
    expected = np.zeros((12, 3))
    np.add.at(expected, rows, residuals @ exact.T / residuals.size)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value, 0.5 * np.mean(residuals**2), rtol=1e-5)


def test_the_oracle_vanishes_on_the_principal_subspace():
    _, matrix = _random(12, 3, 9)
    basis, _, _ = np.linalg.svd(matrix, full_matrices=False)
    with jax.enable_x64(True):
        mixed = basis[:, :3] @ np.random.default_rng(1).normal(size=(3, 3))
        _, gradient = _value_and_gradient(oracle(), mixed, matrix)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


def test_the_oracle_takes_the_smallest_weights_where_features_are_dependent():
    table, matrix = (array.astype(np.float32) for array in _random(12, 3, 2))
    table[:, 2] = table[:, 0]
    _, gradient = _value_and_gradient(oracle(), table, matrix)
    smallest = np.linalg.pinv(table.astype(np.float64), rcond=1e-6) @ matrix
    residuals = table @ smallest - matrix
    np.testing.assert_allclose(gradient, residuals @ smallest.T / residuals.size, atol=1e-5)


def test_the_oracle_refuses_a_batch_without_its_population():
    table, matrix = _random(12, 3, 2)
    with pytest.raises(InputError, match="expected a batch with its population, got"):
        _value_and_gradient(
            oracle(), table.astype(np.float32), matrix.astype(np.float32), population=False
        )


@pytest.mark.parametrize("num_tasks", [1, 4])
def test_large_batch_is_autodiff_through_its_own_least_squares(num_tasks):
    table, matrix = _random(30, 3, num_tasks)
    rows = np.arange(20)
    with jax.enable_x64(True):
        value, gradient = _value_and_gradient(large_batch(ridge=1e-12), table, matrix, rows)
        own = _projection_loss(table[rows], matrix[rows])
        expected = jax.grad(_projection_loss)(jnp.asarray(table[rows]), jnp.asarray(matrix[rows]))
        np.testing.assert_allclose(gradient[rows], expected, rtol=1e-8, atol=1e-11)
        np.testing.assert_array_equal(gradient[20:], 0.0)
        np.testing.assert_allclose(value, own, rtol=1e-10)


@pytest.mark.parametrize("num_tasks", [1, 4])
def test_large_batch_in_single_precision_is_as_close_as_its_ridge_allows(num_tasks):
    table, matrix = (array.astype(np.float32) for array in _random(60, 5, num_tasks))
    _, gradient = _value_and_gradient(large_batch(), table, matrix)
    expected = jax.grad(_projection_loss)(jnp.asarray(table), jnp.asarray(matrix))
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def test_large_batch_with_fewer_rows_than_features_fits_them_and_stays_put():
    table, matrix = (array.astype(np.float32) for array in _random(4, 10, 3))
    value, gradient = _value_and_gradient(large_batch(), table, matrix)
    assert 0.0 <= value < 1e-8
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


def test_large_batch_takes_the_smallest_weights_where_features_are_dependent():
    table, matrix = (array.astype(np.float32) for array in _random(30, 4, 3))
    table[:, 3] = 2.0 * table[:, 0]
    weights = np.asarray(least_squares_weights(jnp.asarray(table), jnp.asarray(matrix), 1e-6))
    smallest = np.linalg.pinv(table.astype(np.float64), rcond=1e-6) @ matrix
    np.testing.assert_allclose(table @ weights, table @ smallest, atol=1e-5)
    # Along the direction without features, rounding enters divided by the ridge.
    np.testing.assert_allclose(weights, smallest, atol=3e-3)


def _features(kind, num_rows, num_features, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_rows, num_features))
    if kind == "large mean":
        features = 1e-2 * features + rng.normal(size=(1, num_features))
    if kind == "fresh network":
        hidden = np.maximum(rng.uniform(size=(num_rows, 2)) @ rng.normal(size=(2, 512)), 0.0)
        hidden = np.maximum(hidden @ rng.normal(size=(512, 512)) / 16.0, 0.0)
        features = hidden @ rng.normal(size=(512, num_features)) / 16.0
    if kind == "duplicates":
        features[:, num_features // 2 :] = features[:, : num_features - num_features // 2]
    return features.astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "large mean", "fresh network", "duplicates"])
@pytest.mark.parametrize(("num_rows", "num_features"), [(250, 10), (250, 100), (50, 100), (5, 200)])
def test_least_squares_weights_stay_finite_and_near_optimal(kind, num_rows, num_features):
    for seed in range(3):
        features = _features(kind, num_rows, num_features, seed)
        targets = np.random.default_rng(100 + seed).normal(size=(num_rows, 4)).astype(np.float32)
        weights = np.asarray(least_squares_weights(jnp.asarray(features), targets, 1e-6))
        assert np.all(np.isfinite(weights))

        wide = features.astype(np.float64)
        # In float32 the ridge is ten roundings of the trace at least.
        scale = max(1e-6 / num_features, 10 * np.finfo(np.float32).eps) * np.sum(wide**2)
        best = np.linalg.solve(wide.T @ wide + scale * np.eye(num_features), wide.T @ targets)
        best_loss, loss = (
            np.sum((wide @ each - targets) ** 2) + scale * np.sum(each**2)
            for each in (best, weights.astype(np.float64))
        )
        assert best_loss <= loss < best_loss + 0.01 * np.sum(targets**2)


@pytest.mark.parametrize("scale", [0.0, 1e-25, 1e-12, 1e12])
def test_large_batch_survives_features_of_any_scale(scale):
    table, matrix = (array.astype(np.float32) for array in _random(30, 4, 3))
    value, gradient = _value_and_gradient(large_batch(), np.float32(scale) * table, matrix)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    if scale in (1e-12, 1e12):
        unscaled_value, unscaled = _value_and_gradient(large_batch(), table, matrix)
        np.testing.assert_allclose(value, unscaled_value, rtol=1e-4)
        np.testing.assert_allclose(gradient * scale, unscaled, rtol=1e-3, atol=1e-5)
