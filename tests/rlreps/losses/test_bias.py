"""Gradients of the form ŵ'(φᵀŵ − ψ), and their expectations by enumeration of every batch."""

import functools
import itertools
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.losses import Batch, DanskinEmpirical, DanskinLissa, Naive, Population, two_weight_loss
from rlreps.losses.danskin import Roles

# Rows of equal norm make kappa the same for every sample, as the theorem on E[Δ_J] wants.
DIRECTIONS = np.array([[3.0, 1.0], [1.0, 3.0], [3.0, -1.0]])
TABLE = 1.5 * DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
MATRIX = np.array([[1.0, -0.5, 2.0], [0.3, 0.8, -1.0], [-0.7, 0.4, 0.6]])
NUM_STATES, NUM_FEATURES = TABLE.shape
NAMES = ("gradient_rows", "weight_rows", "covariance_rows")
COVARIANCE = TABLE.T @ TABLE / NUM_STATES


# Six states whose norms differ: here it matters what κ0 is divided by.
UNEVEN = np.array([[1.8, 0.4], [0.5, -0.7], [-0.3, 1.1], [0.9, 0.8], [-1.2, 0.3], [0.1, 0.4]])
UNEVEN_MATRIX = np.array([[1.0], [-0.5], [0.8], [0.3], [-0.7], [0.6]])


def _with(roles):
    """Parametrise by roles and tasks: these in tier 0, and others."""
    more = [(Roles(1, 2, 1), 3), (Roles(2, 2, 1), 1)]
    marked = [pytest.param(*case, marks=pytest.mark.integration) for case in more]
    return pytest.mark.parametrize(("roles", "num_tasks"), [(roles, 3), *marked])


def _made(cls, roles, **options):
    """An objective with given rows in each role, and the rows of its batch."""
    objective = cls(NUM_FEATURES, **dict(zip(NAMES, roles, strict=True)), **options)
    rows = roles.gradient + objective.num_estimates * (roles.weight + roles.covariance)
    return objective, rows


def _gradient_at_weights(weights, other_weights, matrix, table=TABLE):
    """The mean over states and tasks of ŵ'(φᵀŵ − ψ), as the gradient of an expected loss."""
    residuals = table @ weights - matrix
    return residuals @ other_weights.T / residuals.size


def _lemma_1(matrix):
    exact, *_ = np.linalg.lstsq(TABLE, matrix, rcond=None)
    return _gradient_at_weights(exact, exact, matrix)


def _series_gradient(num_terms, kappa0, matrix):
    kappa = kappa0 / 1.5**2
    factor = np.eye(NUM_FEATURES) - kappa * COVARIANCE
    series = kappa * sum(np.linalg.matrix_power(factor, i) for i in range(num_terms + 1))
    weights = series @ (TABLE.T @ matrix / NUM_STATES)
    return _gradient_at_weights(weights, weights, matrix)


def _gradients(objective, rows, matrix, keys=None, table=TABLE, remembered=0.0):
    """Each sample's gradient with respect to the features of all states, [samples, n, d]."""

    @jax.jit
    @jax.vmap
    def one(rows, key):
        targets = jnp.asarray(matrix, jnp.float32)
        everything = Population(jnp.arange(len(table)), targets)
        batch = Batch(rows, targets[rows], None, everything)
        state = objective.init(key)._replace(squared_norm=jnp.float32(remembered))
        features = jnp.asarray(table, jnp.float32)
        return jax.grad(objective.loss, has_aux=True)(features, getitem, batch, state, key)[0]

    keys = jax.random.split(jax.random.key(0), len(rows)) if keys is None else keys
    return np.asarray(one(jnp.asarray(rows, jnp.int32), keys), np.float64)


def _every_batch(num_rows, num_states=NUM_STATES):
    """Every equally likely sequence of states."""
    return np.array(list(itertools.product(range(num_states), repeat=num_rows)))


def test_the_surrogate_is_pulled_back_through_a_network_and_keeps_the_values_digits():
    encoder = MLP(NUM_FEATURES, num_inputs=2, hidden=(16,))
    params, rng = encoder.init(jax.random.key(3)), np.random.default_rng(0)
    inputs, targets = rng.random((12, 2), np.float32), rng.standard_normal((12, 4), np.float32)
    w, w_prime = rng.standard_normal((2, NUM_FEATURES, 4), np.float32)

    @jax.jit
    def both(targets, *weights):
        features, pull_back = jax.vjp(lambda p: encoder.apply(p, inputs), params)
        residuals = features @ weights[0] - targets

        def loss(p, *weights):
            return two_weight_loss(encoder.apply(p, inputs), targets, *weights)

        found = jax.value_and_grad(loss, argnums=(0, 1, 2))(params, *weights)
        return features, found, pull_back(residuals @ weights[1].T / residuals.size)[0]

    both = jax.default_matmul_precision("highest")(both)
    features, (value, gradients), expected = both(targets, w, w_prime)
    np.testing.assert_allclose(value, 0.5 * np.mean((features @ w - targets) ** 2), rtol=1e-5)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, gradients[0], expected)
    for weights in gradients[1:]:
        np.testing.assert_array_equal(weights, 0.0)
    # The value keeps its digits where the surrogate is far larger than it.
    value = both(np.asarray(features) @ w + np.float32(0.01), w, np.float32(1e6) * w)[1][0]
    np.testing.assert_allclose(value, 0.5 * 0.01**2, rtol=1e-3)


@pytest.mark.parametrize(("roles", "num_tasks"), [(Roles(1, 1, 2), 3)])
def test_danskin_lissa_averaged_over_every_batch_is_the_truncated_series_gradient(roles, num_tasks):
    matrix = MATRIX[:, :num_tasks]
    objective, rows = _made(DanskinLissa, roles, kappa0=1.9)
    gradients = _gradients(objective, _every_batch(rows), matrix)
    expected = _series_gradient(roles.covariance, 1.9, matrix)
    np.testing.assert_allclose(gradients.mean(axis=0), expected, atol=2e-6)
    # The truncation shows: this is not yet Lemma 1's gradient.
    assert np.abs(expected - _lemma_1(matrix)).max() > 1e-3


LARGEST = np.max(np.sum(UNEVEN**2, axis=1))


@pytest.mark.parametrize(
    ("feature_norm", "remembered", "divisor"),
    [
        # What is remembered plays no part in these two.
        ("batch", 2.0 * LARGEST, 0.0),
        ("population", 0.5 * LARGEST, LARGEST),
        # An average of maxima lies below some rows; a maximum of all so far does not.
        ("running", 0.5 * LARGEST, 0.5 * LARGEST),
        ("running_maximum", LARGEST, LARGEST),
    ],
)
def test_danskin_lissa_divides_kappa_by_the_norm_that_is_named(feature_norm, remembered, divisor):
    objective, rows = _made(DanskinLissa, Roles(1, 1, 1), kappa0=1.9, feature_norm=feature_norm)
    batches = _every_batch(rows, len(UNEVEN))
    gradients = _gradients(objective, batches, UNEVEN_MATRIX, table=UNEVEN, remembered=remembered)
    # J = 1: Δ_1 = κI + (I − κφφᵀ)κI, with the κ that comes with each row.
    kappas = 1.9 / np.maximum(np.sum(UNEVEN**2, axis=1), divisor)
    squares = np.einsum("si,sj->sij", UNEVEN, UNEVEN)
    estimates = 2.0 * kappas[:, None, None] * np.eye(2) - kappas[:, None, None] ** 2 * squares
    weights = estimates.mean(axis=0) @ (UNEVEN.T @ UNEVEN_MATRIX / len(UNEVEN))
    expected = _gradient_at_weights(weights, weights, UNEVEN_MATRIX, UNEVEN)
    tolerance = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(gradients.mean(axis=0), expected, rtol=1e-4, atol=tolerance)


def test_exchanging_roles_keeps_the_average_over_every_batch_and_lowers_the_variance():
    roles = Roles(1, 1, 2)
    exchanging, rows = _made(DanskinLissa, roles, kappa0=1.9, permutations=8)
    batches = _every_batch(rows)
    # One key for all batches: the expectation is the same for each fixed choice of permutations.
    keys = jnp.broadcast_to(jax.random.key(11), (len(batches),))
    gradients = _gradients(exchanging, batches, MATRIX, keys)
    np.testing.assert_allclose(gradients.mean(axis=0), _series_gradient(2, 1.9, MATRIX), atol=2e-6)
    once = _gradients(_made(DanskinLissa, roles, kappa0=1.9)[0], batches, MATRIX)
    assert gradients.var(axis=0).sum() < 0.5 * once.var(axis=0).sum()


def _empirical_estimates(roles, matrix):
    """ŵ from every M + J rows by NumPy's pseudo-inverse, [samples, d, t]."""
    estimates = []
    for rows in _every_batch(roles.weight + roles.covariance):
        mean_rows, features = rows[: roles.weight], TABLE[rows[roles.weight :]]
        inverse = np.linalg.pinv(features.T @ features / len(features), rcond=1e-8)
        estimates.append(inverse @ (TABLE[mean_rows].T @ matrix[mean_rows] / roles.weight))
    return np.asarray(estimates)


@pytest.mark.parametrize(("roles", "num_tasks"), [(Roles(1, 1, 2), 3)])
def test_the_empirical_form_averages_to_the_product_of_two_mean_estimates(roles, num_tasks):
    matrix = MATRIX[:, :num_tasks]
    objective, rows = _made(DanskinEmpirical, roles)
    gradients = _gradients(objective, _every_batch(rows), matrix)
    mean = _empirical_estimates(roles, matrix).mean(axis=0)
    expected = _gradient_at_weights(mean, mean, matrix)
    np.testing.assert_allclose(gradients.mean(axis=0), expected, atol=2e-6)


def test_the_plain_inverse_is_the_pseudo_inverse_where_there_is_one_and_nothing_where_not():
    plain, _ = _made(DanskinEmpirical, Roles(1, 1, 3), inverse="plain")
    features = jnp.asarray(UNEVEN, jnp.float32)
    column, pseudo = jnp.asarray([[1.0], [-2.0]]), DanskinEmpirical(NUM_FEATURES)
    solve = jax.jit(lambda rows: [each.solve(rows, column, 0.0) for each in (plain, pseudo)])
    found, expected = solve(features)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # One row of two features: rounding errors or infinity against the smallest weights.
    found, expected = np.abs(solve(features[:1]))
    assert not np.all(found < 1e3 * expected.max())


def _variance_bias(estimates):
    """What using one estimate twice adds: Σ_t Cov(ŵ_t) φ(s), over n and t as in the loss."""
    deviations = estimates - estimates.mean(axis=0)
    covariance = np.mean(np.einsum("bit,bjt->bijt", deviations, deviations), axis=0).sum(axis=-1)
    return TABLE @ covariance / (NUM_STATES * estimates.shape[2])


@pytest.mark.parametrize(("roles", "num_tasks"), [(Roles(2, 1, 2), 3)])
def test_the_naive_bias_is_exactly_the_variance_of_its_weights(roles, num_tasks):
    matrix = MATRIX[:, :num_tasks]
    objective, rows = _made(Naive, roles)
    gradients = _gradients(objective, _every_batch(rows), matrix)
    estimates = _empirical_estimates(roles, matrix)
    mean, bias = estimates.mean(axis=0), _variance_bias(estimates)
    unbiased = _gradient_at_weights(mean, mean, matrix)
    np.testing.assert_allclose(gradients.mean(axis=0), unbiased + bias, atol=2e-6)
    # Its sign: it points along the features, so a descent step shrinks every state's.
    assert np.all(np.sum(bias * TABLE, axis=1) > 0.0)
