"""What the representation loss does not depend on, its objectives must not depend on either."""

import functools
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.losses import (
    Batch,
    DanskinEmpirical,
    DanskinLissa,
    LargeBatch,
    Naive,
    Oracle,
    Population,
)
from rlreps.losses.danskin import whitener
from rlreps.numerics import DecayedMean

NUM_STATES, NUM_FEATURES, NUM_TASKS, NUM_ROWS = 30, 4, 3, 60
LISSA = functools.partial(DanskinLissa, NUM_FEATURES, kappa0=1.2)
EMPIRICAL = DanskinEmpirical(NUM_FEATURES)
WHITENED = LISSA(whitening=True, feature_norm="running")
OBJECTIVES = [
    WHITENED,
    LISSA(feature_norm="running"),
    LISSA(feature_norm="population"),
    EMPIRICAL,
    LargeBatch(NUM_FEATURES),
    Oracle(NUM_FEATURES),
    *(
        pytest.param(objective, marks=pytest.mark.integration)
        for objective in (
            LISSA(),
            LISSA(whitening=True, permutations=3),
            LISSA(whitening=True, feature_norm="population"),
            LISSA(feature_norm="running_maximum"),
            Naive(NUM_FEATURES),
            Naive(NUM_FEATURES, whitening=True),
        )
    ),
]
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(NUM_STATES, NUM_FEATURES))
MATRIX = RNG.normal(size=(NUM_STATES, NUM_TASKS))


@functools.partial(jax.jit, static_argnums=0)
def _second_update(objective, table, matrix):
    """Value and gradient of the second of two updates: running averages are in."""
    rows = jnp.asarray(np.random.default_rng(1).integers(0, NUM_STATES, (2, NUM_ROWS)), jnp.int32)

    def update(state, drawn):
        batch = Batch(drawn, matrix[drawn], None, Population(jnp.arange(NUM_STATES), matrix))
        (value, (state, _)), gradient = jax.value_and_grad(objective.loss, has_aux=True)(
            table, getitem, batch, state, jax.random.key(2)
        )
        return state, (value, gradient)

    _, results = jax.lax.scan(update, objective.init(jax.random.key(0)), rows)
    return jax.tree.map(lambda leaf: leaf[1], results)


def _evaluate(objective, table, matrix):
    value, gradient = _second_update(objective, np.float32(table), np.float32(matrix))
    return float(value), np.asarray(gradient, np.float64)


def _rotation(size):
    return np.linalg.qr(np.random.default_rng(2).normal(size=(size, size)))[0]


def _mixing(condition):
    """An invertible map of the features with singular values from 1 to ``condition``."""
    left, right = (
        np.linalg.qr(each)[0]
        for each in np.random.default_rng(3).normal(size=(2, NUM_FEATURES, NUM_FEATURES))
    )
    return left @ np.diag(np.geomspace(1.0, condition, NUM_FEATURES)) @ right


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_gradients_follow_rotations_and_scales_of_features_and_targets(objective):
    value, gradient = _evaluate(objective, TABLE, MATRIX)
    turn, turn_tasks = _rotation(NUM_FEATURES), _rotation(NUM_TASKS)
    for features, targets, expected_value, expected in (
        (TABLE @ turn, MATRIX, value, gradient @ turn),
        (TABLE, MATRIX @ turn_tasks, value, gradient),
        (TABLE, 3.0 * MATRIX, 9.0 * value, 9.0 * gradient),
        (100.0 * TABLE, MATRIX, value, gradient / 100.0),
    ):
        found_value, found = _evaluate(objective, features, targets)
        tolerance = 1e-3 * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=tolerance)
        np.testing.assert_allclose(found_value, expected_value, rtol=1e-3)


def test_the_whitened_gradient_follows_any_invertible_map_of_the_features():
    mixing = _mixing(5.0)
    follow = np.linalg.inv(mixing).T
    value, gradient = _evaluate(WHITENED, TABLE, MATRIX)
    mixed_value, mixed = _evaluate(WHITENED, TABLE @ mixing, MATRIX)
    # Up to the small ridge that keeps the running covariance invertible.
    np.testing.assert_allclose(mixed_value, value, rtol=1e-2)
    np.testing.assert_allclose(mixed, gradient @ follow, atol=0.02 * np.abs(gradient).max())
    plain = LISSA(feature_norm="running")
    _, gradient = _evaluate(plain, TABLE, MATRIX)
    _, mixed = _evaluate(plain, TABLE @ mixing, MATRIX)
    assert np.abs(mixed - gradient @ follow).max() > 0.1 * np.abs(gradient).max()


def _running(features):
    covariance = np.float32(features.T @ features / len(features))
    return DecayedMean.empty(jnp.zeros_like(covariance)).add(covariance, 0.01)


def test_the_whitener_is_the_inverse_cholesky_factor_of_a_regular_covariance():
    find = jax.jit(whitener)
    features = np.random.default_rng(0).normal(size=(60, 20)) * np.geomspace(1.0, 30.0, 20)
    covariance = features.T @ features / 60
    covariance += 1e-4 * np.trace(covariance) / 20 * np.eye(20)
    expected = np.linalg.inv(np.linalg.cholesky(covariance))
    np.testing.assert_allclose(find(_running(features)), expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(find(DecayedMean.empty(jnp.zeros((20, 20)))), np.eye(20))
    # Finite, too, for features that do not fill their space: the ridge of 1e-4 bounds it.
    table = features[:, [0, 0, *range(2, 20)]]
    assert np.abs(find(_running(table))).max() <= 1.01 / np.sqrt(1e-4 * np.mean(table**2))
    assert np.all(np.isfinite(find(_running(np.zeros((60, 20))))))


@pytest.mark.parametrize("feature_norm", ["running", "running_maximum"])
def test_the_running_norm_is_the_decayed_mean_or_maximum_of_batch_maxima(feature_norm):
    objective = DanskinLissa(NUM_FEATURES, feature_norm=feature_norm)
    rng = np.random.default_rng(0)
    state, expected = objective.init(jax.random.key(0)), None
    evaluate = jax.jit(lambda batch, s: objective.loss(table, getitem, batch, s, None)[1])
    table = jnp.asarray(TABLE, jnp.float32)
    for _ in range(4):
        rows = rng.integers(0, NUM_STATES, size=10)
        largest = np.max(np.sum(TABLE[rows] ** 2, axis=1))
        if expected is None:
            expected = largest
        elif feature_norm == "running":
            expected = 0.99 * expected + 0.01 * largest
        else:
            expected = max(0.999 * expected, largest)
        batch = Batch(jnp.asarray(rows), jnp.asarray(MATRIX[rows], jnp.float32))
        state, metrics = evaluate(batch, state)
        np.testing.assert_allclose(state.squared_norm, expected, rtol=1e-5)
        np.testing.assert_allclose(metrics["running_squared_norm"], expected, rtol=1e-5)
