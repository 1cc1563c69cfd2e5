"""A running mean in front of a streaming rule, against means and rules that see everything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.streaming import make_rule, running_mean, with_running_mean
from rlreps.streaming.base import StreamingRule

FEATURES, K = 6, 2


def recorder(width):
    """A rule whose state is the sum of outer products of the rows it was given, and the last."""

    def update(state, batch):
        total, _ = state
        return total + batch.T @ batch, batch[-1]

    def init(key):
        return jnp.zeros((width, width)), jnp.zeros(width)

    def combine(states, weights):
        return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), states)

    return StreamingRule(init, update, update, lambda state: state[0], combine)


def observations(count, seed=0, offset=3.0):
    random = np.random.default_rng(seed)
    scales = np.linspace(3.0, 0.3, FEATURES)
    return (random.normal(size=(count, FEATURES)) * scales + offset).astype(np.float32)


def wrapped(name="implicit_krasulina", **options):
    rule = make_rule(name, FEATURES, K, learning_rate=0.1)
    return with_running_mean(rule, FEATURES, **options)


@pytest.mark.parametrize("sizes", [(40,), (1, 39), (7, 1, 20, 12)])
def test_the_running_mean_is_that_of_all_rows_whatever_the_batches(sizes):
    rows, rule = observations(40), wrapped()
    state = rule.init(jax.random.key(0))
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        state = rule.update(state, batch)
    np.testing.assert_allclose(running_mean(state), rows.mean(axis=0), rtol=1e-6)
    assert int(state.step) == len(sizes)
    assert int(state.mean.rows_seen) == 40


@pytest.mark.parametrize("options", [{}, {"missing": True}, {"exact_scatter": True}])
@pytest.mark.parametrize("name", ["implicit_krasulina", "oja"])
def test_a_block_of_rows_makes_the_steps_that_its_rows_make_one_by_one(name, options):
    rows, rule = observations(90), wrapped(name, **options)
    if "missing" in options:
        rows[:, 2] = 0.5
    block = one_by_one = rule.update_each(rule.init(jax.random.key(0)), rows[:5])
    block = jax.jit(rule.update_each)(block, rows[5:])
    update = jax.jit(rule.update)
    for row in rows[5:]:
        one_by_one = update(one_by_one, row[None, :])
    np.testing.assert_allclose(running_mean(block), running_mean(one_by_one), rtol=1e-6)
    np.testing.assert_allclose(
        rule.components(block), rule.components(one_by_one), rtol=0, atol=2e-5
    )


def test_a_batch_is_given_to_the_rule_less_the_mean_that_includes_it():
    rows, rule = observations(10), with_running_mean(recorder(FEATURES), FEATURES)
    state = rule.update(rule.update(rule.init(jax.random.key(0)), rows[:6]), rows[6:])
    first, second = rows[:6] - rows[:6].mean(axis=0), rows[6:] - rows.mean(axis=0)
    np.testing.assert_allclose(state.inner[1], second[-1], atol=1e-5)
    np.testing.assert_allclose(state.inner[0], first.T @ first + second.T @ second, atol=1e-4)


@pytest.mark.parametrize("method", ["update", "update_each"])
def test_sums_of_squares_are_exact_with_the_row_that_corrects_for_the_mean(method):
    rows, rule = observations(50), with_running_mean(recorder(FEATURES), FEATURES)
    exact = with_running_mean(recorder(FEATURES), FEATURES, exact_scatter=True)
    key = jax.random.key(0)
    found, state = exact.init(key), rule.init(key)
    for batch in np.split(rows, [3, 4, 20]):
        found = getattr(exact, method)(found, batch)
        state = getattr(rule, method)(state, batch)
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(found.inner[0], centred.T @ centred, rtol=1e-5, atol=1e-3)
    assert np.abs(state.inner[0] - centred.T @ centred).max() > 0.5


def test_a_million_rows_far_from_the_origin_keep_their_mean_in_float32():
    random = np.random.default_rng(0)
    rows = (random.normal(size=(1_000_000, 2)) + np.array([1000.0, -300.0])).astype(np.float32)
    rule = with_running_mean(
        recorder(2)._replace(update_each=lambda state, rows: (state[0], rows[-1])), 2
    )
    update_each = jax.jit(rule.update_each)
    state = rule.init(jax.random.key(0))
    for block in np.split(rows, 10):
        state = update_each(state, block)
    mean = rows.mean(axis=0, dtype=np.float64)
    # A thousandth of the mean's own standard error; a float32 mean alone misses by 6e-5 and more.
    exact = np.asarray(state.mean.value, np.float64) + np.asarray(state.mean.remainder, np.float64)
    np.testing.assert_allclose(exact, mean, atol=1e-6, rtol=0)
    np.testing.assert_allclose(state.inner[1], rows[-1] - mean, atol=1e-6, rtol=0)


@pytest.mark.parametrize("method", ["update", "update_each"])
def test_missing_entries_leave_the_mean_of_their_feature_alone(method):
    rows = observations(30)
    rows[np.random.default_rng(1).random(rows.shape) < 0.4] = np.nan
    rows[:, 5] = np.nan
    rule = with_running_mean(recorder(FEATURES), FEATURES, missing=True)
    state = rule.init(jax.random.key(0))
    for batch in np.split(rows, [1, 2, 17]):
        state = getattr(rule, method)(state, batch)
    np.testing.assert_allclose(
        running_mean(state)[:5], np.nanmean(rows[:, :5].astype(np.float64), axis=0), rtol=1e-5
    )
    assert running_mean(state)[5] == 0.0
    np.testing.assert_array_equal(np.isnan(state.inner[1]), np.isnan(rows[-1]))


@pytest.mark.parametrize("missing", [False, True])
def test_workers_that_combine_again_and_again_hold_the_mean_of_all_their_rows(missing):
    rule, workers = with_running_mean(recorder(FEATURES), FEATURES, missing=missing), 3
    rows = observations(240)
    rounds = rows.reshape(4, workers, 20, FEATURES)
    state = rule.init(jax.random.key(0))
    for batches in rounds:
        each = jax.vmap(rule.update, in_axes=(None, 0))(state, batches)
        state = rule.combine(each, jnp.ones(workers))
    np.testing.assert_allclose(running_mean(state), rows.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(state.mean.rows_seen, np.full_like(state.mean.rows_seen, 80))


@pytest.mark.parametrize("missing", [False, True])
def test_a_worker_counts_by_its_rows_and_its_weight(missing):
    rule = with_running_mean(recorder(FEATURES), FEATURES, missing=missing)
    rows, start = observations(40), rule.init(jax.random.key(0))
    states = [rule.update(start, rows[:10]), rule.update(start, rows[10:])]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    even = rule.combine(stacked, jnp.asarray([1.0, 1.0]))
    np.testing.assert_allclose(running_mean(even), rows.mean(axis=0), rtol=1e-6)
    weighed = rule.combine(stacked, jnp.asarray([3.0, 1.0]))
    expected = 0.5 * (rows[:10].mean(axis=0) + rows[10:].mean(axis=0))
    np.testing.assert_allclose(running_mean(weighed), expected, rtol=1e-6)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (2.0, 1.0, 3.0)])
def test_sums_of_squares_of_combined_workers_are_about_the_mean_of_all_their_rows(weights):
    exact = with_running_mean(recorder(FEATURES), FEATURES, exact_scatter=True)
    rows, shares = observations(60), np.asarray(weights, np.float32) / sum(weights)
    rows[:10] += 5.0
    rows[30:, 3] -= 7.0
    parts = np.split(rows, [10, 30])
    states = [exact.update(exact.init(jax.random.key(0)), part) for part in parts]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    combined = exact.combine(stacked, jnp.asarray(shares))
    each = np.repeat(shares, [10, 20, 30])
    centred = rows - np.average(rows, axis=0, weights=each)
    scatter = (each[:, None] * centred).T @ centred
    np.testing.assert_allclose(combined.inner[0], scatter, rtol=1e-5, atol=1e-3)


def test_incremental_pca_of_workers_with_distant_means_is_that_of_their_stacked_rows():
    workers, rows = 2, observations(240, offset=0.0)
    rounds = rows.reshape(3, workers, 40, FEATURES)
    rounds[:, :, :, -1] += np.array([5.0, -5.0], np.float32)[None, :, None]
    rule = with_running_mean(
        make_rule("incremental_pca", FEATURES, FEATURES, learning_rate=1.0),
        FEATURES,
        exact_scatter=True,
    )
    state = rule.init(jax.random.key(0))
    for batches in rounds:
        each = jax.vmap(rule.update, in_axes=(None, 0))(state, batches)
        state = jax.jit(rule.combine)(each, jnp.asarray([3.0, 3.0]))
    stacked = rounds.reshape(-1, FEATURES)
    _, singular, axes = np.linalg.svd(stacked - stacked.mean(axis=0), full_matrices=False)
    # Rows of all workers count by their workers' share, a half.
    np.testing.assert_allclose(state.inner.energies, singular**2 / workers, rtol=1e-3)
    overlaps = np.abs(np.sum(np.asarray(rule.components(state)).T * axes, axis=1))
    np.testing.assert_allclose(overlaps, 1.0, atol=1e-4)


def test_workers_without_any_row_combine_to_a_mean_of_zero():
    rule = wrapped()
    start = rule.init(jax.random.key(0))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start)
    combined = rule.combine(stacked, jnp.ones(2))
    np.testing.assert_array_equal(running_mean(combined), np.zeros(FEATURES))
    assert int(combined.mean.rows_seen) == 0


def test_components_of_uncentred_rows_are_near_those_of_centred_ones():
    rows = observations(3000, offset=40.0)
    rule = wrapped("oja")
    found = rule.components(jax.jit(rule.update_each)(rule.init(jax.random.key(0)), rows))
    exact = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:K]
    overlaps = np.linalg.svd(exact @ np.asarray(found), compute_uv=False)
    assert overlaps.min() > 0.9
    uncentred = make_rule("oja", FEATURES, K, learning_rate=0.1)
    misled = uncentred.components(
        jax.jit(uncentred.update_each)(uncentred.init(jax.random.key(0)), rows)
    )
    assert np.linalg.svd(exact @ np.asarray(misled), compute_uv=False).min() < 0.9


def test_states_under_x64_are_in_float64():
    with jax.enable_x64(True):
        rule = wrapped()
        state = rule.update_each(rule.init(jax.random.key(0)), jnp.asarray(observations(9), float))
        assert running_mean(state).dtype == jnp.float64


def test_a_batch_of_another_width_and_contrary_options_are_refused():
    rule = wrapped()
    state = rule.init(jax.random.key(0))
    with pytest.raises(InputError, match="6 features"):
        rule.update(state, jnp.zeros((2, 5)))
    with pytest.raises(InputError, match="6 features"):
        rule.update_each(state, jnp.zeros((0, 6)))
    with pytest.raises(InputError, match="not both"):
        wrapped(missing=True, exact_scatter=True)
