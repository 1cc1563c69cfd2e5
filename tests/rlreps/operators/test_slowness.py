"""Slowness against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.errors import InputError
from rlreps.operators import slowness
from rlreps.operators.action import act


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def action_of(now, later):
    points = jnp.asarray(np.concatenate([now, later]))
    action = act(slowness(), lambda x: x, points)
    return np.asarray(action.covariance), np.asarray(action.operator_matrix)


def test_the_quadratic_form_is_the_mean_squared_change_over_that_of_both_ends():
    now, later = np.random.default_rng(0).normal(size=(2, 40, 3))
    covariance, operator_matrix = action_of(now, later)
    change = now - later
    np.testing.assert_allclose(operator_matrix, change.T @ change / 40, rtol=1e-10)
    np.testing.assert_allclose(covariance, (now.T @ now + later.T @ later) / 80, rtol=1e-10)


@pytest.mark.parametrize(
    ("later", "eigenvalue"), [(lambda u: u, 0.0), (lambda u: -u, 4.0), (lambda u: 0.0 * u, 2.0)]
)
def test_eigenvalues_are_0_for_what_stays_4_for_what_flips_and_2_for_what_vanishes(
    later, eigenvalue
):
    now = np.random.default_rng(0).normal(size=(30, 2))
    values = scipy.linalg.eigvalsh(*reversed(action_of(now, later(now))))
    np.testing.assert_allclose(values, eigenvalue, atol=1e-12)


def test_no_eigenvalue_leaves_0_to_4_and_each_tells_the_correlation_of_a_step():
    rng = np.random.default_rng(0)
    for mixing in (-2.0, -0.3, 0.4, 3.0):
        now = rng.normal(size=(25, 4))
        later = mixing * now + rng.normal(size=(25, 4))
        covariance, operator_matrix = action_of(now, later)
        values, vectors = scipy.linalg.eigh(operator_matrix, covariance)
        assert np.all(values >= 0.0)
        assert np.all(values <= 4.0)
        first, last = now @ vectors, later @ vectors
        correlations = 2.0 * np.sum(first * last, axis=0) / np.sum(first**2 + last**2, axis=0)
        np.testing.assert_allclose(1.0 - values / 2.0, correlations, rtol=1e-8)


def test_an_odd_number_of_rows_is_refused():
    with pytest.raises(InputError, match=r"expected an even number of rows, pairs .*, got 5"):
        act(slowness(), lambda x: x, jnp.ones((5, 2)))
