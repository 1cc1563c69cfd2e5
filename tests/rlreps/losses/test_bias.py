"""Expected gradients: exact by enumeration, and by simulation within stated standard errors."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.losses import Batch, DanskinEmpirical, DanskinLissa, Naive
from rlreps.losses.danskin import Roles

# Rows of equal norm make kappa the same for every sample, as the theorem on E[Δ_J] wants.
DIRECTIONS = np.array([[3.0, 1.0], [1.0, 3.0], [3.0, -1.0]])
TABLE = 1.5 * DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
MATRIX = np.array([[1.0, -0.5, 2.0], [0.3, 0.8, -1.0], [-0.7, 0.4, 0.6]])
NUM_STATES, NUM_FEATURES = TABLE.shape
NAMES = ("gradient_rows", "weight_rows", "covariance_rows")
COVARIANCE = TABLE.T @ TABLE / NUM_STATES


MORE = [
    pytest.param(Roles(*rows), tasks, marks=pytest.mark.integration)
    for rows in ((1, 1, 1), (1, 2, 1), (2, 2, 1))
    for tasks in (1, 3)
]


def _made(cls, roles, **options):
    """An objective with given rows in each role, and the rows of its batch."""
    objective = cls(NUM_FEATURES, **dict(zip(NAMES, roles, strict=True)), **options)
    rows = roles.gradient + objective.num_estimates * (roles.weight + roles.covariance)
    return objective, rows


def lookup(params, inputs):
    return params[inputs]


def _gradient_at_weights(weights, other_weights, matrix):
    """The mean over states and tasks of ŵ'(φᵀŵ − ψ), as the gradient of an expected loss."""
    residuals = TABLE @ weights - matrix
    return residuals @ other_weights.T / residuals.size


def _lemma_1(matrix):
    exact, *_ = np.linalg.lstsq(TABLE, matrix, rcond=None)
    return _gradient_at_weights(exact, exact, matrix)


def _truncated_series(num_terms, kappa0):
    kappa = kappa0 / 1.5**2
    factor = np.eye(NUM_FEATURES) - kappa * COVARIANCE
    return kappa * sum(np.linalg.matrix_power(factor, i) for i in range(num_terms + 1))


def _series_gradient(num_terms, kappa0, matrix):
    weights = _truncated_series(num_terms, kappa0) @ (TABLE.T @ matrix / NUM_STATES)
    return _gradient_at_weights(weights, weights, matrix)


def _gradients(objective, rows, matrix, keys=None):
    """Each sample's gradient with respect to the features of all states, [samples, n, d]."""

    @jax.jit
    @jax.vmap
    def one(rows, key):
        batch = Batch(rows, jnp.asarray(matrix, jnp.float32)[rows])
        return jax.grad(objective.loss, has_aux=True)(
            jnp.asarray(TABLE, jnp.float32),
            lookup,
            batch,
            objective.init(jax.random.key(0)),
            key,
        )[0]

    rows = jnp.asarray(rows, jnp.int32)
    keys = jax.random.split(jax.random.key(0), len(rows)) if keys is None else keys
    return np.asarray(one(rows, keys), np.float64)


def _every_batch(num_rows):
    """Every equally likely sequence of states."""
    return np.array(list(itertools.product(range(NUM_STATES), repeat=num_rows)))


@pytest.mark.parametrize(("roles", "num_tasks"), [(Roles(1, 1, 2), 3), *MORE])
def test_danskin_lissa_averaged_over_every_batch_is_the_truncated_series_gradient(roles, num_tasks):
    matrix = MATRIX[:, :num_tasks]
    objective, rows = _made(DanskinLissa, roles, kappa0=1.9)
    gradients = _gradients(objective, _every_batch(rows), matrix)
    expected = _series_gradient(roles.covariance, 1.9, matrix)
    np.testing.assert_allclose(gradients.mean(axis=0), expected, atol=2e-6)
    # The truncation shows: this is not yet Lemma 1's gradient.
    assert np.abs(expected - _lemma_1(matrix)).max() > 1e-3


@pytest.mark.parametrize("permutations", [2, pytest.param(5, marks=pytest.mark.integration)])
def test_exchanging_roles_keeps_the_average_over_every_batch(permutations):
    roles = Roles(1, 1, 2)
    objective, rows = _made(DanskinLissa, roles, kappa0=1.9, permutations=permutations)
    batches = _every_batch(rows)
    # One key for all batches: the expectation is the same for each fixed choice of permutations.
    keys = jnp.broadcast_to(jax.random.key(11), (len(batches),))
    gradients = _gradients(objective, batches, MATRIX, keys)
    np.testing.assert_allclose(gradients.mean(axis=0), _series_gradient(2, 1.9, MATRIX), atol=2e-6)


@pytest.mark.integration
def test_exchanging_roles_lowers_the_variance():
    roles = Roles(1, 1, 2)
    objective, rows = _made(DanskinLissa, roles)
    batches = _every_batch(rows)
    once = _gradients(objective, batches, MATRIX)
    often = _gradients(_made(DanskinLissa, roles, permutations=8)[0], batches, MATRIX)
    assert often.var(axis=0).sum() < 0.5 * once.var(axis=0).sum()


def _empirical_weights(rows, roles, matrix):
    """ŵ from M + J rows by NumPy's pseudo-inverse, [d, t]."""
    mean_rows, covariance_rows = rows[: roles.weight], rows[roles.weight :]
    features = TABLE[covariance_rows]
    inverse = np.linalg.pinv(features.T @ features / len(features), rcond=1e-8)
    return inverse @ (TABLE[mean_rows].T @ matrix[mean_rows] / roles.weight)


@pytest.mark.parametrize(("roles", "num_tasks"), [(Roles(1, 1, 2), 3), *MORE])
def test_the_empirical_form_averages_to_the_product_of_two_mean_estimates(roles, num_tasks):
    matrix = MATRIX[:, :num_tasks]
    objective, rows = _made(DanskinEmpirical, roles)
    gradients = _gradients(objective, _every_batch(rows), matrix)
    estimates = [
        _empirical_weights(rows, roles, matrix)
        for rows in _every_batch(roles.weight + roles.covariance)
    ]
    mean = np.mean(estimates, axis=0)
    np.testing.assert_allclose(
        gradients.mean(axis=0), _gradient_at_weights(mean, mean, matrix), atol=2e-6
    )


def _variance_bias(estimates):
    """What using one estimate twice adds: Σ_t Cov(ŵ_t) φ(s), over n and t as in the loss."""
    deviations = np.asarray(estimates) - np.mean(estimates, axis=0)
    covariance = np.mean(np.einsum("bit,bjt->bijt", deviations, deviations), axis=0).sum(axis=-1)
    return TABLE @ covariance / (NUM_STATES * estimates[0].shape[1])


@pytest.mark.parametrize(("roles", "num_tasks"), [(Roles(2, 1, 2), 3), *MORE])
def test_the_naive_bias_is_exactly_the_variance_of_its_weights(roles, num_tasks):
    matrix = MATRIX[:, :num_tasks]
    objective, rows = _made(Naive, roles)
    gradients = _gradients(objective, _every_batch(rows), matrix)
    estimates = [
        _empirical_weights(rows, roles, matrix)
        for rows in _every_batch(roles.weight + roles.covariance)
    ]
    mean = np.mean(estimates, axis=0)
    unbiased = _gradient_at_weights(mean, mean, matrix)
    bias = _variance_bias(estimates)
    np.testing.assert_allclose(gradients.mean(axis=0), unbiased + bias, atol=2e-6)
    # Its sign: it points along the features, so a descent step shrinks every state's.
    assert np.all(np.sum(bias * TABLE, axis=1) > 0.0)


def _simulate(objective, num_rows, matrix, samples, seed):
    rows = np.random.default_rng(seed).integers(0, NUM_STATES, size=(samples, num_rows))
    gradients = _gradients(objective, rows, matrix)
    return gradients.mean(axis=0), gradients.std(axis=0, ddof=1) / np.sqrt(samples)


@pytest.mark.integration
@pytest.mark.parametrize("num_tasks", [1, 3])
def test_danskin_lissa_approaches_lemma_1_as_its_series_grows(num_tasks):
    matrix = MATRIX[:, :num_tasks]
    distances = []
    for num_terms in (1, 5, 50, 500):
        roles = Roles(2, 4, num_terms)
        objective, rows = _made(DanskinLissa, roles, kappa0=1.0)
        mean, error = _simulate(objective, rows, matrix, 8_000, seed=num_terms)
        series = _series_gradient(num_terms, 1.0, matrix)
        # Six entries, four lengths, two task counts: 4.5 standard errors.
        assert np.all(np.abs(mean - series) < 4.5 * error)
        distances.append(np.linalg.norm(mean - _lemma_1(matrix)))
        noise = np.linalg.norm(error)
    assert distances[0] > 2.0 * distances[1] > 4.0 * distances[2]
    # Converged: what is left of the distance is sampling noise.
    np.testing.assert_allclose(_series_gradient(50, 1.0, matrix), _lemma_1(matrix), atol=1e-4)
    assert distances[2] < 4.0 * noise
    assert distances[3] < 4.0 * noise


@pytest.mark.integration
@pytest.mark.parametrize("num_tasks", [1, 3])
def test_the_naive_bias_persists_however_many_samples_are_averaged(num_tasks):
    matrix = MATRIX[:, :num_tasks]
    roles = Roles(2, 2, 200)
    objective, rows = _made(Naive, roles)
    lemma = _lemma_1(matrix)
    # With J large the estimate's variance is that of the right-hand side: C⁻¹Cov(φψ)C⁻¹/M.
    inverse = np.linalg.inv(COVARIANCE)
    products = np.einsum("si,st->sit", TABLE, matrix)
    estimates = np.einsum("ij,sjt->sit", inverse, products)
    predicted = _variance_bias(list(estimates)) / roles.weight
    for samples in (1_000, 10_000):
        mean, error = _simulate(objective, rows, matrix, samples, seed=samples)
        bias = mean - lemma
        # Along the features in every state, many standard errors from nothing.
        along = np.sum(bias * TABLE, axis=1)
        along_error = np.sqrt(np.sum((error * TABLE) ** 2, axis=1))
        assert np.sum(along) > 10.0 * np.linalg.norm(along_error)
        assert np.linalg.norm(bias) > 10.0 * np.linalg.norm(error)
        # J is finite, so the prediction is not exact: one part in ten, beyond the noise.
        assert np.linalg.norm(bias - predicted) < 0.1 * np.linalg.norm(
            predicted
        ) + 4.0 * np.linalg.norm(error)


@pytest.mark.integration
def test_the_naive_bias_falls_with_more_rows_behind_its_weights():
    biases = []
    for num_rows in (2, 32):
        roles = Roles(2, num_rows, 200)
        mean, _ = _simulate(*_made(Naive, roles), MATRIX, 10_000, seed=3)
        biases.append(np.linalg.norm(mean - _lemma_1(MATRIX)))
    assert biases[1] < biases[0] / 8.0
