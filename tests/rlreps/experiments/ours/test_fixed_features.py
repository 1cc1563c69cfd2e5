"""Features that stand in front of a network: tables of rows, and cosines of a position."""

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.encoders import MLP
from rlreps.experiments.ours.fixed_features import (
    cells_around,
    cosine_features,
    lowest_frequencies,
    table_features,
)


def two_rows(inputs):
    """Rows i and i + 1 in equal parts."""
    rows = inputs[:, :1].astype(jnp.int32)
    return jnp.concatenate([rows, rows + 1], axis=1), jnp.full((len(inputs), 2), 0.5)


def test_a_frozen_table_gets_no_gradient_and_an_embedding_does():
    inputs = jnp.array([[3.0], [7.0]])
    for frozen in (True, False):
        encoder = table_features(MLP(3, num_inputs=5, hidden=()), two_rows, 12, 5, frozen=frozen)
        params = encoder.init(jax.random.key(0))

        def total(params, encoder=encoder):
            return jnp.sum(encoder.apply(params, inputs))

        found = np.asarray(jax.grad(total)(params)["table"])
        changed = set(np.flatnonzero(found.any(axis=1)))
        assert changed == (set() if frozen else {3, 4, 7, 8})
        features, table = encoder.apply(params, inputs), params["table"]
        between = 0.5 * (table[jnp.array([3, 7])] + table[jnp.array([4, 8])])
        np.testing.assert_allclose(features, between @ params["torso"][0]["kernel"], rtol=1e-5)


def test_the_cosines_are_those_of_the_lowest_frequencies():
    assert [lowest_frequencies(count)[0] for count in (3, 4, 8, 9)] == [1, 2, 2, 3]
    states = np.random.default_rng(0).uniform(size=(50, 2)).astype(np.float32)
    encoder = cosine_features(MLP(7, num_inputs=7, hidden=()), 7)
    features = encoder.apply([{"kernel": jnp.eye(7), "bias": jnp.zeros(7)}], states)
    pairs = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1)]
    waves = np.stack([np.prod(np.cos(np.pi * states * pair), axis=1) for pair in pairs], axis=1)
    correlations = np.abs(np.corrcoef(np.asarray(features).T, waves.T)[:7, 7:])
    np.testing.assert_allclose(correlations.max(axis=1), 1.0, atol=1e-4)
    np.testing.assert_allclose(correlations.max(axis=0), 1.0, atol=1e-4)


def test_a_position_is_interpolated_between_the_centres_of_cells():
    bins = 20
    centres = (np.arange(bins) + 0.5) / bins
    x, y = (part.ravel() for part in np.meshgrid(centres, centres))
    # What is bilinear in x and y is met everywhere between the outermost centres.
    table = 2.0 + 3.0 * x - y + 5.0 * x * y
    places = np.random.default_rng(0).uniform(centres[0], centres[-1], (200, 2)).astype(np.float32)
    cells, weights = cells_around(bins, jnp.asarray(places))
    found = np.sum(table[np.asarray(cells)] * np.asarray(weights), axis=1)
    expected = 2.0 + 3.0 * places[:, 0] - places[:, 1] + 5.0 * places[:, 0] * places[:, 1]
    np.testing.assert_allclose(found, expected, atol=1e-4)
