"""Least squares on the update's own batch: its preconditioner and its leave-one-out residuals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.losses import Batch, large_batch
from rlreps.losses.large_batch import leverages

NUM_STATES, NUM_FEATURES, NUM_TASKS = 30, 4, 9


def lookup(params, inputs):
    return params[inputs]


def _problem(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(NUM_STATES, NUM_FEATURES)), rng.normal(size=(NUM_STATES, NUM_TASKS))


def _gradient(objective, table, matrix, updates=1):
    """The gradient of the last of several updates at all states, times rows and tasks."""
    state, rows = objective.init(jax.random.key(0)), jnp.arange(NUM_STATES)
    batch = Batch(rows, jnp.asarray(matrix))
    for _ in range(updates):
        gradient, (state, _) = jax.grad(objective.loss, has_aux=True)(
            jnp.asarray(table), lookup, batch, state, jax.random.key(1)
        )
    return np.asarray(gradient) * matrix.size


def _descend(objective, table, matrix, rate, updates=25):
    """The table after plain gradient descent with all states in every update."""
    batch = Batch(jnp.arange(NUM_STATES), jnp.asarray(matrix))

    def update(carry, _):
        table, state = carry
        gradient, (state, _) = jax.grad(objective.loss, has_aux=True)(
            table, lookup, batch, state, jax.random.key(1)
        )
        return (table - rate * gradient, state), None

    start = (jnp.asarray(table), objective.init(jax.random.key(0)))
    return jax.lax.scan(update, start, length=updates)[0][0]


def _preconditioned(ridge=1e-12):
    return large_batch(NUM_FEATURES, ridge=1e-12, precondition=ridge)


def test_an_exactly_preconditioned_step_leads_to_the_alternating_least_squares_features():
    table, matrix = _problem()
    with jax.enable_x64(True):
        gradient = _gradient(_preconditioned(), table, matrix) / NUM_TASKS
    weights, *_ = np.linalg.lstsq(table, matrix, rcond=None)
    best, *_ = np.linalg.lstsq(weights.T, matrix.T, rcond=None)
    np.testing.assert_allclose(table - gradient, best.T, rtol=1e-7, atol=1e-7)


def test_the_ridge_is_relative_to_the_mean_eigenvalue_of_the_weights_moment():
    table, matrix = _problem()
    with jax.enable_x64(True):
        plain = _gradient(large_batch(ridge=1e-12), table, matrix)
        gradient = _gradient(_preconditioned(0.3), table, matrix)
    weights, *_ = np.linalg.lstsq(table, matrix, rcond=None)
    moment = weights @ weights.T / NUM_TASKS
    regular = moment + 0.3 * np.trace(moment) / NUM_FEATURES * np.eye(NUM_FEATURES)
    np.testing.assert_allclose(gradient, plain @ np.linalg.inv(regular), rtol=1e-8, atol=1e-10)


def test_the_moment_runs_over_updates():
    table, first = _problem()
    second = 5.0 * _problem(1)[1]
    objective, rows = _preconditioned(0.1), jnp.arange(NUM_STATES)
    with jax.enable_x64(True):
        state = objective.init(jax.random.key(0))
        for matrix in (first, second):
            gradient, (state, _) = jax.grad(objective.loss, has_aux=True)(
                jnp.asarray(table), lookup, Batch(rows, jnp.asarray(matrix)), state, None
            )
    weights = [np.linalg.lstsq(table, matrix, rcond=None)[0] for matrix in (first, second)]
    moments = [weight @ weight.T / NUM_TASKS for weight in weights]
    moment = (0.99 * moments[0] + moments[1]) / 1.99
    regular = moment + 0.1 * np.trace(moment) / NUM_FEATURES * np.eye(NUM_FEATURES)
    front = np.linalg.solve(regular, weights[1])
    expected = (table @ weights[1] - second) @ front.T / second.size
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-9)


def test_preconditioned_features_rotate_and_scale_with_the_features_and_ignore_the_targets_scale():
    table, matrix = _problem()
    rotation, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(NUM_FEATURES, NUM_FEATURES)))
    with jax.enable_x64(True):
        gradient = _gradient(_preconditioned(0.1), table, matrix, updates=2)
        rotated = _gradient(_preconditioned(0.1), 3.0 * table @ rotation, 7.0 * matrix, updates=2)
    np.testing.assert_allclose(rotated, 3.0 * gradient @ rotation, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("options", [{"precondition": 0.01}, {"leave_one_out": True}])
def test_the_options_leave_matrices_of_rank_d_as_solved(options):
    table, _ = _problem()
    matrix = table @ np.random.default_rng(3).normal(size=(NUM_FEATURES, NUM_TASKS))
    with jax.enable_x64(True):
        objective = large_batch(NUM_FEATURES, ridge=1e-12, **options)
        solved = _gradient(objective, table, matrix)
        unsolved = _gradient(objective, _problem(4)[0], matrix)
    # The covariance's rounding guard keeps residuals of 1e-14 of the targets.
    assert np.max(np.abs(solved)) < 1e-8 * np.max(np.abs(unsolved))


@pytest.mark.parametrize("options", [{"precondition": 0.01}, {"leave_one_out": True}])
def test_the_top_singular_subspace_stays_stationary_under_the_options(options):
    _, matrix = _problem()
    left, singular_values, _ = np.linalg.svd(matrix, full_matrices=False)
    mix = np.random.default_rng(5).normal(size=(NUM_FEATURES, NUM_FEATURES))
    with jax.enable_x64(True):
        objective = large_batch(NUM_FEATURES, ridge=1e-12, **options)
        gradient = _gradient(objective, left[:, :NUM_FEATURES] @ mix, matrix)
        elsewhere = _gradient(objective, _problem(4)[0], matrix)
    assert singular_values[NUM_FEATURES] > 1.0
    assert np.max(np.abs(gradient)) < 1e-6 * np.max(np.abs(elsewhere))


def test_preconditioned_descent_finds_small_directions_that_plain_descent_leaves():
    rng = np.random.default_rng(6)
    left, _ = np.linalg.qr(rng.normal(size=(NUM_STATES, NUM_TASKS)))
    right, _ = np.linalg.qr(rng.normal(size=(NUM_TASKS, NUM_TASKS)))
    values = np.array([100.0, 30.0, 10.0, 3.0, 0.3, 0.1, 0.1, 0.1, 0.1])
    matrix = left * values @ right.T
    captured = {}
    with jax.enable_x64(True):
        for name, objective in (("plain", large_batch()), ("preconditioned", _preconditioned())):
            table = rng.normal(size=(NUM_STATES, NUM_FEATURES))
            # The largest stable step of plain descent is set by its largest direction.
            rate = 0.5 if name == "preconditioned" else NUM_TASKS / 100.0**2
            basis, _ = np.linalg.qr(_descend(objective, table, matrix, rate * NUM_STATES))
            captured[name] = np.sum((basis.T @ left[:, :NUM_FEATURES]) ** 2)
    assert captured["preconditioned"] > NUM_FEATURES - 1e-3
    assert captured["plain"] < NUM_FEATURES - 0.5


def test_leave_one_out_residuals_are_those_of_weights_fitted_without_the_row():
    table, matrix = _problem()
    with jax.enable_x64(True):
        gradient = _gradient(large_batch(ridge=1e-12, leave_one_out=True), table, matrix)
    weights, *_ = np.linalg.lstsq(table, matrix, rcond=None)
    for row in range(NUM_STATES):
        others = np.arange(NUM_STATES) != row
        without, *_ = np.linalg.lstsq(table[others], matrix[others], rcond=None)
        expected = weights @ (table[row] @ without - matrix[row])
        np.testing.assert_allclose(gradient[row], expected, rtol=1e-7, atol=1e-8)


def test_leverages_sum_to_the_number_of_features_and_stay_below_one():
    table = jnp.asarray(_problem()[0], jnp.float32)
    values = np.asarray(leverages(table, 1e-6))
    np.testing.assert_allclose(values.sum(), NUM_FEATURES, rtol=1e-4)
    alone = np.asarray(leverages(table[:NUM_FEATURES], 1e-6))
    assert np.all(alone <= 0.999)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: large_batch(4, precondition=0.0), "expected a finite precondition > 0, got 0.0"),
        (lambda: large_batch(precondition=0.1), "expected num_features for a precondition"),
    ],
)
def test_preconditions_that_cannot_be_are_refused(build, message):
    with pytest.raises(InputError) as error:
        build()
    assert str(error.value).startswith(message)
