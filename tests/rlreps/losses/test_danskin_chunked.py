"""Danskin-LISSA in chunks: its expected gradient, its fixed points and its running matrices."""

import dataclasses
import itertools
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.losses import Batch, DanskinChunked
from rlreps.losses.danskin_chunked import ChunkedState
from rlreps.numerics import DecayedMean

TABLE = np.array([[1.2, 0.4], [0.5, 1.1], [1.0, -0.6]])
MATRIX = np.array([[1.0, -0.5, 2.0], [0.3, 0.8, -1.0], [-0.7, 0.4, 0.6]])
NUM_STATES, NUM_FEATURES = TABLE.shape
COVARIANCE = TABLE.T @ TABLE / NUM_STATES
INVERSE = np.array([[0.7, 0.2], [0.2, 1.3]])


def _past(scale=1.0):
    """A state that earlier batches could have left: all constants, given the past."""
    identity, one = jnp.eye(NUM_FEATURES), jnp.ones(())
    running = DecayedMean(scale * identity, one)
    moment = DecayedMean(identity, one)
    return ChunkedState(running, moment, jnp.asarray(INVERSE, jnp.float32))


def _value_and_gradient(objective, rows, state, matrix=MATRIX):
    table, targets = jnp.asarray(TABLE, jnp.float32), jnp.asarray(matrix, jnp.float32)
    (value, _), gradient = jax.value_and_grad(objective.loss, has_aux=True)(
        table, getitem, Batch(rows, targets[rows]), state, None
    )
    return value, gradient


def _gradients(objective, rows, matrix=MATRIX):
    """Each batch's gradient with respect to the features of all states, [batches, n, d]."""
    one = jax.vmap(lambda rows: _value_and_gradient(objective, rows, _past(), matrix)[1])
    return np.asarray(jax.jit(one)(jnp.asarray(rows, jnp.int32)), np.float64)


def _expected(chunks, step, gauge, matrix=MATRIX):
    factor = np.eye(NUM_FEATURES) - step * COVARIANCE
    series = step * sum(np.linalg.matrix_power(factor, i) for i in range(chunks))
    weights = series @ (TABLE.T @ matrix / NUM_STATES)
    slopes = (TABLE @ weights - matrix) @ weights.T @ INVERSE / matrix.shape[1]
    return (slopes + gauge * TABLE @ (COVARIANCE - np.eye(NUM_FEATURES))) / NUM_STATES


@pytest.mark.parametrize(
    ("groups", "chunks", "rows", "num_tasks"),
    [
        (3, 2, 1, 3),
        *(pytest.param(*c, marks=pytest.mark.integration) for c in ((4, 1, 1, 1), (3, 1, 2, 3))),
    ],
)
def test_averaged_over_every_batch_the_gradient_is_that_of_the_truncated_series(
    groups, chunks, rows, num_tasks
):
    matrix, options = MATRIX[:, :num_tasks], {"chunk_step": 0.6, "gauge": 0.3}
    objective = DanskinChunked(NUM_FEATURES, groups=groups, chunks=chunks, **options)
    batches = np.array(list(itertools.product(range(NUM_STATES), repeat=groups * chunks * rows)))
    mean = _gradients(objective, batches, matrix).mean(axis=0)
    np.testing.assert_allclose(mean, _expected(chunks, 0.6, 0.3, matrix), atol=2e-6)


def test_descent_finds_the_principal_subspace_and_white_features():
    rng = np.random.default_rng(2)
    vectors, right = (np.linalg.qr(rng.normal(size=(n, 6)))[0] for n in (40, 30))
    matrix = vectors @ np.diag([80.0, 60.0, 50.0, 10.0, 7.0, 4.0]) @ right.T
    objective, targets = DanskinChunked(3, chunks=4, chunk_step=0.5), jnp.float32(matrix)

    def update(carry, key):
        table, state = carry
        drawn = jax.random.randint(key, (240,), 0, 40)
        gradient, (state, _) = jax.grad(objective.loss, has_aux=True)(
            table, getitem, Batch(drawn, targets[drawn]), state, key
        )
        # The loss averages over rows; this is each row's own step.
        return (table - 0.2 * 40 * gradient, state), None

    @jax.jit
    def descend(table):
        keys = jax.random.split(jax.random.key(1), 600)
        return jax.lax.scan(update, (table, objective.init(keys[0])), keys)[0]

    table, state = descend(0.3 * jax.random.normal(jax.random.key(0), (40, 3)))
    table = np.asarray(table)
    orthonormal = np.linalg.qr(table)[0]
    assert 1 - np.sum((orthonormal.T @ vectors[:, :3]) ** 2) / 3 < 0.02
    np.testing.assert_allclose(table.T @ table / 40, np.eye(3), atol=0.25)
    moment = np.asarray(state.weight_moment.total / state.weight_moment.weight)
    moment = moment + 1e-2 * np.trace(moment) / 3 * np.eye(3)
    np.testing.assert_allclose(np.asarray(state.inverse_moment) @ moment, np.eye(3), atol=0.05)


def test_only_the_gauge_acts_while_the_running_covariance_is_far_from_the_identity():
    rows = np.random.default_rng(4).integers(0, NUM_STATES, size=12)
    objective = DanskinChunked(NUM_FEATURES, chunks=2)

    @jax.jit
    def gradient(scale, gauge):
        gauged = dataclasses.replace(objective, gauge=gauge)
        return _value_and_gradient(gauged, rows, _past(scale))[1]

    np.testing.assert_array_equal(gradient(0.4, 0.0), np.zeros_like(TABLE))
    np.testing.assert_array_equal(gradient(1.6, 0.0), np.zeros_like(TABLE))
    # 1 − 4 (0.3)² of it is left.
    np.testing.assert_allclose(gradient(1.3, 0.0), 0.64 * gradient(1.0, 0.0), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(
        gradient(1.3, 0.7) - gradient(1.3, 0.0), 0.7 * gradient(0.0, 1.0), rtol=1e-4, atol=1e-6
    )
