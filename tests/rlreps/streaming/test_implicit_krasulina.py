import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from rlreps.errors import InputError
from rlreps.streaming import pseudo_inverse
from rlreps.streaming.anchoring import UPDATES_BETWEEN_ANCHORS
from rlreps.streaming.implicit_krasulina import implicit_krasulina
from rlreps.streaming.pseudo_inverse import FactorState, add_outer_residual, anchor, inverse_gram
from rlreps.streaming.schedules import power_decay
from rlreps.subspace import subspace_distance

FEATURES, K = 12, 4


def planted(rows, seed=0, features=FEATURES, variances=(9.0, 6.0, 4.0, 2.5), tail=0.5):
    """Rows with planted variances, a tail, and the basis that they stand in."""
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(features, features)))
    deviations = np.sqrt([*variances] + [tail] * (features - len(variances)))
    return generator.normal(size=(rows, features)) * deviations @ rotation.T, rotation


def factor(seed=0, k=K, features=FEATURES):
    """A state with a random factor, in float64."""
    rows = jnp.asarray(np.random.default_rng(seed).normal(size=(k, features)))
    return FactorState(jnp.zeros((), jnp.int32), rows, inverse_gram(rows))


@pytest.mark.parametrize("count", [1, 2, K, 9])
def test_a_step_minimises_the_papers_objective(count):
    """‖C' − C‖²/(2η) + mean ‖x − C'y‖²/2, by a general-purpose optimizer."""
    with jax.enable_x64(True):
        batch, _ = planted(count, seed=3)
        rate = 0.7
        rule = implicit_krasulina(FEATURES, K, learning_rate=rate)
        before = factor()
        after = np.asarray(rule.update(before, jnp.asarray(batch)).rows)
        old = np.asarray(before.rows)
        hidden = np.linalg.pinv(old.T) @ batch.T

        def objective(flat):
            rows = flat.reshape(K, FEATURES)
            residuals = batch - hidden.T @ rows
            value = np.sum((rows - old) ** 2) / (2 * rate) + np.sum(residuals**2) / (2 * count)
            return value, ((rows - old) / rate - hidden @ residuals / count).ravel()

        best = scipy.optimize.minimize(objective, old.ravel(), jac=True, tol=1e-14)
    np.testing.assert_allclose(after.ravel(), best.x, atol=1e-6)


def test_one_row_and_a_batch_of_one_row_twice_take_the_same_step():
    with jax.enable_x64(True):
        row, _ = planted(1, seed=5)
        rule = implicit_krasulina(FEATURES, K, learning_rate=0.7)
        once = rule.update(factor(), jnp.asarray(row))
        twice = rule.update(factor(), jnp.asarray(np.concatenate([row, row])))
        np.testing.assert_allclose(once.rows, twice.rows, atol=1e-10)
        np.testing.assert_allclose(once.inverse_gram, twice.inverse_gram, atol=1e-10)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_pseudo_inverse_after_a_step_is_numpys(count):
    with jax.enable_x64(True):
        batch, _ = planted(count, seed=4)
        state = implicit_krasulina(FEATURES, K, learning_rate=0.3).update(
            factor(), jnp.asarray(batch)
        )
        np.testing.assert_allclose(
            state.pseudo_inverse, np.linalg.pinv(np.asarray(state.rows).T), atol=1e-12
        )


def test_meyers_update_alone_gives_the_pseudo_inverse_of_a_matrix_and_an_outer_product():
    generator = np.random.default_rng(7)
    with jax.enable_x64(True):
        state = factor()
        row, hidden = generator.normal(size=FEATURES), generator.normal(size=K)
        old = np.asarray(state.rows)
        residual = row - old.T @ np.linalg.pinv(old.T) @ row
        after = add_outer_residual(state, jnp.asarray(hidden), jnp.asarray(residual))
        expected = np.linalg.pinv(old.T + np.outer(residual, hidden))
        np.testing.assert_allclose(after.pseudo_inverse, expected, atol=1e-12)


@pytest.mark.slow
def test_the_pseudo_inverse_is_still_the_factors_own_after_a_million_updates():
    data, rotation = planted(20_000)
    rows = jnp.asarray(data, jnp.float32)
    rule = implicit_krasulina(FEATURES, K, learning_rate=power_decay(10.0, 0.8))

    @jax.jit
    def passes(state):
        return jax.lax.scan(
            lambda state, _: (rule.update_each(state, rows), None), state, length=50
        )[0]

    state = passes(rule.init(jax.random.key(0)))
    assert int(state.step) == 1_000_000
    assert state.inverse_gram.dtype == jnp.float32
    exact = np.linalg.pinv(np.asarray(state.rows, np.float64).T)
    error = np.abs(np.asarray(state.pseudo_inverse) - exact).max() / np.abs(exact).max()
    assert error < 1e-5
    basis = jnp.asarray(rotation[:, :K], jnp.float32)
    assert float(subspace_distance(rule.components(state), basis)) < 1e-3


def test_without_anchors_the_pseudo_inverse_would_drift_away():
    """What the anchors are for: at a rate that changes the factor much, rounding adds up."""
    data, _ = planted(5000)
    rows = jnp.asarray(data, jnp.float32)
    rule = implicit_krasulina(FEATURES, K, learning_rate=power_decay(1e4, 0.8), initial_scale=1e-4)
    start = rule.init(jax.random.key(0))

    def bare(state, row):
        hidden = state.inverse_gram @ (state.rows @ row)
        rate = 1e4 / (state.step + 1).astype(jnp.float32) ** 0.8
        size = rate / (1.0 + rate * jnp.sum(hidden**2))
        return add_outer_residual(state, hidden, size * (row - hidden @ state.rows)), None

    def error(state):
        exact = np.linalg.pinv(np.asarray(state.rows, np.float64).T)
        return np.abs(np.asarray(state.pseudo_inverse) - exact).max() / np.abs(exact).max()

    drifted = jax.jit(lambda rows: jax.lax.scan(bare, start, rows)[0])(rows)
    anchored = jax.jit(rule.update_each)(start, rows)
    assert error(drifted) > 0.1
    assert error(anchored) < 1e-5


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300, 400])
def test_many_rows_at_once_are_as_many_single_updates(count):
    data, _ = planted(count, seed=1)
    rows = jnp.asarray(data, jnp.float32)
    rule = implicit_krasulina(FEATURES, K, learning_rate=power_decay(1.0, 0.8), initial_scale=0.1)
    start = rule.init(jax.random.key(1))
    together = jax.jit(rule.update_each)(start, rows)
    single = jax.jit(
        lambda rows: jax.lax.scan(lambda s, row: (rule.update(s, row[None]), None), start, rows)[0]
    )(rows)
    assert int(together.step) == int(single.step) == count
    np.testing.assert_allclose(together.rows, single.rows, rtol=1e-3, atol=1e-3)


def test_single_updates_are_anchored_too():
    data, _ = planted(5 * UPDATES_BETWEEN_ANCHORS, seed=1)
    rule = implicit_krasulina(FEATURES, K, learning_rate=power_decay(1e4, 0.8))
    update, state = jax.jit(rule.update), rule.init(jax.random.key(1))
    for row in jnp.asarray(data, jnp.float32):
        state = update(state, row[None])
    fresh = anchor(state).inverse_gram
    np.testing.assert_allclose(state.inverse_gram, fresh, rtol=1e-4)


@pytest.mark.parametrize("learning_rate", [0.1, 10.0, 1e3, 1e5])
def test_float32_follows_float64_from_a_tiny_start_at_any_rate(learning_rate):
    data, rotation = planted(4000, seed=2)
    basis = rotation[:, :K]

    def distance(dtype):
        rule = implicit_krasulina(FEATURES, K, learning_rate=power_decay(learning_rate, 0.8))
        start = 1e-5 * np.random.default_rng(0).normal(size=(K, FEATURES))
        rows = jnp.asarray(start, dtype)
        state = FactorState(jnp.zeros((), jnp.int32), rows, inverse_gram(rows))
        ended = jax.jit(rule.update_each)(state, jnp.asarray(data, dtype))
        return float(subspace_distance(rule.components(ended), jnp.asarray(basis, dtype)))

    single = distance(jnp.float32)
    with jax.enable_x64(True):
        double = distance(jnp.float64)
    assert double < 0.02
    assert single == pytest.approx(double, rel=0.02)


def test_the_start_and_the_rate_matter_through_their_ratio_alone():
    """(C, η) → (cC, c²η) changes y to y/c and leaves every span as it was."""
    data, _ = planted(50, seed=2)
    with jax.enable_x64(True):
        rows = jnp.asarray(data)
        spans = []
        for scale in (1.0, 0.01):
            rule = implicit_krasulina(FEATURES, K, learning_rate=2.0 * scale**2)
            start = factor()._replace(
                rows=scale * factor().rows, inverse_gram=factor().inverse_gram / scale**2
            )
            spans.append(rule.components(rule.update_each(start, rows)))
        assert float(subspace_distance(*spans)) < 1e-12


def test_the_models_average_is_the_mean_factor_with_its_own_pseudo_inverse():
    rule = implicit_krasulina(FEATURES, K, learning_rate=1.0)
    with jax.enable_x64(True):
        states = [factor(seed) for seed in range(3)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        combined = rule.combine(stacked, jnp.asarray([1.0, 2.0, 5.0]))
        mean = sum(w * np.asarray(s.rows) for w, s in zip((1, 2, 5), states, strict=True)) / 8
        np.testing.assert_allclose(combined.rows, mean, atol=1e-12)
        np.testing.assert_allclose(combined.pseudo_inverse, np.linalg.pinv(mean.T), atol=1e-12)


def test_a_huge_rate_and_a_batch_of_copies_stay_finite():
    rule = implicit_krasulina(FEATURES, K, learning_rate=1e30)
    row = np.random.default_rng(0).normal(size=(1, FEATURES))
    batch = jnp.asarray(np.repeat(row, 3, axis=0), jnp.float32)
    state = rule.update(rule.init(jax.random.key(0)), batch)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


def test_a_scale_that_is_not_positive_is_refused():
    with pytest.raises(InputError, match="expected initial_scale > 0, got 0"):
        implicit_krasulina(FEATURES, K, learning_rate=1.0, initial_scale=0.0)


def test_without_anchors_of_its_first_updates_float32_would_go_another_way(monkeypatch):
    """Of many features a tiny start grows most, and rounding with it."""
    features, k = 400, 5
    variances = 10.0 / np.arange(1, k + 1)
    data, _ = planted(2000, features=features, variances=variances, tail=0.1)
    start = 1e-5 * np.random.default_rng(1).normal(size=(k, features))

    def span(dtype):
        rule = implicit_krasulina(features, k, learning_rate=power_decay(0.1, 0.8))
        rows = jnp.asarray(start, dtype)
        state = FactorState(jnp.zeros((), jnp.int32), rows, inverse_gram(rows))
        ended = jax.jit(rule.update_each)(state, jnp.asarray(data, dtype))
        return np.linalg.qr(np.asarray(ended.rows, np.float64).T)[0]

    def distance(one, other):
        return 1.0 - np.sum((one.T @ other) ** 2) / k

    with jax.enable_x64(True):
        double = span(jnp.float64)
    assert distance(span(jnp.float32), double) < 1e-6
    monkeypatch.setattr(pseudo_inverse, "_FIRST_ANCHORED", 0)
    assert distance(span(jnp.float32), double) > 1e-6
