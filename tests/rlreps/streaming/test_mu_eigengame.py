import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.decomposition import PCA

from rlreps.streaming.mu_eigengame import mu_eigengame, unbiased_gradients
from rlreps.subspace import longest_eigenvector_streak, subspace_distance

FEATURES, COMPONENTS = 12, 4


def planted(rows=4000, seed=0):
    """Centred rows whose covariance has variances 9, 6, 4, 2.5 and a tail of 0.5."""
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(FEATURES, FEATURES)))
    deviations = np.sqrt([9.0, 6.0, 4.0, 2.5] + [0.5] * (FEATURES - 4))
    data = generator.normal(size=(rows, FEATURES)) * deviations @ rotation.T
    return (data - data.mean(axis=0)).astype(np.float32)


def exact_components(data):
    return PCA(COMPONENTS, svd_solver="full").fit(data.astype(np.float64)).components_


def random_players(seed=1):
    players = np.random.default_rng(seed).normal(size=(COMPONENTS, FEATURES))
    return players / np.linalg.norm(players, axis=1, keepdims=True)


def written_out(players, batch):
    """The paper's sum over parents, player by player in float64."""
    covariance = batch.T @ batch / len(batch)
    gradients = []
    for i, own in enumerate(players):
        gradient = covariance @ own
        for parent in players[:i]:
            gradient = gradient - (own @ covariance @ parent) * parent
        gradients.append(gradient)
    return np.stack(gradients)


@pytest.mark.parametrize("size", [1, 3, 20])
def test_gradients_are_those_of_the_papers_formula(size):
    batch = np.random.default_rng(2).normal(size=(size, FEATURES))
    players = random_players()
    with jax.enable_x64(True):
        found = np.asarray(unbiased_gradients(jnp.asarray(players), jnp.asarray(batch)))
    np.testing.assert_allclose(found, written_out(players, batch), rtol=1e-10, atol=1e-12)


def test_gradients_of_single_rows_average_to_that_of_all_rows():
    data, players = jnp.asarray(planted(rows=200)), jnp.asarray(random_players(), jnp.float32)
    single = jax.vmap(lambda row: unbiased_gradients(players, row[None, :]))(data)
    np.testing.assert_allclose(
        jnp.mean(single, axis=0), unbiased_gradients(players, data), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("size", [1, 20])
def test_an_update_follows_the_tangent_and_stays_on_the_sphere(size):
    batch = np.random.default_rng(3).normal(size=(size, FEATURES))
    with jax.enable_x64(True):
        rule = mu_eigengame(FEATURES, COMPONENTS, learning_rate=0.2)
        state = rule.init(jax.random.key(0))
        after = np.asarray(rule.update(state, jnp.asarray(batch)).vectors).T
        players = np.asarray(state.vectors).T
    gradients = written_out(players, batch)
    tangent = gradients - np.sum(gradients * players, axis=1, keepdims=True) * players
    moved = players + 0.2 * tangent
    expected = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    np.testing.assert_allclose(after, expected, rtol=1e-10, atol=1e-12)


def test_exact_components_are_an_equilibrium():
    data = planted().astype(np.float64)
    exact = exact_components(data)
    gradients = written_out(exact, data)
    with jax.enable_x64(True):
        found = np.asarray(unbiased_gradients(jnp.asarray(exact), jnp.asarray(data)))
    tangent = found - np.sum(found * exact, axis=1, keepdims=True) * exact
    assert np.abs(tangent).max() < 1e-9 * np.abs(gradients).max()


def test_full_batches_lead_to_the_components_of_exact_analysis_in_order():
    data = planted(rows=500)
    rule = mu_eigengame(FEATURES, COMPONENTS, learning_rate=0.05)
    state, _ = jax.lax.scan(
        lambda state, _: (rule.update(state, jnp.asarray(data)), None),
        rule.init(jax.random.key(0)),
        length=1500,
    )
    found = np.asarray(rule.components(state), np.float64)
    overlaps = np.abs(exact_components(data) @ found)
    np.testing.assert_allclose(overlaps, np.eye(COMPONENTS), atol=1e-3)


def test_single_rows_with_a_decaying_rate_find_every_component_of_a_planted_spectrum():
    data = planted()
    exact = jnp.asarray(exact_components(data).T, jnp.float32)
    order = np.random.default_rng(4).integers(len(data), size=60_000)
    rule = mu_eigengame(
        FEATURES,
        COMPONENTS,
        learning_rate=lambda step: 0.01 * (1.0 - step.astype(jnp.float32) / 60_000),
    )
    start = rule.init(jax.random.key(0))
    found = rule.components(jax.jit(rule.update_each)(start, jnp.asarray(data[order])))
    assert float(subspace_distance(rule.components(start), exact)) > 0.3
    assert float(subspace_distance(found, exact)) < 0.01
    assert int(longest_eigenvector_streak(found, exact)) == COMPONENTS
