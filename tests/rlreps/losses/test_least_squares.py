"""Objectives that solve for their weights: the oracle and large batches, against exact solves."""

import functools
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.losses import Batch, LargeBatch, Oracle, Population
from rlreps.losses.least_squares import least_squares_weights, leverages

NUM_STATES, NUM_FEATURES, NUM_TASKS = 30, 4, 9
EXACT = LargeBatch(NUM_FEATURES, ridge=1e-12)
PRECONDITIONED = LargeBatch(NUM_FEATURES, ridge=1e-12, precondition=0.3)
LEFT_OUT = LargeBatch(NUM_FEATURES, ridge=1e-12, leave_one_out=True)


in_double_precision = pytest.mark.usefixtures("double_precision")


def _problem(seed=0, features=NUM_FEATURES):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(NUM_STATES, features)), rng.normal(size=(NUM_STATES, NUM_TASKS))


def _projection_loss(features, targets):
    """½ min_W mean (ΦW − Ψ)², differentiable through the exact solve."""
    weights = jnp.linalg.solve(features.T @ features, features.T @ targets)
    return 0.5 * jnp.mean((features @ weights - targets) ** 2)


_projection_gradient = jax.jit(jax.grad(_projection_loss))


@functools.partial(jax.jit, static_argnums=0)
def _update(objective, table, matrix, rows, state):
    batch = Batch(rows, matrix[rows], None, Population(jnp.arange(len(table)), matrix))
    (value, (state, _)), gradient = jax.value_and_grad(objective.loss, has_aux=True)(
        table, getitem, batch, state, jax.random.key(0)
    )
    return value, gradient, state


def _evaluate(objective, table, *matrices, rows=None):
    """Value and gradient of the last of several updates at the same features."""
    rows, state = np.arange(len(table)) if rows is None else rows, objective.init(None)
    for matrix in matrices:
        value, gradient, state = _update(objective, table, matrix, rows, state)
    return float(value), np.asarray(gradient)


@in_double_precision
def test_the_oracle_is_autodiff_through_the_exact_solve_and_finite_differences():
    table, matrix = _problem()
    value, gradient = _evaluate(Oracle(NUM_FEATURES), table, matrix)
    expected = _projection_gradient(table, matrix)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
    loss = jax.jit(_projection_loss)
    np.testing.assert_allclose(value, loss(table, matrix), rtol=1e-12)
    direction = np.random.default_rng(1).normal(size=table.shape)
    ends = [loss(table + step * direction, matrix) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(np.sum(gradient * direction), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def test_the_oracle_keeps_the_populations_smallest_weights_whatever_rows_are_drawn():
    table, matrix = (array.astype(np.float32) for array in _problem())
    table[:, 3] = table[:, 0]
    rows = np.array([4, 4, 9, 0])
    value, gradient = _evaluate(Oracle(NUM_FEATURES), table, matrix, rows=rows)
    exact = np.linalg.pinv(table.astype(np.float64), rcond=1e-6) @ matrix
    residuals = table[rows] @ exact - matrix[rows]
    expected = np.zeros_like(table, np.float64)
    np.add.at(expected, rows, residuals @ exact.T / residuals.size)
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(value, 0.5 * np.mean(residuals**2), rtol=1e-4)


@in_double_precision
def test_large_batch_is_autodiff_through_its_own_least_squares():
    table, matrix = _problem()
    rows = np.arange(20)
    value, gradient = _evaluate(EXACT, table, matrix, rows=rows)
    expected = _projection_gradient(table[rows], matrix[rows])
    np.testing.assert_allclose(gradient[rows], expected, rtol=1e-8, atol=1e-11)
    np.testing.assert_array_equal(gradient[20:], 0.0)
    np.testing.assert_allclose(value, _projection_loss(table[rows], matrix[rows]), rtol=1e-10)


@in_double_precision
@pytest.mark.parametrize("fitted", ["all", 20])
def test_weights_are_fitted_on_the_rows_that_are_named_and_the_gradient_taken_at_the_others(fitted):
    table, matrix = _problem()
    objective = LargeBatch(NUM_FEATURES, ridge=1e-12, weight_rows=fitted)
    # 250 rows of 10,000 in the paper: here the gradient's are the first, some of them twice.
    gradient_rows, others = np.array([3, 3, 25, 7, 0]), np.arange(5, 25)
    rows = gradient_rows if fitted == "all" else np.concatenate([gradient_rows, others])
    value, gradient = _evaluate(objective, table, matrix, rows=rows)
    behind = np.arange(NUM_STATES) if fitted == "all" else others
    weights, *_ = np.linalg.lstsq(table[behind], matrix[behind], rcond=None)
    residuals = table[gradient_rows] @ weights - matrix[gradient_rows]
    expected = np.zeros_like(table)
    np.add.at(expected, gradient_rows, residuals @ weights.T / residuals.size)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(value, 0.5 * np.mean(residuals**2), rtol=1e-10)


@in_double_precision
def test_the_preconditioner_is_the_inverse_of_a_running_moment_with_a_relative_ridge():
    table, first = _problem()
    matrices = (first, 5.0 * _problem(1)[1])
    _, gradient = _evaluate(PRECONDITIONED, table, *matrices)
    weights = [np.linalg.lstsq(table, matrix, rcond=None)[0] for matrix in matrices]
    moments = [weight @ weight.T / NUM_TASKS for weight in weights]
    moment = (0.99 * moments[0] + moments[1]) / 1.99
    regular = moment + 0.3 * np.trace(moment) / NUM_FEATURES * np.eye(NUM_FEATURES)
    residuals = table @ weights[1] - matrices[1]
    expected = residuals @ np.linalg.solve(regular, weights[1]).T / residuals.size
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-9)


@in_double_precision
def test_leave_one_out_residuals_are_those_of_weights_fitted_without_the_row():
    table, matrix = _problem()
    _, gradient = _evaluate(LEFT_OUT, table, matrix)
    weights, *_ = np.linalg.lstsq(table, matrix, rcond=None)
    for row in range(NUM_STATES):
        others = np.arange(NUM_STATES) != row
        without, *_ = np.linalg.lstsq(table[others], matrix[others], rcond=None)
        expected = weights @ (table[row] @ without - matrix[row]) / matrix.size
        np.testing.assert_allclose(gradient[row], expected, rtol=1e-7, atol=1e-10)
    found = jax.jit(leverages)
    np.testing.assert_allclose(found(table, 1e-12).sum(), NUM_FEATURES, rtol=1e-8)
    assert np.all(found(table[:NUM_FEATURES], 1e-6) <= 0.999)


def test_single_precision_and_features_of_any_scale_give_the_same_gradient():
    table, matrix = (array.astype(np.float32) for array in _problem())
    expected = np.asarray(_projection_gradient(table, matrix))
    for scale in (1.0, 1e-12, 1e12):
        _, gradient = _evaluate(LargeBatch(NUM_FEATURES), np.float32(scale) * table, matrix)
        np.testing.assert_allclose(gradient * scale, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("num_rows", "num_features"), [(250, 100), (50, 100)])
def test_least_squares_weights_stay_finite_and_near_optimal(num_rows, num_features):
    random = np.random.default_rng(0)
    features = random.normal(size=(num_rows, num_features))
    # Columns that nearly agree, and columns that agree.
    features = 1e-2 * features + random.normal(size=(1, num_features))
    features[:, num_features // 2 :] = features[:, : num_features // 2]
    features, targets = np.float32(features), random.normal(size=(num_rows, 4)).astype(np.float32)
    weights = np.asarray(jax.jit(least_squares_weights)(features, targets, 1e-6))
    wide = features.astype(np.float64)
    # In float32 the ridge is ten roundings of the trace at least.
    scale = max(1e-6 / num_features, 10 * np.finfo(np.float32).eps) * np.sum(wide**2)
    best = np.linalg.solve(wide.T @ wide + scale * np.eye(num_features), wide.T @ targets)
    best_loss, loss = (
        np.sum((wide @ each - targets) ** 2) + scale * np.sum(each**2)
        for each in (best, weights.astype(np.float64))
    )
    assert loss < best_loss + 0.01 * np.sum(targets**2)


@in_double_precision
def test_the_ridge_is_relative_to_the_mean_eigenvalue_of_the_features_moment():
    features, targets = _problem()
    moment = features.T @ features
    mean = np.linalg.eigvalsh(moment).mean()
    expected = np.linalg.solve(moment + 0.5 * mean * np.eye(NUM_FEATURES), features.T @ targets)
    found = least_squares_weights(jnp.asarray(features), jnp.asarray(targets), 0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
