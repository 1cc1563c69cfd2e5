"""Oja's and Krasulina's rules, Sanger's algorithm, and the closed form of Gram-Schmidt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.streaming.krasulina import krasulina
from rlreps.streaming.oja import oja
from rlreps.streaming.orthonormal import BasisState, add_outer, orthonormalize, sums_of_earlier
from rlreps.streaming.sanger import SangerState, sanger
from rlreps.streaming.schedules import power_decay
from rlreps.subspace import longest_eigenvector_streak, subspace_distance

FEATURES, K = 12, 4


def basis(seed=0):
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(FEATURES, K)))
    return q


def gram_schmidt(columns):
    """SciPy's QR with a positive diagonal."""
    q, r = scipy.linalg.qr(columns, mode="economic")
    return q * np.sign(np.diag(r))


def data(count, seed=1):
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(FEATURES, FEATURES)))
    deviations = np.sqrt([9.0, 6.0, 4.0, 2.5] + [0.5] * (FEATURES - K))
    return generator.normal(size=(count, FEATURES)) * deviations @ rotation.T, rotation


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("rate", [1e-3, 0.5, 1e6])
def test_ojas_step_is_the_qr_decomposition_of_the_gradient_step(count, rate):
    rows, _ = data(count)
    start = basis()
    expected = gram_schmidt(start + rate / count * rows.T @ rows @ start)
    with jax.enable_x64(True):
        state = BasisState(jnp.zeros((), jnp.int32), jnp.asarray(start.T))
        rule = oja(FEATURES, K, learning_rate=rate)
        found = rule.components(rule.update(state, jnp.asarray(rows)))
    # After a huge step along few rows SciPy is left with what rounding spared of the old basis.
    np.testing.assert_allclose(found, expected, atol=1e-9 * max(rate, 1.0))


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("rate", [1e-3, 0.5, 100.0])
def test_krasulinas_step_is_the_qr_decomposition_of_the_step_along_the_residuals(count, rate):
    rows, _ = data(count)
    start = basis()
    residuals = rows - rows @ start @ start.T
    expected = gram_schmidt(start + rate / count * residuals.T @ (rows @ start))
    with jax.enable_x64(True):
        state = BasisState(jnp.zeros((), jnp.int32), jnp.asarray(start.T))
        rule = krasulina(FEATURES, K, learning_rate=rate)
        found = rule.components(rule.update(state, jnp.asarray(rows)))
        np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("excess", ["oja", "krasulina"])
def test_the_closed_form_of_gram_schmidt_is_scipys_qr(excess):
    generator = np.random.default_rng(3)
    start, weights = basis(), generator.normal(size=K)
    free = generator.normal(size=FEATURES)
    residual = free - start @ (start.T @ free)
    # V d = c w leaves inner products I + (2c + ‖d‖²) w wᵀ.
    share = 0.8 if excess == "oja" else 0.0
    direction = residual + share * start @ weights
    amount = 2 * share + direction @ direction
    with jax.enable_x64(True):
        found = add_outer(
            jnp.asarray(start.T), jnp.asarray(weights), jnp.asarray(direction), jnp.asarray(amount)
        )
        np.testing.assert_allclose(
            found.T, gram_schmidt(start + np.outer(direction, weights)), atol=1e-12
        )


def test_gram_schmidt_keeps_the_spans_of_the_first_rows():
    rows = np.random.default_rng(4).normal(size=(K, FEATURES))
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            orthonormalize(jnp.asarray(rows)).T, gram_schmidt(rows.T), atol=1e-12
        )


def test_sums_of_earlier_rows_leave_the_row_itself_out():
    rows = np.random.default_rng(4).normal(size=(K, FEATURES)).astype(np.float32)
    expected = np.cumsum(rows, axis=0) - rows
    np.testing.assert_allclose(sums_of_earlier(jnp.asarray(rows)), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [oja, krasulina])
def test_bases_stay_orthonormal_over_a_hundred_thousand_closed_form_steps(make):
    rows, _ = data(10_000)
    rule = make(FEATURES, K, learning_rate=power_decay(1.0, 0.3))
    stream = jnp.asarray(rows, jnp.float32)

    @jax.jit
    def passes(state):
        return jax.lax.scan(lambda s, _: (rule.update_each(s, stream), None), state, length=10)[0]

    state = passes(rule.init(jax.random.key(0)))
    overlaps = np.asarray(state.rows, np.float64) @ np.asarray(state.rows, np.float64).T
    np.testing.assert_allclose(overlaps, np.eye(K), atol=2e-6)


def test_ojas_columns_are_single_eigenvectors_and_krasulinas_span_them():
    rows, rotation = data(40_000)
    exact, stream = jnp.asarray(rotation[:, :K], jnp.float32), jnp.asarray(rows, jnp.float32)
    found = {}
    for make in (oja, krasulina):
        rule = make(FEATURES, K, learning_rate=power_decay(1.0, 0.9))
        found[make] = rule.components(
            jax.jit(rule.update_each)(rule.init(jax.random.key(0)), stream)
        )
        assert float(subspace_distance(found[make], exact)) < 2e-3
    assert int(longest_eigenvector_streak(found[oja], exact)) == K
    assert int(longest_eigenvector_streak(found[krasulina], exact)) < K


@pytest.mark.parametrize("count", [1, 3, 20])
def test_sangers_step_is_the_published_formula_written_out(count):
    rows, _ = data(count)
    start, rate = np.random.default_rng(5).normal(size=(FEATURES, K)), 0.01
    expected = start.copy()
    for row in rows:
        outputs = start.T @ row
        for i in range(K):
            left = row - sum(outputs[j] * start[:, j] for j in range(i + 1))
            expected[:, i] += rate / count * outputs[i] * left
    with jax.enable_x64(True):
        state = SangerState(jnp.zeros((), jnp.int32), jnp.asarray(start.T))
        found = sanger(FEATURES, K, learning_rate=rate).update(state, jnp.asarray(rows))
        np.testing.assert_allclose(found.rows.T, expected, atol=1e-12)


def test_sangers_columns_are_single_eigenvectors_in_order():
    rows, rotation = data(40_000)
    exact = jnp.asarray(rotation[:, :K], jnp.float32)
    rule = sanger(FEATURES, K, learning_rate=lambda step: 1.0 / (step.astype(jnp.float32) + 100.0))
    state = jax.jit(rule.update_each)(rule.init(jax.random.key(0)), jnp.asarray(rows, jnp.float32))
    assert int(longest_eigenvector_streak(rule.components(state), exact)) == K


@pytest.mark.parametrize("rate", [1.0, 1e5])
@pytest.mark.parametrize("make", [oja, krasulina])
def test_huge_first_steps_leave_an_orthonormal_basis(make, rate):
    rows, _ = data(200)
    rule = make(FEATURES, K, learning_rate=power_decay(rate, 0.9))
    state = rule.update_each(rule.init(jax.random.key(0)), jnp.asarray(rows, jnp.float32))
    overlaps = np.asarray(state.rows, np.float64) @ np.asarray(state.rows, np.float64).T
    np.testing.assert_allclose(overlaps, np.eye(K), atol=1e-5)


@pytest.mark.parametrize(("make", "rate"), [(oja, 1e5), (krasulina, 1.0)])
def test_float32_follows_float64(make, rate):
    rows, _ = data(200)

    def projector(dtype):
        rule = make(FEATURES, K, learning_rate=power_decay(rate, 0.9))
        state = BasisState(jnp.zeros((), jnp.int32), jnp.asarray(basis().T, dtype))
        found = np.asarray(rule.update_each(state, jnp.asarray(rows, dtype)).rows)
        return found.T @ found

    single = projector(jnp.float32)
    with jax.enable_x64(True):
        double = projector(jnp.float64)
    np.testing.assert_allclose(single, double, atol=1e-3)


@pytest.mark.parametrize("make", [oja, krasulina])
def test_as_many_components_as_features_leave_nothing_to_step_along(make):
    """All that is left of a row is rounding, which a long step must not follow."""
    rows, _ = data(50)
    rule = make(FEATURES, FEATURES, learning_rate=1e5)
    state = rule.update_each(rule.init(jax.random.key(0)), jnp.asarray(rows, jnp.float32))
    overlaps = np.asarray(state.rows, np.float64) @ np.asarray(state.rows, np.float64).T
    np.testing.assert_allclose(overlaps, np.eye(FEATURES), atol=1e-4)
