"""A running mean in front of a rule, against means of all rows."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.config import configurable, size
from rlreps.numerics import matmul
from rlreps.streaming import Centred

FEATURES, K = 6, 2
KEY = jax.random.key(0)

# One compilation for each kind of rule and shape: rules are arguments.
update = jax.jit(lambda rule, state, rows: rule.update(state, rows))
update_each = jax.jit(lambda rule, state, rows: rule.update_each(state, rows))
combine = jax.jit(lambda rule, states, weights: rule.combine(states, weights))
both_methods = pytest.mark.parametrize("method", [update, update_each], ids=["batch", "each"])


@configurable
@dataclasses.dataclass(frozen=True)
class Recorder:
    """A rule whose state is the sum of outer products of the rows it was given, and the last."""

    num_inputs: int = size(FEATURES)
    num_components: int = size(FEATURES)

    def init(self, key):
        shape = (self.num_inputs, self.num_inputs)
        return np.zeros(shape, np.float32), np.zeros(self.num_inputs, np.float32)

    def update(self, state, batch):
        return state[0] + matmul(batch.T, batch), batch[-1]

    update_each = update

    def components(self, state):
        return state[0]

    def combine(self, states, weights):
        return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), states)


def observations(count, seed=0, offset=3.0):
    random = np.random.default_rng(seed)
    scales = np.linspace(3.0, 0.3, FEATURES)
    return (random.normal(size=(count, FEATURES)) * scales + offset).astype(np.float32)


def stacked(states):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


@both_methods
def test_rows_are_given_to_the_rule_less_the_mean_that_includes_them(method):
    rows, rule = observations(40), Centred(Recorder())
    state, expected, seen = rule.init(KEY), 0.0, 0
    for count in (13, 1, 13, 13):
        state = method(rule, state, rows[seen : seen + count])
        steps = [count] if method is update else [1] * count
        for step in steps:
            given = rows[seen : seen + step] - rows[: seen + step].mean(axis=0)
            expected, seen = expected + given.T @ given, seen + step
    np.testing.assert_allclose(state.mean, rows.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(state.inner[0], expected, rtol=1e-5, atol=1e-3)


@both_methods
def test_sums_of_squares_are_exact_with_the_row_that_corrects_for_the_mean(method):
    rows, exact = observations(40), Centred(Recorder(), exact_scatter=True)
    state = exact.init(KEY)
    for batch in np.split(rows, [13, 14, 27]):
        state = method(exact, state, batch)
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(state.inner[0], centred.T @ centred, rtol=1e-5, atol=1e-3)


def test_a_million_rows_far_from_the_origin_keep_their_mean_in_float32():
    random = np.random.default_rng(0)
    rows = (random.normal(size=(1_000_000, 2)) + np.array([1000.0, -300.0])).astype(np.float32)
    rule = Centred(Recorder(2, 2))
    state = rule.init(KEY)
    for block in np.split(rows, 10):
        state = update_each(rule, state, block)
    mean = rows.mean(axis=0, dtype=np.float64)
    found = np.asarray(state.running.value, np.float64) + np.asarray(state.running.remainder)
    # A thousandth of the mean's own standard error; a float32 mean alone misses by 6e-5 and more.
    np.testing.assert_allclose(found, mean, atol=1e-6, rtol=0)
    np.testing.assert_allclose(state.inner[1], rows[-1] - mean, atol=1e-6, rtol=0)


def test_workers_that_combine_hold_the_mean_of_all_their_rows_by_their_weights():
    rule, rows = Centred(Recorder()), observations(240)
    start = state = rule.init(KEY)
    for batches in rows.reshape(4, 3, 20, FEATURES):
        state = combine(rule, stacked([update(rule, state, own) for own in batches]), np.ones(3))
    np.testing.assert_allclose(state.mean, rows.mean(axis=0), rtol=1e-6)
    assert int(state.running.rows_seen) == 80
    one = update(rule, start, rows[:20])
    two = update(rule, update(rule, start, rows[20:40]), rows[40:60])
    for weights, expected in (
        ([1.0, 1.0, 0.0], rows[:60].mean(axis=0)),
        ([6.0, 2.0, 0.0], 0.6 * rows[:20].mean(axis=0) + 0.4 * rows[20:60].mean(axis=0)),
    ):
        combined = combine(rule, stacked([one, two, one]), np.asarray(weights))
        np.testing.assert_allclose(combined.mean, expected, rtol=1e-6)


def test_sums_of_squares_of_combined_workers_are_about_the_mean_of_all_their_rows():
    exact = Centred(Recorder(), exact_scatter=True)
    rows, shares = observations(78), np.asarray([2.0, 1.0, 3.0], np.float32) / 6.0
    rows[:13] += 5.0
    rows[39:, 3] -= 7.0
    states = []
    for part in np.split(rows, [13, 39]):
        state = exact.init(KEY)
        for batch in part.reshape(-1, 13, FEATURES):
            state = update(exact, state, batch)
        states.append(state)
    combined = combine(exact, stacked(states), shares)
    each = np.repeat(shares, [13, 26, 39])
    centred = rows - np.average(rows, axis=0, weights=each)
    scatter = (each[:, None] * centred).T @ centred
    np.testing.assert_allclose(combined.inner[0], scatter, rtol=1e-5, atol=1e-3)
