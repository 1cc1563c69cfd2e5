"""Explicit weights: joint descent, sparse steps, an Adam to each task."""

import dataclasses
import functools
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.losses import Batch, Explicit

NUM_STATES, NUM_FEATURES, NUM_TASKS = 20, 3, 8
RATE = 0.05
OBJECTIVE = Explicit(NUM_FEATURES, num_tasks=NUM_TASKS, weight_learning_rate=RATE)
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(NUM_STATES, NUM_FEATURES)).astype(np.float32)
MATRIX = RNG.normal(size=(NUM_STATES, NUM_TASKS)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def update(objective, table, state, rows, tasks):
    batch = Batch(rows, jnp.asarray(MATRIX)[rows[:, None], tasks[None, :]], tasks)
    (value, (state, _)), gradient = jax.value_and_grad(objective.loss, has_aux=True)(
        table, getitem, batch, state, None
    )
    return value, gradient, state


def _update(state, rows, tasks, objective=OBJECTIVE):
    rows, tasks = (jnp.asarray(each, jnp.int32) for each in (rows, tasks))
    return update(objective, TABLE, state, rows, tasks)


def _with_weights():
    """A state in the middle of training: its weights start at zero."""
    state = OBJECTIVE.init(jax.random.key(0))
    weights = 0.5 * jax.random.normal(jax.random.key(1), state.weights.shape)
    return state._replace(weights=weights)


def test_the_gradient_is_that_of_the_joint_loss():
    rows, tasks, state = np.arange(6), np.array([5, 0, 3]), _with_weights()
    weights = np.asarray(state.weights)[tasks]
    residuals = TABLE[rows] @ weights.T - MATRIX[np.ix_(rows, tasks)]
    expected = np.zeros_like(TABLE)
    expected[rows] = residuals @ weights / residuals.size
    value, gradient, _ = _update(state, rows, tasks)
    np.testing.assert_allclose(value, 0.5 * np.mean(residuals**2), rtol=1e-6)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dense", [False, True])
def test_each_sampled_task_has_an_adam_to_itself_or_all_tasks_one_that_moves_them_all(dense):
    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-8
    objective = dataclasses.replace(OBJECTIVE, dense_optimizer=dense, weight_start=0.5)
    state = objective.init(jax.random.key(1))
    weights = np.asarray(state.weights, np.float64)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    counts = np.zeros(NUM_TASKS, int)
    rng = np.random.default_rng(4)
    for _ in range(15):
        rows = rng.integers(0, NUM_STATES, size=6)
        # Low tasks are drawn far more often than high ones, some of them twice.
        chances = 1.0 / (1.0 + np.arange(NUM_TASKS))
        tasks = rng.choice(NUM_TASKS, size=3, p=chances / chances.sum())
        _, _, state = _update(state, rows, tasks, objective)
        for task in range(NUM_TASKS) if dense else {*tasks}:
            counts[task] += 1
            residual = TABLE[rows] @ weights[task] - MATRIX[rows, task]
            # Tasks that were not sampled have no gradient, only momentum.
            gradient = (task in tasks) * TABLE[rows].T @ residual / len(rows)
            first[task] = beta_1 * first[task] + (1 - beta_1) * gradient
            second[task] = beta_2 * second[task] + (1 - beta_2) * gradient**2
            corrected = first[task] / (1 - beta_1 ** counts[task])
            scale = np.sqrt(second[task] / (1 - beta_2 ** counts[task])) + epsilon
            weights[task] -= RATE * corrected / scale
    assert dense or (len(set(counts)) > 3 and 0 in counts and counts.sum() < 45)
    np.testing.assert_allclose(state.weights, weights, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(state.optimizer[0].count, 15 if dense else counts)


def test_the_authors_weights_start_from_a_standard_normal_and_ours_from_zero():
    published = Explicit(50, num_tasks=400, weight_learning_rate=RATE, weight_start=1.0)
    weights = np.asarray(published.init(jax.random.key(0)).weights)
    # 20,000 draws: five standard errors.
    assert abs(weights.std() - 1.0) < 5.0 / 40_000**0.5
    assert not np.any(OBJECTIVE.init(jax.random.key(0)).weights)


def test_without_a_rate_of_its_own_the_weights_take_the_encoders():
    rows, tasks, state = np.arange(6), np.array([5, 0, 3]), _with_weights()
    rates = {"weight_learning_rate": None, "encoder_learning_rate": RATE}
    taken = dataclasses.replace(OBJECTIVE, **rates)
    found, expected = (_update(state, rows, tasks, each)[2] for each in (taken, OBJECTIVE))
    np.testing.assert_array_equal(found.weights, expected.weights)
