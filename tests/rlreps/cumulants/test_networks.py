"""Random-network indicators: what their thresholds promise."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.cumulants import RandomIndicators


def assert_mean(samples, expected):
    """The mean of independent samples [n, ...] is the expected one within 4.5 standard errors."""
    error = samples.std(axis=0) / math.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - expected) <= 4.5 * error)


def drawn(family, positions, networks):
    """Values [networks, n] of one function from each of many networks at positions [n, c]."""

    def one(key):
        return family.apply(family.init(key, 1), jnp.asarray(positions, jnp.float32))[:, 0]

    values = jax.vmap(one)(jax.random.split(jax.random.key(0), networks))
    return np.asarray(values, np.float64)


def test_indicators_are_zero_or_one_and_balanced_at_every_point_inside_the_box_or_not():
    positions = [[0.5, 0.5], [0.0, 1.0], [3.0, -2.0]]
    values = drawn(RandomIndicators(hidden=(16, 8)), positions, 4_000)
    assert set(np.unique(values)) == {0.0, 1.0}
    assert_mean(values, 0.5)


def test_the_share_of_the_box_where_an_indicator_is_one_is_uniform():
    """Moments of the uniform distribution: 1/2, 1/3; shares over 2,000 points, unbiased pairs."""
    positions = np.random.default_rng(0).random((2_000, 3))
    family = RandomIndicators(hidden=(16,), num_inputs=3)
    values = drawn(family, positions, 1_500)
    assert_mean(values.mean(axis=1), 0.5)
    # Products of different points: their mean is the mean squared share.
    assert_mean((values[:, ::2] * values[:, 1::2]).mean(axis=1), 1 / 3)


def test_indicators_drawn_together_have_thresholds_of_their_own():
    params = RandomIndicators(hidden=(8,)).init(jax.random.key(0), 50)
    assert len(np.unique(np.asarray(params.thresholds))) == 50
