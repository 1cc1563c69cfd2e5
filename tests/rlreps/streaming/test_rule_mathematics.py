"""What single rules promise beyond the contract: precision, anchors, projections, exactness."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.streaming import ImplicitKrasulina, IncrementalPCA, Krasulina, Oja, PowerDecay
from rlreps.streaming.rules.orthonormal import VectorState

FEATURES, K = 12, 4

each_row = jax.jit(lambda rule, state, rows: rule.update_each(state, rows))
"""One compilation a class and shape: learning rates are arguments."""


def planted(count):
    """Rows [count, FEATURES] of known variances along random axes."""
    generator = np.random.default_rng(1)
    rotation, _ = np.linalg.qr(generator.normal(size=(FEATURES, FEATURES)))
    deviations = np.sqrt([9.0, 6.0, 4.0, 2.5] + [0.5] * (FEATURES - 4))
    return generator.normal(size=(count, FEATURES)) * deviations @ rotation.T


def assert_orthonormal(rows, atol=1e-5):
    rows = np.asarray(rows, np.float64)
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=atol)


# Orthonormal bases.


@pytest.mark.parametrize(("cls", "rate"), [(Oja, 1e5), (Krasulina, 1.0)])
def test_huge_first_steps_keep_a_basis_that_follows_float64(cls, rate):
    rows = planted(200)
    start = np.linalg.qr(np.random.default_rng(0).normal(size=(FEATURES, K)))[0].T

    def ended(dtype):
        rule = cls(FEATURES, K, learning_rate=PowerDecay(rate, 0.9))
        state = VectorState(jnp.zeros((), jnp.int32), jnp.asarray(start, dtype))
        return np.asarray(each_row(rule, state, jnp.asarray(rows, dtype)).rows, np.float64)

    single = ended(jnp.float32)
    with jax.enable_x64(True):
        double = ended(jnp.float64)
    assert_orthonormal(single)
    np.testing.assert_allclose(single.T @ single, double.T @ double, atol=1e-3)


# Factors with their pseudo-inverse.


def test_the_pseudo_inverse_does_not_drift_away():
    """At a rate that changes the factor much, rounding adds up."""
    rows = jnp.asarray(planted(5000), jnp.float32)
    rule = ImplicitKrasulina(FEATURES, K, learning_rate=PowerDecay(1e4, 0.8), initial_scale=1e-4)
    state = each_row(rule, rule.init(jax.random.key(0)), rows)
    exact = np.linalg.pinv(np.asarray(state.rows, np.float64).T)
    np.testing.assert_allclose(state.pseudo_inverse, exact, atol=1e-5 * np.abs(exact).max())


def test_a_huge_step_stays_finite():
    rule = ImplicitKrasulina(FEATURES, K, learning_rate=1e30)
    batch = np.repeat(planted(1), 3, axis=0).astype(np.float32)
    state = jax.jit(rule.update)(rule.init(jax.random.key(0)), batch)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


# Incremental principal component analysis and matrices of low rank.

WIDTH, RANK = 30, 5
INCREMENTAL = IncrementalPCA(WIDTH, RANK)
UPDATE = jax.jit(INCREMENTAL.update)


def updated(rows, sizes):
    state = INCREMENTAL.init(jax.random.key(0))
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        state = UPDATE(state, jnp.asarray(batch, jnp.float32))
    return state


HOSTILE = {
    "nothing but zeros": np.zeros((9, WIDTH)),
    "a pair of directions by turns": np.eye(WIDTH)[np.arange(9) % 2],
    "rows of very different lengths": np.eye(9, WIDTH) * 10.0 ** -np.arange(9)[:, None],
    "rows of squares below the least number": np.tile(3e-21 * np.eye(1, WIDTH) + 4e-21, (9, 1)),
    "rows of squares near the largest number": np.eye(9, WIDTH) * 1e18,
    "duplicates before a new direction": np.eye(WIDTH)[[0, 0, 0, 1, 1, 1, 2, 2, 2]] + 0.1,
}


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_dependent_rows_and_zeros_keep_the_basis_orthonormal_and_the_energies_right(data, size):
    state = updated(data, [size] * (9 // size))
    assert_orthonormal(state.rows)
    energies = np.asarray(state.energies, np.float64)
    exact = np.linalg.svd(data.astype(np.float64), compute_uv=False)[:RANK] ** 2
    assert (energies >= 0.0).all()
    np.testing.assert_allclose(energies, exact, atol=1e-5 * exact[0] + 1e-38)


@pytest.mark.parametrize("size", [1, 50])
def test_small_components_beside_a_large_one_are_those_of_float64(size):
    generator = np.random.default_rng(0)
    turn, _ = np.linalg.qr(generator.normal(size=(8, 8)))
    rows = generator.normal(size=(600, 8)) * [3e4, 10, 8, 5, 0.3, 0.3, 0.3, 0.3] @ turn
    rows = rows.astype(np.float32)
    rule = IncrementalPCA(8, 4)
    update, state = jax.jit(rule.update), rule.init(jax.random.key(0))
    for batch in rows.reshape(-1, size, 8):
        state = update(state, batch)
    _, values, exact = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(np.sqrt(state.energies), values[:4], rtol=0.01)
    cosines = np.sum(np.asarray(rule.components(state)).T * exact[:4], axis=1)
    assert np.all(np.abs(cosines) > 0.999)
