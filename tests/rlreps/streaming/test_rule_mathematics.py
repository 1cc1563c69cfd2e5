"""What single rules promise beyond the contract: precision, anchors, projections, exactness."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from sklearn.decomposition import IncrementalPCA as SklearnIncrementalPCA

from rlreps.streaming import (
    ExplicitKrasulina,
    ImplicitKrasulina,
    IncrementalPCA,
    Krasulina,
    Oja,
    PowerDecay,
)
from rlreps.streaming.rules.combining import online_em_average
from rlreps.streaming.rules.factor import FactorState, inverse_gram
from rlreps.streaming.rules.incremental_pca import add_row, add_rows
from rlreps.streaming.rules.orthonormal import VectorState, add_outer, orthonormalize
from rlreps.subspace import subspace_distance

FEATURES, K = 12, 4

each_row = jax.jit(lambda rule, state, rows: rule.update_each(state, rows))
"""One compilation a class and shape: learning rates are arguments."""


def planted(count, seed=1, features=FEATURES, variances=(9.0, 6.0, 4.0, 2.5), tail=0.5):
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(features, features)))
    deviations = np.sqrt([*variances] + [tail] * (features - len(variances)))
    return generator.normal(size=(count, features)) * deviations @ rotation.T, rotation


def assert_orthonormal(rows, atol=1e-5):
    rows = np.asarray(rows, np.float64)
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=atol)


# Orthonormal bases.


def test_the_closed_form_of_gram_schmidt_is_scipys_qr():
    generator = np.random.default_rng(3)
    start, weights = np.linalg.qr(generator.normal(size=(FEATURES, K)))[0], generator.normal(size=K)
    with jax.enable_x64(True):
        add = jax.jit(add_outer)
        for share, length in itertools.product([0.0, 0.8], [1e-3, 1.0, 1e3]):
            free = length * generator.normal(size=FEATURES)
            # Vd = s w leaves inner products I + (2s + ‖d‖²) w wᵀ.
            direction = free - start @ (start.T @ free) + share * start @ weights
            q, r = scipy.linalg.qr(start + np.outer(direction, weights), mode="economic")
            found = add(start.T, weights, direction, 2 * share + direction @ direction)
            np.testing.assert_allclose(found.T, q * np.sign(np.diag(r)), atol=1e-9)


@pytest.mark.parametrize(("cls", "rate"), [(Oja, 1e5), (Krasulina, 1.0)])
def test_huge_first_steps_keep_a_basis_that_follows_float64(cls, rate):
    rows, _ = planted(200)
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


@pytest.mark.parametrize("cls", [Oja, Krasulina])
def test_as_many_components_as_features_leave_nothing_to_step_along(cls):
    """All that is left of a row is rounding, which a long step must not follow."""
    rows, _ = planted(50)
    rule = cls(FEATURES, FEATURES, learning_rate=1e5)
    state = each_row(rule, rule.init(jax.random.key(0)), jnp.asarray(rows, jnp.float32))
    assert_orthonormal(state.rows, atol=1e-4)


# Combination of models.


def test_the_online_em_average_minimises_the_weighted_divergence_of_the_models():
    """Σ w_m KL(p_m(x, y) ‖ p(x, y)) of Gaussians with unit noise."""
    generator = np.random.default_rng(0)
    factors, weights = generator.normal(size=(4, K, FEATURES)), np.asarray([1.0, 2.0, 3.0, 0.5])

    def joint(rows):
        factor = rows.T
        return np.block([[factor @ rows + np.eye(FEATURES), factor], [rows, np.eye(K)]])

    def divergence(rows):
        inverse = np.linalg.inv(joint(rows))
        traces = [np.trace(inverse @ joint(each)) for each in factors]
        return 0.5 * float(weights @ traces)

    with jax.enable_x64(True):
        mean = np.asarray(online_em_average(jnp.asarray(factors), jnp.asarray(weights)))
    least = divergence(mean)
    for _ in range(20):
        assert divergence(mean + 0.01 * generator.normal(size=mean.shape)) > least


# Factors with their pseudo-inverse.


def factor(rows):
    return FactorState(jnp.zeros((), jnp.int32), rows, inverse_gram(rows))


def inverse_error(state):
    exact = np.linalg.pinv(np.asarray(state.rows, np.float64).T)
    return np.abs(np.asarray(state.pseudo_inverse) - exact).max() / np.abs(exact).max()


def test_without_anchors_the_pseudo_inverse_would_drift_away():
    """At a rate that changes the factor much, rounding adds up."""
    rows = jnp.asarray(planted(5000)[0], jnp.float32)
    rule = ImplicitKrasulina(FEATURES, K, learning_rate=PowerDecay(1e4, 0.8), initial_scale=1e-4)
    start = rule.init(jax.random.key(0))
    bare = jax.jit(
        lambda rows: jax.lax.scan(lambda s, row: (rule.step_row(s, row), None), start, rows)[0]
    )
    assert inverse_error(bare(rows)) > 0.1
    assert inverse_error(each_row(rule, start, rows)) < 1e-5


def test_extremes_of_factors_rates_and_rows_stay_finite():
    rule = ImplicitKrasulina(FEATURES, K, learning_rate=1e30)
    batch = np.repeat(planted(1)[0], 3, axis=0).astype(np.float32)
    state = jax.jit(rule.update)(rule.init(jax.random.key(0)), batch)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    rows = ExplicitKrasulina(400, K, learning_rate=0.1).init(jax.random.key(0)).rows
    np.testing.assert_allclose(jnp.linalg.norm(rows, axis=1), 1.0, atol=0.15)


def dense(state):
    rows = np.asarray(state.rows, np.float64)
    return rows.T * np.asarray(state.energies, np.float64) @ rows


# Incremental principal component analysis and matrices of low rank.

WIDTH, RANK = 30, 5
INCREMENTAL = IncrementalPCA(WIDTH, RANK)
UPDATE = jax.jit(INCREMENTAL.update)


def low_rank_rows(rank=RANK, rows=60, seed=0):
    """Rows of exact rank, centred, with singular values that differ."""
    generator = np.random.default_rng(seed)
    left = generator.normal(size=(rows, rank)) * 2.0 ** -np.arange(rank)
    left -= left.mean(axis=0)
    return left @ generator.normal(size=(rank, WIDTH))


def updated(rows, sizes, seed=0):
    state = INCREMENTAL.init(jax.random.key(seed))
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        state = UPDATE(state, jnp.asarray(batch, jnp.float32))
    return state


@pytest.mark.parametrize("sizes", [[1] * 60, [3] * 20, [20, 1, 3, 3, 20, 1, 1, 1, 1, 3, 3, 3]])
def test_rows_of_rank_k_in_any_batches_lead_to_the_exact_decomposition(sizes):
    data = low_rank_rows()
    state = updated(data, sizes)
    np.testing.assert_allclose(dense(state), data.T @ data, atol=1e-4 * np.linalg.norm(data) ** 2)
    exact = np.linalg.svd(data, compute_uv=False)[:RANK]
    np.testing.assert_allclose(np.sqrt(state.energies), exact, rtol=1e-4)
    assert_orthonormal(state.rows)
    assert int(state.rows_seen) == len(data)
    assert int(state.step) == len(sizes)


def test_where_ranks_are_cut_batches_do_what_scikit_learn_does():
    generator = np.random.default_rng(2)
    data = generator.normal(size=(200, WIDTH)) * np.linspace(3.0, 0.5, WIDTH)
    # Batches of mean zero, because scikit-learn corrects for each batch's mean.
    batches = data.reshape(10, 20, WIDTH)
    batches = batches - batches.mean(axis=1, keepdims=True)
    reference = SklearnIncrementalPCA(RANK)
    for batch in batches:
        reference.partial_fit(batch)
    state = updated(batches.reshape(200, -1), [20] * 10)
    np.testing.assert_allclose(np.sqrt(state.energies), reference.singular_values_, rtol=1e-4)
    cosines = np.abs(np.sum(np.asarray(state.rows, np.float64) * reference.components_, axis=1))
    np.testing.assert_allclose(cosines, 1.0, atol=1e-4)


HOSTILE = {
    "nothing but zeros": np.zeros((9, WIDTH)),
    "one row again and again": np.tile(np.arange(WIDTH) / 7.0, (9, 1)),
    "a row between two zeros": np.eye(9, WIDTH) * (np.arange(9) == 4)[:, None],
    "rows along one axis": np.outer(np.arange(9.0), np.eye(WIDTH)[3]),
    "a pair of directions by turns": np.eye(WIDTH)[np.arange(9) % 2],
    "rows of very different lengths": np.eye(9, WIDTH) * 10.0 ** -np.arange(9)[:, None],
    "rows of squares near the least number": np.eye(9, WIDTH) * 1e-17,
    "rows of squares below the least number": np.tile(3e-21 * np.eye(1, WIDTH) + 4e-21, (9, 1)),
    "rows of squares near the largest number": np.eye(9, WIDTH) * 1e18,
    "duplicates before a new direction": np.eye(WIDTH)[[0, 0, 0, 1, 1, 1, 2, 2, 2]] + 0.1,
    "fewer rows than components": np.eye(9, WIDTH)[[0, 1, 1, 0, 0, 0, 0, 0, 0]],
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


@pytest.mark.parametrize("together", [False, True])
def test_rows_almost_within_the_span_keep_the_basis_orthonormal(together):
    # What a long row leaves after one projection is half rounding, which lies within the span.
    generator = np.random.default_rng(1)
    basis = orthonormalize(jax.random.normal(jax.random.key(0), (6, 50)))
    values = jnp.asarray([5.0, 4.0, 3.0, 0.0, 0.0, 0.0])
    add = jax.jit(
        lambda *matrix, row: add_rows(*matrix, row[None]) if together else add_row(*matrix, row)
    )
    for _ in range(20):
        along = generator.normal(size=6) @ np.asarray(basis)
        row = 1e3 * along + 1e-2 * generator.normal(size=50)
        basis, values = add(basis, values, row=jnp.asarray(row, jnp.float32))
        assert_orthonormal(basis)
    inside = jnp.asarray([1.0, -2.0, 0.5, 3.0, 0.0, 1.0]) @ basis
    moved, _ = add(basis, values, row=inside)
    assert float(subspace_distance(moved.T, basis.T)) < 1e-5
