import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from sklearn.decomposition import PCA

from rlreps.errors import InputError
from rlreps.streaming.eigengame import eigengame, utility_gradients
from rlreps.subspace import longest_eigenvector_streak, subspace_distance

FEATURES, COMPONENTS = 12, 4


def planted(rows=4000, seed=0):
    """Centred rows whose covariance has variances 9, 6, 4, 2.5 and a tail of 0.5."""
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(FEATURES, FEATURES)))
    deviations = np.sqrt([9.0, 6.0, 4.0, 2.5] + [0.5] * (FEATURES - 4))
    data = generator.normal(size=(rows, FEATURES)) * deviations @ rotation.T
    return (data - data.mean(axis=0)).astype(np.float32)


def run(rule, batches, seed=0):
    state = rule.init(jax.random.key(seed))

    def body(state, batch):
        return rule.update(state, batch), None

    return lax.scan(body, state, batches)[0]


def test_full_batches_lead_to_the_components_of_exact_analysis_in_order():
    data = planted(rows=500)
    exact = PCA(COMPONENTS, svd_solver="full").fit(data.astype(np.float64)).components_.T
    rule = eigengame(FEATURES, COMPONENTS, learning_rate=0.03)
    state = run(rule, jnp.broadcast_to(data, (1500, *data.shape)))
    found = np.asarray(rule.components(state), np.float64)
    np.testing.assert_allclose(np.abs(found.T @ exact), np.eye(COMPONENTS), atol=1e-3)


def test_mini_batches_with_a_decaying_rate_find_a_planted_spectrum():
    data = planted()
    exact = PCA(COMPONENTS, svd_solver="full").fit(data.astype(np.float64)).components_.T
    steps = 3000
    rows = np.random.default_rng(1).integers(len(data), size=(steps, 64))
    rule = eigengame(
        FEATURES,
        COMPONENTS,
        learning_rate=lambda step: 0.02 * (1.0 - step.astype(jnp.float32) / steps),
    )
    found = rule.components(run(rule, jnp.asarray(data[rows])))
    before = rule.components(rule.init(jax.random.key(0)))
    assert float(subspace_distance(before, jnp.asarray(exact, jnp.float32))) > 0.3
    assert float(subspace_distance(found, jnp.asarray(exact, jnp.float32))) < 1e-3
    assert int(longest_eigenvector_streak(found, jnp.asarray(exact, jnp.float32))) == COMPONENTS


def test_gradients_are_those_of_the_papers_formula_written_out_player_by_player():
    generator = np.random.default_rng(2)
    batch = generator.normal(size=(20, FEATURES))
    vectors = generator.normal(size=(FEATURES, COMPONENTS))
    vectors /= np.linalg.norm(vectors, axis=0)
    expected = []
    for i in range(COMPONENTS):
        inner = batch @ vectors[:, i]
        for j in range(i):
            other = batch @ vectors[:, j]
            inner = inner - (batch @ vectors[:, i] @ other) / (other @ other) * other
        expected.append(2.0 * batch.T @ inner / len(batch))
    found = utility_gradients(jnp.asarray(vectors, jnp.float32), jnp.asarray(batch, jnp.float32))
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-4, atol=1e-5)


def test_an_update_moves_along_the_sphere_and_stays_on_it():
    rule = eigengame(FEATURES, COMPONENTS, learning_rate=1e-3)
    state = rule.init(jax.random.key(3))
    batch = jnp.asarray(planted(rows=100))
    after = rule.update(state, batch)
    np.testing.assert_allclose(jnp.linalg.norm(after.vectors, axis=0), 1.0, atol=1e-6)
    gradients = np.asarray(utility_gradients(state.vectors, batch), np.float64)
    before = np.asarray(state.vectors, np.float64)
    tangent = gradients - before * np.sum(gradients * before, axis=0)
    moved = (np.asarray(after.vectors, np.float64) - before) / 1e-3
    np.testing.assert_allclose(moved, tangent, atol=0.02 * np.abs(tangent).max())
    assert int(after.step) == 1


def test_exact_components_are_an_equilibrium():
    data = planted()
    _, vectors = np.linalg.eigh(data.T.astype(np.float64) @ data)
    exact = vectors[:, ::-1][:, :COMPONENTS]
    gradients = np.asarray(utility_gradients(jnp.asarray(exact, jnp.float32), jnp.asarray(data)))
    tangent = gradients - exact * np.sum(gradients * exact, axis=0)
    assert np.abs(tangent).max() < 1e-3 * np.abs(gradients).max()


def test_the_size_of_a_batch_does_not_change_the_step():
    data = jnp.asarray(planted(rows=50))
    rule = eigengame(FEATURES, COMPONENTS, learning_rate=0.1)
    state = rule.init(jax.random.key(4))
    once = rule.update(state, data).vectors
    twice = rule.update(state, jnp.concatenate([data, data])).vectors
    np.testing.assert_allclose(once, twice, atol=1e-6)


def test_batches_of_zeros_leave_the_players_where_they_are():
    rule = eigengame(FEATURES, COMPONENTS, learning_rate=0.1)
    state = rule.init(jax.random.key(5))
    after = rule.update(state, jnp.zeros((7, FEATURES)))
    np.testing.assert_allclose(after.vectors, state.vectors, atol=1e-6)


@pytest.mark.parametrize(
    ("components", "rate", "message"),
    [
        (0, 0.1, "expected 1 <= num_components <= 12, the features of an observation, got 0"),
        (13, 0.1, "expected 1 <= num_components <= 12, the features of an observation, got 13"),
        (4, 0.0, "expected learning_rate > 0, got 0.0"),
    ],
)
def test_settings_without_meaning_are_refused(components, rate, message):
    with pytest.raises(InputError, match=message):
        eigengame(FEATURES, components, learning_rate=rate)
