"""Slow features of PuddleWorld: the exact eigenproblem, and what is measured of learned ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rlreps.encoders import FunctionEncoder
from rlreps.errors import InputError
from rlreps.operators import GraphLaplacian, graph_laplacian
from rlreps.subspace import PrincipalSubspace
from rlreps.successor import slow_features as module
from rlreps.successor.ground_truth import GroundTruth
from rlreps.successor.measure import Transition
from rlreps.successor.slow_features import (
    slow_features,
    slowest_eigenfunctions,
    successor_distances,
)

CELLS = 36
MIXING = np.triu(np.random.default_rng(0).normal(size=(4, 4))) + 2.0 * np.eye(4)


@pytest.fixture(scope="module")
def problem():
    return slow_features(Transition(bins=6, points=64), 4)


@pytest.fixture(scope="module")
def successor(problem):
    """A ground truth of another, random subspace without a constant part."""
    random = np.random.default_rng(1).normal(size=(CELLS, 4))
    basis, _ = np.linalg.qr(random - random.mean(axis=0))
    principal = PrincipalSubspace(
        basis=basis,
        singular_values=np.arange(4.0, 0.0, -1.0),
        total_energy=30.0,
        method="exact",
        settings={},
    )
    return GroundTruth(coordinates=problem.centres, matrix=None, principal=principal)


@pytest.fixture(scope="module")
def measured(problem):
    """Functions → what is measured of them with the constant, in float32."""

    def measure(functions):
        features = np.concatenate([np.ones((CELLS, 1)), functions], axis=1)
        return problem.measured(features.astype(np.float32))

    return measure


@pytest.mark.parametrize("dense", [module._DENSE, 0], ids=["dense", "Lanczos"])
def test_eigenfunctions_are_those_of_a_dense_generalised_solver(problem, dense, monkeypatch):
    monkeypatch.setattr(module, "_DENSE", dense)
    laplacian, sigma = problem.graph.laplacian.toarray(), np.diag(problem.graph.measure)
    values, vectors = scipy.linalg.eigh(laplacian, sigma, subset_by_index=(0, 6))
    found, functions = slowest_eigenfunctions(problem.graph, 7)
    np.testing.assert_allclose(found, values, rtol=1e-8, atol=1e-12)
    residual = laplacian @ functions - sigma @ functions * found
    np.testing.assert_allclose(residual, 0.0, atol=1e-10)
    np.testing.assert_allclose(functions.T @ sigma @ functions, np.eye(7), atol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(functions * (sigma @ vectors), axis=0)), 1.0)
    np.testing.assert_allclose(problem.eigenvalues, values[1:5], rtol=1e-8)
    np.testing.assert_allclose(problem.eigenfunctions, functions[:, 1:5], atol=1e-8)


def test_the_laplacian_is_of_the_uniform_measure_and_the_one_after_it(problem):
    chain, uniform = problem.chain.toarray(), np.diag(np.full(CELLS, 1 / CELLS))
    after = np.diag(chain.T @ np.full(CELLS, 1 / CELLS))
    expected = uniform + after - uniform @ chain - chain.T @ uniform
    np.testing.assert_allclose(problem.graph.laplacian.toarray(), expected, atol=1e-15)
    np.testing.assert_allclose(problem.graph.measure, np.diag(uniform + after) / 2)
    assert problem.graph.measure.min() > 0.1 / CELLS
    assert problem.graph.measure.sum() == pytest.approx(1.0)
    still, _ = slowest_eigenfunctions(graph_laplacian(np.eye(5), np.full(5, 0.2)), 2)
    np.testing.assert_allclose(still, 0.0, atol=1e-12)
    measure = np.where(np.arange(CELLS) == 4, 0.0, problem.graph.measure)
    broken = GraphLaplacian(problem.graph.laplacian, measure, measure)
    with pytest.raises(InputError, match="a measure of every state, got '1 states without'"):
        slowest_eigenfunctions(broken, 3)
    with pytest.raises(InputError, match="fewer eigenfunctions than the 36 states, got 36"):
        slowest_eigenfunctions(problem.graph, 36)


def test_mixtures_of_earlier_ones_and_the_constant_count_as_the_eigenfunctions(
    problem, successor, measured
):
    found = measured(problem.eigenfunctions @ MIXING + 3.0)
    np.testing.assert_allclose(found.functions, problem.eigenfunctions, atol=2e-5)
    np.testing.assert_allclose(found.eigenvalues, problem.eigenvalues, rtol=1e-5)
    np.testing.assert_allclose(found.cosines, 1.0, atol=1e-8)
    np.testing.assert_allclose(found.distances, 0.0, atol=1e-8)
    true = successor_distances(problem.eigenfunctions, successor)
    close = successor_distances(found.functions, successor)
    np.testing.assert_allclose(close, true, atol=1e-5)
    # The mean over states is left out, and so is a constant added to all functions.
    centred = problem.eigenfunctions - problem.eigenfunctions.mean(axis=0)
    for d in range(1, 5):
        basis = successor.principal.basis[:, :d]
        fitted = centred[:, :d] @ np.linalg.lstsq(centred[:, :d], basis, rcond=None)[0]
        assert true[d - 1] == pytest.approx(np.sum((basis - fitted) ** 2) / d, rel=1e-6)


def test_two_eigenfunctions_turned_into_each_other_span_the_same_but_are_not_the_same(
    problem, measured
):
    turn = np.eye(4)
    turn[:2, :2] = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    found = measured(problem.eigenfunctions @ turn)
    np.testing.assert_allclose(found.distances, [0.5, 0.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found.cosines, [0.5**0.5, 0.5**0.5, 1.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(found.eigenvalues[:2], problem.eigenvalues[:2].mean(), rtol=1e-5)


def test_what_is_followed_in_training_is_what_is_measured_after_it(problem, successor, measured):
    encoder = FunctionEncoder(
        lambda key: (), lambda params, _: jnp.hstack([jnp.ones((CELLS, 1)), params])
    )
    follow = jax.jit(problem.followed(encoder, (1, 2, 4)))
    table = np.random.default_rng(0).normal(size=(CELLS, 4)).astype(np.float32)
    followed, found = follow(table), measured(table)
    for d in (1, 2, 4):
        expected = found.distances[d - 1]
        assert float(followed[f"distance_{d}"]) == pytest.approx(expected, rel=1e-4)
    assert followed["subspace_distance"] == followed["distance_4"]
    weighed = problem.graph.measure[:, None] * found.functions * problem.eigenfunctions
    for k, cosine in enumerate(weighed.sum(axis=0), start=1):
        assert float(followed[f"cosine_{k}"]) == pytest.approx(abs(cosine), abs=1e-5)
    # Features that collapsed reach nothing.
    collapsed = np.zeros((CELLS, 4), np.float32)
    followed, found = follow(collapsed), measured(collapsed)
    np.testing.assert_allclose(found.distances, 1.0, atol=1e-12)
    none = successor_distances(found.functions, successor)
    np.testing.assert_allclose(none, 1.0, atol=1e-12)
    np.testing.assert_array_equal(found.eigenvalues, 4.0)
    assert not found.cosines.any()
    distances = [float(followed[name]) for name in ("distance_2", "distance_4")]
    assert distances == pytest.approx([1.0, 1.0], abs=1e-6)
    assert float(followed["cosine_1"]) == 0.0
