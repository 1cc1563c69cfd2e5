"""Spectral inference against exact expectations, autodiff, and matrices of known spectrum."""

import dataclasses
import functools
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlreps.batch import Batch
from rlreps.encoders import MLP, BlockSparse, SeparateMLP, Tabular
from rlreps.losses import NestedLora
from rlreps.losses.spectral import CovarianceJacobian, Spin, SpinMoments, operator_shift
from rlreps.numerics import DecayedMean, num_rows
from rlreps.operators import Clip, Diagonal, Kernel, Laplacian
from rlreps.subspace.ordered import ordered_spectrum

NUM_STATES, NUM_FEATURES = 5, 3
RNG = np.random.default_rng(0)
ROTATION = np.linalg.qr(RNG.normal(size=(NUM_STATES, NUM_STATES)))[0]
LEVELS = np.array([-2.0, -1.0, 0.5, 2.0, 4.0])
SYMMETRIC = ROTATION @ np.diag(LEVELS) @ ROTATION.T
TABLE = RNG.normal(size=(NUM_STATES, NUM_FEATURES))
MEASURE = RNG.dirichlet(np.full(NUM_STATES, 4.0))
ALL_STATES = np.arange(NUM_STATES)
TABULAR = Tabular(NUM_FEATURES, num_states=NUM_STATES)
IN_FULL = pytest.mark.integration


in_double_precision = pytest.mark.usefixtures("double_precision")


def batch_of(inputs):
    inputs = inputs if isinstance(inputs, Clip) else jnp.asarray(inputs)
    return Batch(inputs, jnp.zeros((num_rows(inputs), 0)))


def spin(operator, averaging_rate=1.0, **options):
    """A spin of as many features as the encoder has, by default a table of three."""
    encoder = options.pop("encoder", TABULAR)
    return Spin(
        options.pop("num_features", NUM_FEATURES),
        operator=operator,
        averaging_rate=averaging_rate,
        encoder=encoder,
        **options,
    )


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(encode, objective, params, batch, state):
    return jax.value_and_grad(objective.loss, has_aux=True)(params, encode, batch, state, None)


def gradient_of(objective, params, batch, state=None, encode=getitem):
    state = objective.init(jax.random.key(0)) if state is None else state
    (value, (state, metrics)), gradient = _evaluate(encode, objective, params, batch, state)
    return gradient, value, state, metrics


def exact_masked_gradient(table, operator, measure):
    """Each Rayleigh quotient of Gram-Schmidt's functions, by complex steps in its own feature."""

    def quotient(columns):
        done = []
        for column in columns:
            raw = column - sum(np.sum(measure * each * column) * each for each in done)
            done.append(raw / np.sqrt(np.sum(measure * raw * raw)))
        return np.sum(measure * done[-1] * (operator @ done[-1]))

    gradient = np.empty_like(table)
    for state, k in np.ndindex(*table.shape):
        moved = table.astype(complex)
        moved[state, k] += 1e-30j
        gradient[state, k] = quotient(moved.T[: k + 1]).imag / 1e-30
    return gradient


@in_double_precision
@pytest.mark.parametrize("averaging_rate", [1.0, 0.3])
def test_the_gradient_is_that_of_each_eigenvalue_in_its_own_feature_alone(
    matrix_operator, averaging_rate
):
    objective = spin(matrix_operator(SYMMETRIC), averaging_rate)
    gradient, value, _, metrics = gradient_of(objective, TABLE, batch_of(ALL_STATES))
    uniform = np.full(NUM_STATES, 1 / NUM_STATES)
    np.testing.assert_allclose(
        gradient, exact_masked_gradient(TABLE, SYMMETRIC, uniform), rtol=1e-9, atol=1e-12
    )
    functions = np.linalg.qr(TABLE)[0]
    quotients = np.diag(functions.T @ SYMMETRIC @ functions)
    np.testing.assert_allclose(metrics["eigenvalues"], quotients, rtol=1e-10)
    np.testing.assert_allclose(value, quotients.sum(), rtol=1e-10)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_each_feature_is_shifted_by_its_eigenvalue_and_the_largest_so_far(weight):
    # Averages that are not corrected for their start yet.
    averages = np.eye(3), np.diag([-3.0, 1.0, 0.5])
    covariance, operator_matrix = (jnp.asarray(weight * each, jnp.float32) for each in averages)
    before = DecayedMean(SpinMoments(covariance, operator_matrix, ()), jnp.float32(weight))
    shift = operator_shift(before, common=False)
    np.testing.assert_allclose(shift, [[0.0, 4.0, 3.5]], rtol=1e-5, atol=2e-5)
    common = operator_shift(before, common=True)
    np.testing.assert_allclose(common, [[4.0, 4.0, 4.0]], rtol=1e-5)


@in_double_precision
@pytest.mark.parametrize("averaging_rate", [0.3])
def test_without_the_mask_the_gradient_is_that_of_the_trace(matrix_operator, averaging_rate):
    objective = spin(matrix_operator(SYMMETRIC), averaging_rate, masked=False)
    gradient, value, *_ = gradient_of(objective, TABLE, batch_of(ALL_STATES))

    def trace(table):
        return jnp.trace(jnp.linalg.solve(table.T @ table, table.T @ SYMMETRIC @ table))

    expected_value, expected = jax.jit(jax.value_and_grad(trace))(TABLE)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(value, expected_value, rtol=1e-10)


@in_double_precision
@pytest.mark.parametrize("averaging_rate", [1.0])
def test_importance_weights_give_the_gradient_under_the_measure(matrix_operator, averaging_rate):
    operator = SYMMETRIC / MEASURE[:, None]
    objective = spin(
        matrix_operator(operator),
        averaging_rate,
        weights=lambda states: jnp.asarray(7.0 * MEASURE)[states],
    )
    gradient, *_ = gradient_of(objective, TABLE, batch_of(ALL_STATES))
    expected = exact_masked_gradient(TABLE, operator, MEASURE)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-12)


@in_double_precision
def test_through_the_operator_the_gradient_is_the_same_on_average():
    # Widths of the functions, of which 1 is that of −∇² + x²: the operator does not keep the span.
    def encode(params, points):
        x = points / params[None, :]
        states = jnp.concatenate([jnp.ones_like(x[:, :1]), x[:, 1:2]], axis=1)
        return states * jnp.exp(-(x**2) / 2.0)

    operator = Diagonal(lambda x: x[:, 0] ** 2) - Laplacian()
    # Even points up to where nothing is left integrate to rounding.
    grid = np.linspace(-12.0, 12.0, 400)[:, None]
    twice, once = (
        spin(operator, num_features=2, through_operator=through) for through in (False, True)
    )
    widths = jnp.asarray([1.3, 0.8])
    expected, *_ = gradient_of(twice, widths, batch_of(grid), encode=encode)
    found, *_ = gradient_of(once, widths, batch_of(grid), encode=encode)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    # One dimension: the energy of a Gaussian of width w is (w² + 1/w²)/2, by its own quotient.
    np.testing.assert_allclose(found[0], 1.3 - 1.3**-3, rtol=1e-9)


@in_double_precision
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"separate": True},
        pytest.param({"masked": False, "separate": True}, marks=IN_FULL),
        pytest.param({"shifted": False, "through_operator": True}, marks=IN_FULL),
        pytest.param({"separate": True, "jacobian_rows_at_once": 3}, marks=IN_FULL),
    ],
)
def test_with_the_same_parameters_and_batch_averages_change_nothing(options):
    encoder = SeparateMLP(NUM_FEATURES, num_inputs=1, hidden=(4,))
    params = encoder.init(jax.random.key(0))
    points = batch_of(np.random.default_rng(1).normal(size=(20, 1)))
    operator = Kernel(lambda x, y: jnp.exp(-((x - y.T) ** 2)), samples=np.eye(3)[:, :1])
    common = {"encoder": encoder, "weights": lambda x: jnp.exp(x[:, 0])}
    averaged = spin(operator, 0.2, **common, **options)
    plain = spin(operator, **common, masked=averaged.masked)
    expected, value, *_ = gradient_of(plain, params, points, encode=encoder.apply)
    state = averaged.init(jax.random.key(0))
    for _ in range(3):
        gradient, average_value, state, _ = gradient_of(
            averaged, params, points, state, encoder.apply
        )
        np.testing.assert_allclose(average_value, value, rtol=1e-10)
        assert_trees_close(gradient, expected, rtol=1e-7, atol=1e-10)


@in_double_precision
@pytest.mark.parametrize("starts_at_identity", [False, True])
def test_the_averages_are_decayed_means_of_batches_corrected_for_their_start(
    matrix_operator, starts_at_identity
):
    rate, count = 0.3, 4
    rng = np.random.default_rng(1)
    batches = rng.integers(0, NUM_STATES, size=(count, 6))
    tables = rng.normal(size=(count, NUM_STATES, NUM_FEATURES))
    objective = spin(matrix_operator(SYMMETRIC), rate, starts_at_identity=starts_at_identity)
    state = objective.init(jax.random.key(0))
    covariances, jacobians = [], []
    for states, table in zip(batches, tables, strict=True):
        _, _, state, metrics = gradient_of(objective, table, batch_of(states), state)
        features = table[states]
        covariances.append(features.T @ features / 6)
        rows = np.zeros((6, NUM_STATES, NUM_FEATURES))
        for row, (j, k) in enumerate(zip(*np.triu_indices(NUM_FEATURES), strict=True)):
            np.add.at(rows[row, :, k], states, features[:, j] / 6)
        jacobians.append(rows)
    decays = rate * (1.0 - rate) ** np.arange(count - 1, -1, -1)
    expected = np.tensordot(decays, np.asarray(covariances), axes=1)
    if starts_at_identity:
        # Algorithm 1 of Pfau et al. 2019: Σ̄ = I and J̄ = 0 at first, and no correction.
        expected = expected + (1.0 - rate) ** count * np.eye(NUM_FEATURES)
    weight = 1.0 if starts_at_identity else decays.sum()
    np.testing.assert_allclose(state.weight, weight, rtol=1e-12)
    np.testing.assert_allclose(state.total.covariance, expected, rtol=1e-10)
    factor = np.linalg.inv(np.linalg.cholesky(expected / weight))
    quotients = np.diag(factor @ features.T @ SYMMETRIC[states] @ tables[-1] @ factor.T) / 6
    np.testing.assert_allclose(metrics["eigenvalues"], quotients, rtol=1e-9)
    expected = np.tensordot(decays, np.asarray(jacobians), axes=1)
    np.testing.assert_allclose(state.total.jacobian, expected, rtol=1e-10, atol=1e-14)


@in_double_precision
@pytest.mark.parametrize("masked", [True])
def test_the_jacobian_of_layers_is_that_of_one_backward_pass_for_each_pair(matrix_operator, masked):
    network = BlockSparse(MLP(NUM_FEATURES, hidden=(6,), activation="softplus", bias_scale=1.0))
    params = network.init(jax.random.key(0))
    points, shares = RNG.normal(size=(7, 2)), RNG.dirichlet(np.ones(7))[:, None]

    def encode(layers):
        return network.apply(layers, points) * points[:, :1] ** 2

    passes = CovarianceJacobian(NUM_FEATURES, masked=masked)
    layered = dataclasses.replace(passes, layered=True)

    def both(params):
        values = encode(params)
        return [each.of_batch(encode, params, values, shares) for each in (passes, layered)]

    expected, found = jax.jit(both)(params)
    assert spin(matrix_operator(SYMMETRIC), 0.1, encoder=network).jacobian.layered
    assert_trees_close(found, expected)
    assert float(jnp.abs(expected[0]["kernel"]).max()) > 0.1


def descend(objective, states, learning_rate, steps):
    """A table after Adam with cosine decay on one batch of states."""
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def step(carry, _):
        params, moments, state = carry
        gradient, _, state, _ = gradient_of(objective, params, batch_of(states), state)
        with jax.numpy_dtype_promotion("standard"):
            updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, updates), moments, state), None

    params = TABULAR.init(jax.random.key(0))
    start = (params, optimizer.init(params), objective.init(jax.random.key(0)))
    (params, _, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=steps))(start)
    return np.asarray(params, np.float64)


@in_double_precision
@pytest.mark.parametrize("averaging_rate", [0.02])
def test_averages_that_lag_do_not_collapse_features_of_positive_eigenvalues(
    matrix_operator, averaging_rate
):
    operator = SYMMETRIC + 3.0 * np.eye(NUM_STATES)
    objective = spin(matrix_operator(operator), averaging_rate)
    features = descend(objective, ALL_STATES, 0.01, 2_500)
    moments = features.T @ features / NUM_STATES, features.T @ operator @ features / NUM_STATES
    values, transform = ordered_spectrum(*map(jnp.asarray, moments))
    np.testing.assert_allclose(values, LEVELS[:NUM_FEATURES] + 3.0, atol=1e-3)
    overlaps = np.abs((features @ transform).T @ ROTATION[:, :NUM_FEATURES]) / np.sqrt(NUM_STATES)
    np.testing.assert_allclose(overlaps, np.eye(NUM_FEATURES), atol=3e-3)
    assert np.linalg.cond(features) < 100.0


def assert_trees_close(tree, other, rtol=1e-10, atol=1e-12):
    close = functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol)
    jax.tree.map(close, tree, other)


# --- NestedLoRA of an operator --------------------------------------------------------------------


@in_double_precision
@pytest.mark.parametrize(("nesting", "weighted"), [("joint", True), ("sequential", False)])
def test_nested_approximation_of_an_operator_follows_the_expected_gradient(
    matrix_operator, nesting, weighted
):
    measure = MEASURE if weighted else np.full(NUM_STATES, 1 / NUM_STATES)
    # Symmetric in the measure.
    kernel = SYMMETRIC / np.sqrt(np.outer(measure, measure)) * measure
    objective = NestedLora(
        NUM_FEATURES,
        operator=matrix_operator(kernel),
        weights=(lambda states: NUM_STATES * jnp.asarray(measure)[states]) if weighted else None,
        nesting=nesting,
    )
    pairs = jnp.stack(jnp.meshgrid(jnp.arange(NUM_STATES), jnp.arange(NUM_STATES)), -1)

    def expected_over_pairs(table):
        def value(pair):
            return objective.loss(table, getitem, batch_of(pair), (), None)[0]

        return jnp.mean(jax.vmap(value)(pairs.reshape(-1, 2)))

    def problem(table, first):
        u = table[:, :first]
        covariance = u.T @ (measure[:, None] * u)
        form = jnp.sum(measure[:, None] * u * (kernel @ u))
        return jnp.sum(covariance**2) - 2.0 * form

    problems = [jax.grad(problem)(TABLE, k) for k in range(1, NUM_FEATURES + 1)]
    expected = np.mean(problems, axis=0)
    if nesting == "sequential":
        expected = np.stack([each[:, k] for k, each in enumerate(problems)], axis=1)
    gradient = jax.jit(jax.grad(expected_over_pairs))(jnp.asarray(TABLE))
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
