"""Kernels: unbiased against exact integrals, and the singular vectors of a matrix."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.operators import Kernel, TargetKernel, act, require_symmetric

NUM_STATES = 4
RNG = np.random.default_rng(0)
PLACES = RNG.normal(size=NUM_STATES)
TABLE = RNG.normal(size=(NUM_STATES, 2))
MEASURE = RNG.dirichlet(np.full(NUM_STATES, 3.0))
KERNEL = np.exp(-((PLACES[:, None] - PLACES[None, :]) ** 2))
PSI = RNG.normal(size=(NUM_STATES, 3))
STATES = np.arange(NUM_STATES)


def gaussian(inputs, others):
    return jnp.asarray(KERNEL)[inputs][:, others]


def lookup(states):
    return jnp.asarray(TABLE)[states]


def expected_moments(operator, targets=None, weights=None, rows=3):
    """Exact expectations of Σ and Π under uniform states: over all batches there can be."""
    batches = np.asarray(list(itertools.product(range(NUM_STATES), repeat=rows)))

    def one(states):
        entries = None if targets is None else jnp.asarray(targets)[states]
        action = act(operator, lookup, states, targets=entries, weights=weights)
        return action.covariance, action.operator_matrix

    covariances, products = jax.jit(jax.vmap(one))(jnp.asarray(batches))
    return covariances.mean(axis=0), products.mean(axis=0)


@pytest.mark.parametrize("rows", [2, 3, pytest.param(5, marks=pytest.mark.integration)])
def test_the_mean_over_the_other_rows_is_unbiased_at_any_batch_size(rows):
    _, found = expected_moments(Kernel(gaussian, samples=STATES), rows=rows)
    expected = TABLE.T @ KERNEL @ TABLE / NUM_STATES**2
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_importance_weights_turn_the_integral_into_that_under_the_measure():
    def weights(states):
        return jnp.asarray(NUM_STATES * MEASURE)[states]

    covariance, found = expected_moments(Kernel(gaussian, samples=STATES), weights=weights)
    np.testing.assert_allclose(covariance, TABLE.T @ (MEASURE[:, None] * TABLE), rtol=1e-10)
    weighted = TABLE * MEASURE[:, None]
    np.testing.assert_allclose(found, weighted.T @ KERNEL @ weighted, rtol=1e-10)
    _, product = expected_moments(TargetKernel(), targets=PSI, weights=weights)
    np.testing.assert_allclose(product, weighted.T @ PSI @ PSI.T @ weighted / 3, rtol=1e-10)


def test_what_a_kernel_is_at_equal_points_does_not_matter():
    states = jnp.arange(NUM_STATES)
    singular = jnp.asarray(np.where(np.eye(NUM_STATES), np.inf, KERNEL))
    found, expected = (
        act(Kernel(kernel, samples=STATES), lookup, states).images
        for kernel in (lambda x, y: singular[x][:, y], gaussian)
    )
    np.testing.assert_array_equal(found, expected)


def test_a_kernel_that_is_not_symmetric_is_refused_with_the_samples_that_show_it():
    points = jnp.asarray(RNG.normal(size=(6, 2)))
    require_symmetric(lambda x, y: jnp.tanh(x @ y.T), points)

    def skewed(inputs, others):
        bump = (inputs[:, :1] == points[4, 0]) & (others[:, :1] == points[1, 0]).T
        return inputs @ others.T + jnp.where(bump, 0.25, 0.0)

    with pytest.raises(InputError, match=r"symmetric kernel.* for samples (4 and 1|1 and 4)'$"):
        Kernel(skewed, samples=points)


def test_rounding_does_not_make_a_kernel_asymmetric():
    with jax.enable_x64(False):
        points = jnp.asarray(RNG.normal(size=(50, 30)), jnp.float32)
        require_symmetric(lambda x, y: 1e6 * jnp.exp(x @ (y / 7.0).T), points)
