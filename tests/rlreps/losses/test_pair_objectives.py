"""Objectives on pairs of states, each led to its optimum on small chains.

Expectations are exact: over every batch of two independent rows where an objective claims to be
unbiased, so that the claim is tested too, else on the batch in which each pair of the chain appears
as often as it is likely. Optima are NumPy's eigenfunctions, singular functions and fixed points.
"""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlreps.config import with_sizes
from rlreps.encoders import Tabular, TwoTowers
from rlreps.losses import (
    AugmentedLagrangian,
    BarlowTwins,
    Batch,
    Clip,
    CumulantDifferences,
    GeneralizedGraphDrawing,
    GraphDrawing,
    InfoNCE,
    NestedLora,
    NeuralEigenfunctions,
    OrbitalMinimization,
    SelfPrediction,
    SpectralContrastive,
    TDInfoNCE,
    TDLowRank,
    VICReg,
)
from rlreps.losses.graph_drawing import AugmentedState

IN_FULL = pytest.mark.integration
in_double_precision = pytest.mark.usefixtures("double_precision")


# --- Chains as counts of their pairs, and exact expectations --------------------------------------


def path(steps, stays):
    """Counts [n, n] of a reversible chain on a path: of steps between neighbours, and of stays."""
    return np.diag(stays) + np.diag(steps, 1) + np.diag(steps, -1)


def turned(counts, times):
    """The same chain with so many turns of a cycle through all states: stationary, irreversible."""
    return counts + times * np.roll(np.eye(len(counts), dtype=int), 1, axis=1)


REVERSIBLE = path([5, 2, 4, 1, 5], [3, 2, 4, 6, 5, 2])
DIRECTED = turned(REVERSIBLE, 2)
# Eigenvalues 1, 0.3 and −0.5.
ALTERNATING = np.array([[4, 1, 5], [1, 4, 5], [5, 5, 0]])
DENSE = turned(np.array([[4, 1, 2, 3], [1, 2, 4, 1], [2, 4, 1, 5], [3, 1, 5, 2]]), 3)


def walk_of(counts):
    """Eigenvalues, eigenfunctions [n, n] and measure of the pairs taken in either order."""
    joint = (counts + counts.T) / (2 * counts.sum())
    measure = joint.sum(axis=0)
    values, vectors = np.linalg.eigh(joint / np.sqrt(np.outer(measure, measure)))
    return values[::-1], vectors[:, ::-1] / np.sqrt(measure)[:, None], measure


def density_of(counts, discount=0.0):
    """M̃ of the successor measure, its singular functions and values, and P."""
    measure, transition = counts.sum(axis=1) / counts.sum(), counts / counts.sum(axis=1)[:, None]
    np.testing.assert_array_equal(counts.sum(axis=0), counts.sum(axis=1))
    resolvent = np.linalg.inv(np.eye(len(counts)) - discount * transition)
    density = (1.0 - discount) * resolvent @ transition / measure
    root = np.sqrt(measure)[:, None]
    left, values, right = np.linalg.svd(root * density * root.T)
    return density, (left / root, values, right.T / root), transition


def every_pair(counts):
    """The batch of every pair as often as the chain makes it."""
    ends = np.repeat(np.argwhere(counts), counts[counts > 0], axis=0)
    return Batch(Clip(tuple(jnp.asarray(ends.T))), jnp.zeros((counts.sum(), 0)))


def expected_loss(objective, encoder, counts, two_rows):
    """The expectation over batches of a chain, ready to be differentiated: (params, state) → …"""
    if not two_rows:
        batch = every_pair(counts)
        return lambda params, state: objective.loss(params, encoder.apply, batch, state, None)
    pairs = np.stack(np.nonzero(counts))
    shares = counts[*pairs] / counts.sum()
    # The order of a batch's rows changes no loss: one of the two orders stands for both.
    rows = np.stack(np.triu_indices(len(shares)), axis=1)
    weights = jnp.asarray(shares[rows].prod(axis=1) * np.where(np.ptp(rows, axis=1), 2.0, 1.0))
    batches = Batch(Clip(tuple(jnp.asarray(pairs[:, rows]))), jnp.zeros((*rows.shape, 0)))

    def loss(params, state):
        found = jax.vmap(lambda batch: objective.loss(params, encoder.apply, batch, state, None))
        return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), found(batches))

    return loss


def tabular(counts, width, towers=False):
    table = Tabular(width, num_states=len(counts))
    return TwoTowers(table, table) if towers else table


def descended(objective, counts, *, towers=False, two_rows=True, weights=None):
    """Tables and the last metrics after Adam on exact expectations; a leading axis over weights."""
    encoder = tabular(counts, objective.num_features, towers)
    optimizer = optax.adam(optax.cosine_decay_schedule(0.02, 3_000))

    def run(key, weights):
        sized = with_sizes(dataclasses.replace(objective, **weights), encoder=encoder)
        loss = expected_loss(sized, encoder, counts, two_rows)

        def step(carry, _):
            params, moments, state = carry
            gradient, (state, metrics) = jax.grad(loss, has_aux=True)(params, state)
            with jax.numpy_dtype_promotion("standard"):
                updates, moments = optimizer.update(gradient, moments)
            return (optax.apply_updates(params, updates), moments, state), metrics

        params = jax.tree.map(lambda leaf: 0.5 * leaf, encoder.init(key))
        first = (params, optimizer.init(params), sized.init(key))
        (params, *_), metrics = jax.lax.scan(step, first, length=3_000)
        return params, jax.tree.map(lambda leaf: leaf[-1], metrics)

    over = jax.vmap(run, in_axes=(None, 0)) if weights else run
    given = {name: jnp.asarray(each) for name, each in (weights or {}).items()}
    params, metrics = jax.tree.map(np.asarray, jax.jit(over)(jax.random.key(0), given))
    return (params["forward"], params["backward"], metrics) if towers else (params, metrics)


# --- Graph drawing, orbital minimisation, NeuralEF: eigenfunctions of the walk --------------------

ORDERED = {
    "generalized": (GeneralizedGraphDrawing(3, penalty=4.0), lambda values: 1 - (1 - values) / 4),
    "allo": (AugmentedLagrangian(3, dual_rate=0.1), np.ones_like),
    "orbital": (OrbitalMinimization(3), np.ones_like),
    "neural_ef": (NeuralEigenfunctions(3), None),
}


@in_double_precision
@pytest.mark.parametrize("name", ORDERED)
def test_each_feature_becomes_its_own_eigenfunction_in_order(name):
    objective, scale = ORDERED[name]
    unbiased = name != "neural_ef"
    features, metrics = descended(objective, DIRECTED, two_rows=unbiased)
    values, functions, measure = walk_of(DIRECTED)
    overlaps = functions[:, :3].T @ (measure[:, None] * features)
    squares = np.sum(measure[:, None] * features**2, axis=0)
    np.testing.assert_allclose(np.abs(overlaps) / np.sqrt(squares), np.eye(3), atol=1e-3)
    if scale is not None:
        np.testing.assert_allclose(squares, scale(values[:3]), rtol=1e-5)
    if name in ("allo", "neural_ef"):
        np.testing.assert_allclose(metrics["eigenvalues"], values[:3], atol=1e-6)


@in_double_precision
def test_allos_optimum_attracts_only_if_the_barrier_exceeds_twice_the_spread_of_eigenvalues():
    values, functions, measure = walk_of(ALTERNATING)
    np.testing.assert_allclose(measure, 1 / 3)
    loss = expected_loss(AugmentedLagrangian(3), tabular(ALTERNATING, 3), ALTERNATING, True)
    optimum = jnp.asarray(functions), jnp.diag(-4.0 * (1.0 - values))
    flat, restored = jax.flatten_util.ravel_pytree(optimum)

    def change(moved, barrier):
        table, duals = restored(flat + moved)
        gradient, (after, _) = jax.grad(loss, has_aux=True)(table, AugmentedState(duals, barrier))
        return jax.flatten_util.ravel_pytree((-gradient, after.duals - duals))[0]

    limit = 2.0 * (values[0] - values[-1])
    # Autodiff would hold constant what the loss holds.
    moves = 1e-4 * jnp.concatenate([jnp.eye(len(flat)), -jnp.eye(len(flat)), jnp.zeros((1, 18))])
    over = jax.jit(jax.vmap(jax.vmap(change, (0, None)), (None, 0)))
    changes = over(moves, limit + jnp.array([-0.1, 0.1]))
    np.testing.assert_allclose(changes[:, -1], 0.0, atol=1e-12)
    growth = np.linalg.eigvals(changes[:, :18] - changes[:, 18:-1]).real.max(axis=1) / 2e-4
    assert growth[0] > 0.01 > 1e-6 > growth[1]  # Duals without a constraint stay as they are.


@in_double_precision
@pytest.mark.parametrize("name", ["graph_drawing", "orbital"])
def test_without_nesting_the_span_is_found_with_the_second_moments_of_its_eigenfunctions(name):
    objective = {
        "graph_drawing": GraphDrawing(3, penalty=4.0),
        "orbital": OrbitalMinimization(3, nested=False),
    }[name]
    features, _ = descended(objective, DIRECTED)
    values, functions, _ = walk_of(DIRECTED)
    moments = 1 - (1 - values[:3]) / 4 if name == "graph_drawing" else np.ones(3)
    # ΦΦᵀ does not see the rotation.
    expected = functions[:, :3] * moments @ functions[:, :3].T
    np.testing.assert_allclose(features @ features.T, expected, atol=1e-8)


# --- Low rank: singular functions of the density ratio, and the fixed point of TD -----------------


@in_double_precision
def test_spectral_contrast_gives_the_truncated_singular_value_decomposition():
    forward, backward, _ = descended(SpectralContrastive(3), DIRECTED, towers=True)
    _, (left, values, right), _ = density_of(DIRECTED)
    expected = left[:, :3] * values[:3] @ right[:, :3].T
    np.testing.assert_allclose(forward @ backward.T, expected, atol=1e-8)


@in_double_precision
def test_one_encoder_for_both_gives_the_positive_eigenpairs_alone():
    features, _ = descended(SpectralContrastive(5), DIRECTED)
    values, functions, _ = walk_of(DIRECTED)
    positive = values > 0.0
    assert 1 < positive.sum() < 5
    assert values[-1] < -0.3  # Its modulus is among the five largest.
    expected = functions[:, positive] * values[positive] @ functions[:, positive].T
    np.testing.assert_allclose(features @ features.T, expected, atol=1e-3)


@in_double_precision
@pytest.mark.parametrize("nesting", ["joint", "sequential"])
def test_nesting_gives_each_singular_pair_in_order(nesting):
    objective = NestedLora(3, nesting=nesting)
    forward, backward, metrics = descended(objective, DIRECTED, towers=True)
    _, (left, values, right), _ = density_of(DIRECTED)
    found = np.einsum("sk,tk->kst", forward, backward)
    expected = np.einsum("k,sk,tk->kst", values[:3], left[:, :3], right[:, :3])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # Batches of two rows have no singular values; the batch of every pair has.
    tables = {"forward": jnp.asarray(forward), "backward": jnp.asarray(backward)}
    exact = expected_loss(objective, tabular(DIRECTED, 3, True), DIRECTED, two_rows=False)
    _, (_, metrics) = jax.jit(exact)(tables, ())
    np.testing.assert_allclose(metrics["singular_values"], values[:3], atol=1e-6)


def td_subspace(counts, discount, width, kernel):
    """The leading invariant subspace of M K PᵀD, by subspace iteration, [n, width]."""
    density, _, transition = density_of(counts, discount)
    measure = counts.sum(axis=1) / counts.sum()
    operator = density * measure @ kernel @ transition.T * measure
    basis = np.random.default_rng(0).normal(size=(len(counts), width))
    for _ in range(2_000):
        basis, _ = np.linalg.qr(operator @ basis)
    image = operator @ basis
    np.testing.assert_allclose(basis @ (basis.T @ image), image, atol=1e-10)
    return basis


def td_product(counts, discount, width):
    """The projection of M̃ onto the TD subspace in which both semi-gradients vanish."""
    density, _, transition = density_of(counts, discount)
    measure = counts.sum(axis=1) / counts.sum()
    basis = td_subspace(counts, discount, width, np.diag(1.0 / measure))
    left = (measure[:, None] * basis).T @ (np.eye(len(counts)) - discount * transition)
    return basis @ np.linalg.solve(left @ basis, left @ density)


@in_double_precision
@pytest.mark.parametrize(
    ("counts", "orthonormality"),
    [
        pytest.param(REVERSIBLE, 0.0, id="reversible"),
        pytest.param(DIRECTED, 0.0, id="directed"),
    ],
)
def test_temporal_differences_end_at_their_fixed_point(counts, orthonormality):
    discount = 0.7
    objective = TDLowRank(2, discount=discount, averaging_rate=0.3, orthonormality=orthonormality)
    forward, backward, _ = descended(objective, counts, towers=True)
    expected = td_product(counts, discount, 2)
    # The choice of one among the factorisations settles more slowly.
    tolerance = 1e-4 if orthonormality else 1e-8
    np.testing.assert_allclose(forward @ backward.T, expected, atol=tolerance)
    _, (left, values, right), _ = density_of(counts, discount)
    off = np.abs(expected - left[:, :2] * values[:2] @ right[:, :2].T).max()
    # The best approximation takes the largest |λ|/(1 − γλ), the fixed point λ²/(1 − γλ).
    assert off < 1e-8 if counts is REVERSIBLE else off > 0.01
    if orthonormality:
        measure = (counts.sum(axis=0) / counts.sum())[:, None]
        np.testing.assert_allclose(backward.T @ (measure * backward), np.eye(2), atol=1e-3)


@in_double_precision
@pytest.mark.parametrize("irreversible", [0, 2])
def test_differences_of_indicators_end_at_their_subspace(irreversible):
    # Uniform, and so symmetric without the turns.
    counts, discount = turned(path([4, 2, 3, 1, 4], [6, 4, 5, 6, 5, 6]), irreversible), 0.7
    indicators = SimpleNamespace(
        init=lambda _, n: jnp.eye(n), apply=lambda eye, states: eye[states]
    )
    objective = CumulantDifferences(
        2, num_cumulants=6, discount=discount, averaging_rate=0.1, cumulants=indicators
    )
    features, _ = descended(objective, counts, two_rows=False)
    expected = td_subspace(counts, discount, 2, np.eye(6))
    overlaps = np.linalg.svd(np.linalg.qr(features)[0].T @ expected)[1]
    np.testing.assert_allclose(overlaps, 1.0, atol=1e-5)
    density, *_ = density_of(counts, discount)
    off = 2.0 - np.sum((np.linalg.svd(density)[0][:, :2].T @ expected) ** 2)
    assert off > 0.1 if irreversible else off < 1e-8


# --- Contrast: the logarithm of the density ratio -------------------------------------------------


@in_double_precision
@pytest.mark.parametrize("discount", [0.0, 0.6])
def test_contrast_gives_the_logarithm_of_the_density_ratio_but_for_a_function_of_the_state(
    discount,
):
    objective = InfoNCE(4)
    if discount:
        objective = TDInfoNCE(4, discount=discount, averaging_rate=0.3)
    forward, backward, _ = descended(objective, DENSE, towers=True, two_rows=False)
    density, *_ = density_of(DENSE, discount)
    rest = forward @ backward.T - np.log(density)
    np.testing.assert_allclose(rest, np.repeat(rest[:, :1], 4, axis=1), atol=1e-8)
    assert np.ptp(np.log(density), axis=1).min() > 0.1


# --- Joint embedding: invariant subspaces ---------------------------------------------------------


def distance_without_constant(features, counts):
    """Distance of the span from the slowest functions behind the constant; constants are free."""
    _, functions, measure = walk_of(counts)
    root = np.sqrt(measure)[:, None]
    basis = np.linalg.qr(root * (features - measure @ features))[0]
    width = features.shape[1]
    return 1.0 - np.sum((basis.T @ (root * functions[:, 1 : 1 + width])) ** 2) / width


# Eigenvalues 1, 0.70 and 0.10; VICReg's variances divide by the number of rows less one.
SLOW = 10 * path([2, 2], [3, 3, 7])
OF_TWO = {
    "barlow": (BarlowTwins(2), {"redundancy": [0.1, 0.5, 10.0]}),
    "vicreg": (VICReg(2), {"invariance": [25.0, 5.0, 25.0], "covariance": [1.0, 2.0, 100.0]}),
}


@in_double_precision
@pytest.mark.parametrize("name", OF_TWO)
def test_two_agreeing_features_coincide_mix_or_are_eigenfunctions_as_their_weights_say(name):
    objective, weights = OF_TWO[name]
    features, _ = descended(objective, SLOW, two_rows=False, weights=weights)
    (_, slowest, second), functions, measure = walk_of(SLOW)
    assert all(distance_without_constant(each, SLOW) < 1e-3 for each in features[1:])
    centred = features - (measure @ features)[:, None]
    deviations = np.sqrt(measure @ centred**2)
    # The share of the second function in each feature.
    shares = np.sort((functions[:, 2] @ (measure[:, None] * centred) / deviations) ** 2)
    gap, total = slowest - second, slowest + second
    if name == "barlow":
        mixed = (0.5 * slowest * total - (1 - slowest) * gap) / (gap**2 + 0.5 * total**2)
        # A mixture can always make the features uncorrelated, but at a large weight it agrees less.
        plain, r = (1 - slowest) ** 2 + (1 - second) ** 2, np.array([0.5, 10.0])
        mixture = 2 * r * (total - 2 * slowest * second) ** 2 / (gap**2 + r * total**2)
        assert mixture[0] < plain < mixture[1]
    else:
        mixed = 0.5 - 5.0 * gap / (8.0 * 2.0)
        scale = np.roots([8.0, 0.0, 100.0 * (1 - slowest), -25.0])
        (scale,) = scale[np.abs(scale.imag) < 1e-9].real
        single = sorted([25.0 / (100.0 * (1 - slowest)), 25.0 / (100.0 * (1 - second))])
        expected = [[scale, scale], [1.0, 1.0], single]
        np.testing.assert_allclose(np.sort(deviations), expected, atol=0.01)
    np.testing.assert_allclose(shares, [[0, 0], [mixed, mixed], [0, 1]], atol=0.01)


@in_double_precision
@pytest.mark.parametrize("seed", [0])
def test_self_prediction_ends_at_the_extreme_eigenvalues_that_its_start_has_signs_for(seed):
    # Uniform, and with negative eigenvalues beyond all positive ones but two.
    steps = np.array([9, 1, 7, 3, 6])
    counts = path(steps, 10 - np.append(steps, 0) - np.append(0, steps))
    values, *_ = walk_of(counts)
    assert values[0] > values[1] > -values[-1] > values[2] > 0.0 > values[-2]
    start = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 3)))[0] * np.sqrt(6)
    positive = int(np.sum(np.linalg.eigvalsh(start.T @ counts @ start) > 0.0))
    encoder = tabular(counts, 3)
    objective = SelfPrediction(3)  # The rate is 1: it averages no parameters.
    loss = expected_loss(objective, encoder, counts, two_rows=False)

    def step(carry, _):
        table, state = carry
        gradient, (state, metrics) = jax.grad(loss, has_aux=True)(table, state)
        return (table - 2.0 * gradient, state), metrics["explained"]

    first = (jnp.asarray(start), objective.init(jax.random.key(0)))
    (table, _), explained = jax.jit(lambda carry: jax.lax.scan(step, carry, length=10_000))(first)
    np.testing.assert_allclose(table.T @ table / 6, np.eye(3), atol=0.05)
    assert np.diff(explained).min() > -1e-9
    basis = np.linalg.qr(table)[0]
    found = np.linalg.eigvalsh(basis.T @ counts @ basis / 10)[::-1]
    # Not the largest moduli: as many positive ones as there were at the start.
    expected = [*values[:positive], *values[3 + positive :]]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(explained[-1], np.mean(np.square(expected)), atol=0.01)


def test_the_earlier_state_predicts_and_the_later_one_is_held_constant():
    objective = SelfPrediction(2)
    table = np.random.default_rng(0).normal(size=(6, 2))
    encoder = tabular(np.ones((6, 6)), 2)
    batch = Batch(Clip((jnp.array([0, 1, 2]), jnp.array([3, 4, 5]))), jnp.zeros((3, 0)))

    def loss(table):
        state = objective.init(jax.random.key(0))
        return objective.loss(table, encoder.apply, batch, state, jax.random.key(0))[0]

    moved = np.asarray(jax.grad(loss)(jnp.asarray(table, jnp.float32))).any(axis=1)
    assert moved.tolist() == [True, True, True, False, False, False]
