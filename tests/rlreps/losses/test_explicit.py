"""Explicit weights: joint descent, sparse steps, an optimizer to each task."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlreps.errors import InputError
from rlreps.losses import Batch, explicit

NUM_STATES, NUM_FEATURES, NUM_TASKS = 20, 3, 8


def lookup(params, inputs):
    return params[inputs]


def _problem(seed=0):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(NUM_STATES, NUM_FEATURES)).astype(np.float32)
    matrix = rng.normal(size=(NUM_STATES, NUM_TASKS)).astype(np.float32)
    return table, matrix


def _batch(matrix, rows, tasks):
    tasks = np.asarray(tasks)
    return Batch(
        jnp.asarray(rows, jnp.int32),
        jnp.asarray(matrix[np.asarray(rows)[:, None], tasks[None, :]]),
        jnp.asarray(tasks, jnp.int32),
    )


def _gradient(objective, table, batch, state):
    return jax.value_and_grad(objective.loss, has_aux=True)(
        jnp.asarray(table), lookup, batch, state, jax.random.key(0)
    )


def _with_weights(objective):
    """A state in the middle of training: its weights start at zero."""
    state = objective.init(jax.random.key(0))
    weights = 0.5 * jax.random.normal(jax.random.key(1), state.weights.shape)
    return state._replace(weights=weights)


def test_features_and_weights_descend_the_joint_loss():
    table, matrix = _problem()
    rows, tasks = np.arange(12), np.array([5, 0, 3])
    learning_rate = 0.1
    objective = explicit(NUM_FEATURES, NUM_TASKS, optimizer=optax.sgd(learning_rate))
    state = _with_weights(objective)
    batch = _batch(matrix, rows, tasks)

    def joint(features, weights):
        return 0.5 * jnp.mean(
            (features[rows] @ weights[tasks].T - matrix[np.ix_(rows, tasks)]) ** 2
        )

    value, (by_features, by_weights) = jax.value_and_grad(joint, argnums=(0, 1))(
        jnp.asarray(table), state.weights
    )
    (loss, (new_state, _)), gradient = _gradient(objective, table, batch, state)
    np.testing.assert_allclose(loss, value, rtol=1e-6)
    np.testing.assert_allclose(gradient, by_features, rtol=1e-5, atol=1e-7)
    # The joint loss averages over tasks; each task's own optimizer descends its own column's loss.
    own = len(tasks) * by_weights
    np.testing.assert_allclose(
        new_state.weights, state.weights - learning_rate * own, rtol=1e-5, atol=1e-6
    )


def test_only_the_sampled_columns_move():
    table, matrix = _problem()
    objective = explicit(NUM_FEATURES, NUM_TASKS, optimizer=optax.adam(0.1))
    state = _with_weights(objective)
    # Momentum from a step with every task must not move a column that is not drawn afterwards.
    (_, (state, _)), _ = _gradient(objective, table, _batch(matrix, range(5), range(8)), state)
    (_, (after, _)), _ = _gradient(objective, table, _batch(matrix, range(5), [2, 6]), state)
    moved = np.flatnonzero(np.any(np.asarray(after.weights != state.weights), axis=1))
    np.testing.assert_array_equal(moved, [2, 6])
    for leaf, before in zip(
        jax.tree.leaves(after.optimizer), jax.tree.leaves(state.optimizer), strict=True
    ):
        untouched = [0, 1, 3, 4, 5, 7]
        np.testing.assert_array_equal(leaf[jnp.array(untouched)], before[jnp.array(untouched)])


def test_a_task_drawn_twice_makes_one_step():
    table, matrix = _problem()
    objective = explicit(NUM_FEATURES, NUM_TASKS, optimizer=optax.adam(0.1))
    state = _with_weights(objective)
    (_, (once, _)), _ = _gradient(objective, table, _batch(matrix, range(5), [2, 6]), state)
    (_, (twice, _)), _ = _gradient(objective, table, _batch(matrix, range(5), [2, 6, 2, 2]), state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), once, twice)


def test_each_task_has_adams_moments_and_count_to_itself():
    table, matrix = _problem()
    rate, beta_1, beta_2, epsilon = 0.05, 0.9, 0.999, 1e-8
    objective = explicit(NUM_FEATURES, NUM_TASKS, optimizer=optax.adam(rate))
    state = _with_weights(objective)
    weights = np.asarray(state.weights, np.float64)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    counts = np.zeros(NUM_TASKS, int)
    rng = np.random.default_rng(4)
    for _ in range(12):
        rows = rng.integers(0, NUM_STATES, size=6)
        # Low tasks are drawn far more often than high ones.
        tasks = np.flatnonzero(rng.uniform(size=NUM_TASKS) < 1.0 / (1.0 + np.arange(NUM_TASKS)))
        (_, (state, _)), _ = _gradient(objective, table, _batch(matrix, rows, tasks), state)
        for task in tasks:
            counts[task] += 1
            residual = table[rows] @ weights[task] - matrix[rows, task]
            gradient = table[rows].T @ residual / len(rows)
            first[task] = beta_1 * first[task] + (1 - beta_1) * gradient
            second[task] = beta_2 * second[task] + (1 - beta_2) * gradient**2
            corrected = first[task] / (1 - beta_1 ** counts[task])
            scale = np.sqrt(second[task] / (1 - beta_2 ** counts[task])) + epsilon
            weights[task] -= rate * corrected / scale
    assert len(set(counts)) > 3
    np.testing.assert_allclose(state.weights, weights, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(state.optimizer[0].count, counts)


def test_joint_descent_finds_the_principal_subspace():
    _, matrix = _problem()
    objective = explicit(NUM_FEATURES, NUM_TASKS, optimizer=optax.sgd(0.3))
    batch = _batch(matrix, range(NUM_STATES), range(NUM_TASKS))

    def step(carry, _):
        table, state = carry
        gradient, (state, _) = jax.grad(objective.loss, has_aux=True)(
            table, lookup, batch, state, jax.random.key(0)
        )
        # The loss averages over rows and tasks; this is each row's own step.
        return (table - 0.3 * NUM_STATES * gradient, state), None

    start = (jax.random.normal(jax.random.key(0), (NUM_STATES, NUM_FEATURES)),)
    (table, _), _ = jax.lax.scan(step, (*start, _with_weights(objective)), length=3_000)
    basis = np.linalg.svd(matrix, full_matrices=False)[0][:, :NUM_FEATURES]
    cosines = np.linalg.svd(np.linalg.qr(np.asarray(table, np.float64))[0].T @ basis)[1]
    np.testing.assert_allclose(cosines, 1.0, atol=1e-4)


def test_features_rest_until_their_tasks_have_been_seen():
    table, matrix = _problem()
    objective = explicit(NUM_FEATURES, NUM_TASKS, optimizer=optax.sgd(0.1))
    state = objective.init(jax.random.key(0))
    (_, (state, _)), first = _gradient(objective, table, _batch(matrix, range(9), [2]), state)
    (_, (state, _)), unseen = _gradient(objective, table, _batch(matrix, range(9), [3]), state)
    _, seen = _gradient(objective, table, _batch(matrix, range(9), [2]), state)
    np.testing.assert_array_equal(first, 0.0)
    np.testing.assert_array_equal(unseen, 0.0)
    assert np.any(np.asarray(seen) != 0.0)


def test_a_batch_without_tasks_is_refused():
    table, matrix = _problem()
    objective = explicit(NUM_FEATURES, NUM_TASKS, optimizer=optax.sgd(0.1))
    batch = _batch(matrix, range(5), [0])._replace(tasks=None)
    with pytest.raises(InputError, match="expected a batch that names its tasks, got tasks=None"):
        _gradient(objective, table, batch, objective.init(jax.random.key(0)))


def test_sizes_that_do_not_fit_are_refused():
    table, matrix = _problem()
    with pytest.raises(InputError, match="expected num_tasks >= 1, got 0"):
        explicit(NUM_FEATURES, 0, optimizer=optax.sgd(0.1))
    with pytest.raises(InputError, match="expected num_features >= 1, got 0"):
        explicit(0, NUM_TASKS, optimizer=optax.sgd(0.1))
    objective = explicit(NUM_FEATURES + 1, NUM_TASKS, optimizer=optax.sgd(0.1))
    with pytest.raises(InputError, match=r"expected features of shape \(5, 4\), got \(5, 3\)"):
        _gradient(
            objective, table, _batch(matrix, range(5), [0]), objective.init(jax.random.key(0))
        )
