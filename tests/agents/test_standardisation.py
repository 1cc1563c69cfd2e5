"""Standardised targets, against averages by formula."""

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.agents.auxiliary import init_moments, standardise


def batches(count):
    draws = np.random.default_rng(0).normal(size=(count, 40, 3))
    return draws * np.array([1.0, 5.0, 0.2]) + np.array([10.0, 0.0, -3.0])


def standardised(each):
    """What becomes of batches in turn."""
    moments, found = init_moments(3), []
    for batch in each:
        out, moments = jax.jit(standardise)(moments, jnp.asarray(batch, jnp.float32))
        found.append(np.asarray(out))
    return found


def test_a_batch_is_measured_by_the_weighted_average_of_those_before_it():
    each = batches(6)
    weights = 0.99 ** np.arange(5)[::-1]
    mean = np.average(each[:5].mean(axis=1), axis=0, weights=weights)
    variance = np.average(each[:5].var(axis=1).mean(axis=1), weights=weights)
    expected = (each[5] - mean) / np.sqrt(variance)
    np.testing.assert_allclose(standardised(each)[5], expected, rtol=1e-4, atol=1e-4)


def test_the_first_batch_is_measured_by_itself():
    each = batches(1)
    expected = (each[0] - each[0].mean(axis=0)) / np.sqrt(each[0].var(axis=0).mean())
    np.testing.assert_allclose(standardised(each)[0], expected, rtol=1e-4, atol=1e-4)


def test_neither_the_unit_of_targets_nor_what_is_added_to_a_column_matters():
    each = batches(4)
    other = 1_000.0 * each + np.array([0.0, 1e4, -300.0])
    for ours, theirs in zip(standardised(each), standardised(other), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_columns_keep_their_relative_sizes():
    found = np.concatenate(standardised(batches(50))[1:])
    spread = found.std(axis=0)
    np.testing.assert_allclose(spread / spread[0], [1.0, 5.0, 0.2], rtol=0.1)
