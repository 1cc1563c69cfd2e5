"""Running means and missing entries in front of a rule, against means and rules that see all."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.config import configurable, size
from rlreps.streaming import (
    Centred,
    ImplicitKrasulina,
    Oja,
    PowerDecay,
    WithMissingEntries,
    impute,
)

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
        return state[0] + batch.T @ batch, batch[-1]

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


def with_holes(rows, share, seed=1):
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


# Running means.


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
    np.testing.assert_allclose(state.inner[1], given[-1], atol=1e-5)
    assert int(state.running.rows_seen) == 40


@both_methods
def test_sums_of_squares_are_exact_with_the_row_that_corrects_for_the_mean(method):
    rows, exact = observations(40), Centred(Recorder(), exact_scatter=True)
    state = exact.init(KEY)
    for batch in np.split(rows, [13, 14, 27]):
        state = method(exact, state, batch)
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(state.inner[0], centred.T @ centred, rtol=1e-5, atol=1e-3)


@both_methods
def test_missing_entries_leave_the_mean_of_their_feature_alone(method):
    rows = with_holes(observations(40), 0.4)
    rows[:, 5] = np.nan
    rule = Centred(Recorder(), missing=True)
    state = rule.init(KEY)
    for batch in np.split(rows, [13, 14, 27]):
        state = method(rule, state, batch)
    expected = np.nanmean(rows[:, :5].astype(np.float64), axis=0)
    np.testing.assert_allclose(state.mean[:5], expected, rtol=1e-5)
    assert state.mean[5] == 0.0
    np.testing.assert_array_equal(np.isnan(state.inner[1]), np.isnan(rows[-1]))


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


@pytest.mark.parametrize("missing", [False, True])
def test_workers_that_combine_hold_the_mean_of_all_their_rows_by_their_weights(missing):
    rule, rows = Centred(Recorder(), missing=missing), observations(240)
    start = state = rule.init(KEY)
    for batches in rows.reshape(4, 3, 20, FEATURES):
        state = combine(rule, stacked([update(rule, state, own) for own in batches]), np.ones(3))
    np.testing.assert_allclose(state.mean, rows.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(
        state.running.rows_seen, np.full_like(state.running.rows_seen, 80)
    )
    one = update(rule, start, rows[:20])
    two = update(rule, update(rule, start, rows[20:40]), rows[40:60])
    for weights, expected in (
        ([1.0, 1.0, 0.0], rows[:60].mean(axis=0)),
        ([6.0, 2.0, 0.0], 0.6 * rows[:20].mean(axis=0) + 0.4 * rows[20:60].mean(axis=0)),
    ):
        combined = combine(rule, stacked([one, two, one]), np.asarray(weights))
        np.testing.assert_allclose(combined.mean, expected, rtol=1e-6)
    nothing = combine(rule, stacked([start] * 3), np.ones(3))
    np.testing.assert_array_equal(nothing.mean, np.zeros(FEATURES))


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


# Missing entries.


def near_a_subspace(count, noise=0.05, features=12):
    """Rows near a 3-dimensional subspace, and its basis [features, 3]."""
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.normal(size=(features, 3)))[0]
    hidden = random.normal(size=(count, 3)) * np.array([3.0, 2.0, 1.5])
    rows = hidden @ basis.T + noise * random.normal(size=(count, features))
    return rows.astype(np.float32), basis


def test_complete_rows_make_the_rules_own_steps_and_missing_rows_move_nothing():
    rows, _ = near_a_subspace(40)
    rule = Oja(12, 3, learning_rate=PowerDecay(0.05, 0.5))
    wrapped, start = WithMissingEntries(rule), rule.init(KEY)
    state = update_each(wrapped, start, rows)
    jax.tree.map(np.testing.assert_array_equal, state, update_each(rule, start, rows))
    after = update_each(wrapped, state, np.full((40, 12), np.nan, np.float32))
    np.testing.assert_allclose(wrapped.components(after), wrapped.components(state), atol=2e-6)
    assert int(after.step) == 80


def test_observed_coordinates_of_implicit_krasulina_step_as_alone_and_others_stay():
    with jax.enable_x64(True):
        rate = 0.3
        rule = ImplicitKrasulina(12, 3, learning_rate=rate, initial_scale=1.0)
        rows, _ = near_a_subspace(30)
        state = update_each(rule, rule.init(KEY), rows.astype(np.float64))
        row = np.asarray(rows[0], float)
        row[[1, 4, 5, 9]] = np.nan
        there = ~np.isnan(row)
        moved = update(WithMissingEntries(rule, ridge=1e-12), state, row[None, :])
    factor = np.asarray(state.rows).T
    hidden = np.linalg.lstsq(factor[there], row[there], rcond=None)[0]
    residual = row[there] - factor[there] @ hidden
    expected = factor.copy()
    expected[there] += rate / (1.0 + rate * hidden @ hidden) * np.outer(residual, hidden)
    assert np.abs(expected - factor).max() > 1e-3
    np.testing.assert_allclose(moved.rows.T, expected, atol=1e-9)


def test_reconstructions_solve_the_ridge_regression_of_the_observed_entries():
    rows, basis = near_a_subspace(40)
    holed, ridge, fill = with_holes(rows, 0.5), 0.1, jax.jit(impute)
    found = np.asarray(fill(basis.astype(np.float32), holed, ridge))
    for row, completed in zip(holed, found, strict=True):
        there = ~np.isnan(row)
        observed = basis[there]
        system = observed.T @ observed + ridge * np.eye(3)
        hidden = np.linalg.solve(system, observed.T @ row[there])
        np.testing.assert_allclose(completed, np.where(there, row, basis @ hidden), atol=1e-4)
    # With half of every component's squared length observed the default ridge costs 1/500.
    half = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 3)))[0]
    both = np.concatenate([half, half]) / np.sqrt(2.0)
    row = both @ np.array([3.0, -2.0, 1.0])
    known = np.concatenate([row[:6], np.full(6, np.nan)])[None, :]
    lost = (
        1.0 - np.asarray(fill(both.astype(np.float32), known.astype(np.float32)))[0, 6:] / row[6:]
    )
    np.testing.assert_allclose(lost, 0.002, rtol=0.02)


def test_a_batch_with_missing_entries_is_one_step_of_the_completed_batch():
    rows, _ = near_a_subspace(40)
    rule = Oja(12, 3, learning_rate=PowerDecay(0.05, 0.5))
    state = update_each(rule, rule.init(KEY), rows)
    holed = with_holes(rows[:8], 0.3)
    found = update(WithMissingEntries(rule), state, holed)
    expected = update(rule, state, jax.jit(impute)(rule.components(state), holed))
    np.testing.assert_allclose(found.rows, expected.rows, rtol=1e-5, atol=1e-6)
    assert int(found.step) == int(state.step) + 1
