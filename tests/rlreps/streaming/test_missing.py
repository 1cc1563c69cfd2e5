"""Missing entries, against the coordinates' own steps and a planted subspace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.streaming import (
    RULES,
    implicit_krasulina,
    impute,
    make_rule,
    power_decay,
    require_imputing,
    with_missing_entries,
    with_running_mean,
)

FEATURES, K = 12, 3
IMPUTING = sorted(name for name, entry in RULES.items() if entry.imputes)


def planted(count, seed=0, noise=0.05, features=FEATURES):
    """Rows near a K-dimensional subspace, and its basis [features, K]."""
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(random.normal(size=(features, K)))[0]
    hidden = random.normal(size=(count, K)) * np.array([3.0, 2.0, 1.5])
    rows = hidden @ basis.T + noise * random.normal(size=(count, features))
    return rows.astype(np.float32), basis


def with_holes(rows, share, seed=1):
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


@pytest.mark.parametrize("method", ["update", "update_each"])
@pytest.mark.parametrize("name", ["implicit_krasulina", "oja", "incremental_pca"])
def test_without_a_missing_entry_steps_are_the_rules_own(name, method):
    rows, _ = planted(40)
    rule = make_rule(name, FEATURES, K, learning_rate=0.05)
    complete = with_missing_entries(rule, FEATURES)
    start = rule.init(jax.random.key(0))
    own, found = (getattr(one, method)(start, rows) for one in (rule, complete))
    jax.tree.map(np.testing.assert_array_equal, own, found)


def test_observed_coordinates_of_implicit_krasulina_step_as_alone_and_others_stay():
    with jax.enable_x64(True):
        rate = 0.3
        rule = implicit_krasulina(FEATURES, K, learning_rate=rate, initial_scale=1.0)
        rows, _ = planted(30)
        state = rule.update_each(rule.init(jax.random.key(0)), jnp.asarray(rows, float))
        row = np.asarray(rows[0], float)
        row[[1, 4, 5, 9]] = np.nan
        there = ~np.isnan(row)
        moved = with_missing_entries(rule, FEATURES, ridge=1e-12).update(state, row[None, :])

        factor = np.asarray(state.rows).T
        hidden = np.linalg.lstsq(factor[there], row[there], rcond=None)[0]
        residual = row[there] - factor[there] @ hidden
        expected = factor.copy()
        expected[there] += rate / (1.0 + rate * hidden @ hidden) * np.outer(residual, hidden)
        assert np.abs(expected - factor).max() > 1e-3
        np.testing.assert_allclose(moved.rows.T, expected, atol=1e-9)


@pytest.mark.parametrize("name", IMPUTING)
def test_a_row_that_is_wholly_missing_moves_no_component(name):
    rows, _ = planted(50)
    rule = with_missing_entries(
        make_rule(name, FEATURES, K, learning_rate=power_decay(0.1, 0.5)), FEATURES
    )
    update_each = jax.jit(rule.update_each)
    state = update_each(rule.init(jax.random.key(0)), rows)
    after = update_each(state, np.full((1, FEATURES), np.nan, np.float32))
    before, found = (np.asarray(rule.components(one)) for one in (state, after))
    np.testing.assert_allclose(found, before, atol=2e-6)


def test_reconstructions_lie_in_the_span_that_the_observed_entries_name():
    rows, basis = planted(20, noise=0.0)
    holed = with_holes(rows, 0.4)
    enough = np.isfinite(holed).sum(axis=1) > K + 1
    found = impute(jnp.asarray(basis, jnp.float32), jnp.asarray(holed), ridge=1e-6)
    np.testing.assert_allclose(found[enough], rows[enough], atol=2e-2)
    there = ~np.isnan(holed)
    np.testing.assert_array_equal(np.asarray(found)[there], rows[there])


def test_the_default_ridge_shrinks_entries_that_are_known_by_half_by_a_five_hundredth():
    # Of every component half its squared length is observed: the factor is 0.5 / (0.5 + ridge).
    half = np.linalg.qr(np.random.default_rng(0).normal(size=(FEATURES // 2, K)))[0]
    basis = np.concatenate([half, half]) / np.sqrt(2.0)
    row = basis @ np.array([3.0, -2.0, 1.0])
    holed = np.concatenate([row[: FEATURES // 2], np.full(FEATURES // 2, np.nan)])
    found = impute(jnp.asarray(basis, jnp.float32), jnp.asarray(holed[None, :], jnp.float32))
    lost = 1.0 - np.asarray(found)[0, FEATURES // 2 :] / row[FEATURES // 2 :]
    np.testing.assert_allclose(lost, 0.002, rtol=0.02)


def test_fewer_entries_than_components_give_the_shortest_hidden_variables():
    rows, basis = planted(1)
    row = np.full(FEATURES, np.nan, np.float32)
    row[:2] = rows[0, :2]
    found = impute(jnp.asarray(basis, jnp.float32), jnp.asarray(row[None, :]), ridge=1e-6)
    hidden = np.linalg.pinv(basis[:2]) @ row[:2]
    np.testing.assert_allclose(found[0, 2:], (basis @ hidden)[2:], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "rate"),
    [("implicit_krasulina", 0.1), ("krasulina", 0.5), ("oja", 0.5), ("incremental_pca", 1.0)],
)
def test_a_planted_subspace_is_recovered_with_two_entries_in_five_missing(name, rate):
    rows, basis = planted(4000, features=30)
    rows = with_holes(rows + 5.0, 0.4).astype(np.float32)
    inner = make_rule(name, 30, K, learning_rate=power_decay(rate, 0.7))
    rule = with_running_mean(with_missing_entries(inner, 30), 30, missing=True)
    found = rule.components(jax.jit(rule.update_each)(rule.init(jax.random.key(0)), rows))
    unexplained = 1.0 - np.sum((basis.T @ np.asarray(found)) ** 2) / K
    assert unexplained < 0.01


def test_a_batch_with_missing_entries_is_one_step_of_the_completed_batch():
    rows, _ = planted(60)
    rule = make_rule("implicit_krasulina", FEATURES, K, learning_rate=0.1)
    state = rule.update_each(rule.init(jax.random.key(0)), rows)
    holed = with_holes(rows[:8], 0.3)
    found = with_missing_entries(rule, FEATURES).update(state, holed)
    expected = rule.update(state, impute(rule.components(state), jnp.asarray(holed)))
    np.testing.assert_allclose(found.rows, expected.rows, rtol=1e-5, atol=1e-6)
    assert int(found.step) == int(state.step) + 1


def test_rules_that_cannot_take_missing_entries_and_bad_ridges_are_refused():
    require_imputing("implicit_krasulina")
    with pytest.raises(InputError, match=r"implicit_krasulina.*got 'sanger'"):
        require_imputing("sanger")
    with pytest.raises(InputError, match="rule to be one of"):
        require_imputing("pca")
    with pytest.raises(InputError, match="ridge > 0"):
        with_missing_entries(make_rule("oja", 4, 2, learning_rate=1.0), 4, ridge=0.0)
    rule = with_missing_entries(make_rule("oja", 4, 2, learning_rate=1.0), 4)
    with pytest.raises(InputError, match="4 features"):
        rule.update(rule.init(jax.random.key(0)), jnp.zeros((2, 5)))
